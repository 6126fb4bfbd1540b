"""`orbitlog dump index`: prints the entries of index files, which map key hashes to physical offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, groupby, islice
from pathlib import Path
from typing import NamedTuple

import click

from orbitlog.cli.dump import dump_options as options
from orbitlog.cli.dump.dump_target import IndexTarget, index_target
from orbitlog.cli.dump.index_topics import IndexTopics
from orbitlog.cli.output.display_text import local_time, zone_name
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.stream_table import Column, StreamTable
from orbitlog.cli.store_options import read_settings, report_damage, settings_options
from orbitlog.errors import FormatError
from orbitlog.formats.derived.index_layout import (
    IndexEntry,
    IndexHeader,
    IndexLayout,
    decode_header,
    index_key,
    key_hash,
)
from orbitlog.storefiles.index_walk import IndexWalk
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import SizedFile

_ENTRY_FIELDS = (
    *("file", "entry", "keyHash", "commitLogOffset", "timeDiffSeconds", "storeTimestamp", "previousEntry", "slot"),
)
_HEADER_FIELDS = (
    *("file", "beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount"),
    *("slots", "entries"),
)


class _Row(NamedTuple):
    file_name: str
    number: int
    entry: IndexEntry
    header: IndexHeader
    layout: IndexLayout

    @property
    def store_timestamp_ms(self) -> int:
        """Store time of the message, with a precision of one second."""
        return self.header.begin_timestamp_ms + self.entry.time_diff_seconds * 1000

    @property
    def slot(self) -> int:
        return self.entry.key_hash % self.layout.slot_count


@click.command("index", help="Show the entries of index files. PATH: a store, its index directory, or one file.")
@options.path_argument
@output_options
@click.option("--headers", is_flag=True, help="Print one row per file instead of one per entry.")
@click.option("--topic", help="Only entries of this topic, looked up in the commit log of the same store.")
@click.option("--key", help="With --topic: only entries with the hash of this key; needs no log.")
@options.from_option("Only entries with at least this commit log offset.")
@options.limit_option
@settings_options
def command(
    *,
    path: Path,
    output: Output,
    headers: bool,
    topic: str | None,
    key: str | None,
    start: int,
    limit: int | None,
    config_path: Path | None,
    assignments: tuple[str, ...],
) -> None:
    if key is not None and topic is None:
        raise click.UsageError("an index file contains hashes of topic and key: give --topic with --key")
    if headers and topic is not None:
        raise click.UsageError("--headers prints one row per file, not per topic: remove --topic")
    fields = _HEADER_FIELDS if headers else _ENTRY_FIELDS
    output.check(fields)
    wanted = None if topic is None or key is None else key_hash(index_key(topic, key))
    settings = read_settings(config_path, assignments)
    topics = IndexTopics(path, settings) if topic is not None and key is None else None
    target = index_target(path, settings)
    problems: list[str] = []
    with output.writer(fields) as writer:
        if headers:
            _write_headers(target, output, limit, writer, problems)
        else:
            rows = (row for row in _rows(target, problems) if row.entry.physical_offset >= start)
            rows = (row for row in rows if wanted in (None, row.entry.key_hash))
            if topics is not None:
                topic_at = topics.topic_at
                rows = (row for row in rows if topic_at(row.entry.physical_offset) == topic)
            chosen = islice(rows, limit)
            if not output.is_table:
                _write_json(chosen, writer)
            else:
                _write_table(chosen, writer)
    report_damage(problems)


def _rows(target: IndexTarget, problems: list[str]) -> Iterator[_Row]:
    for file in target.files:
        with mapped_view(file.path) as view:
            walk = IndexWalk(view, _layout_for(file, target))
            for number, entry in walk.entries():
                yield _Row(file.path.name, number, entry, walk.header, walk.layout)
            problems += [f"{file.path}: {problem}" for problem in walk.problems]


def _layout_for(file: SizedFile, target: IndexTarget) -> IndexLayout:
    if target.layout is None:
        raise click.UsageError(
            f"{file.path} has too few entries to infer the number of slots and entries;"
            " give --set maxHashSlotNum=N --set maxIndexNum=N as in broker.conf"
        )
    return target.layout


def _write_json(rows: Iterator[_Row], writer: LineWriter) -> None:
    for row in rows:
        entry = row.entry
        writer.line(
            f'{{"file":{json.dumps(row.file_name)},"entry":{row.number},"keyHash":{entry.key_hash},'
            f'"commitLogOffset":{entry.physical_offset},"timeDiffSeconds":{entry.time_diff_seconds},'
            f'"storeTimestamp":{row.store_timestamp_ms},"previousEntry":{entry.previous_entry},"slot":{row.slot}}}'
        )


def _write_table(rows: Iterator[_Row], writer: LineWriter) -> None:
    columns = [
        Column("entry", right=True, style="cyan"),
        Column("key hash", right=True),
        Column("slot", right=True),
        Column("commit log offset", right=True),
        Column("after begin", right=True),
        Column(f"stored ({zone_name()})"),
        Column("previous", right=True),
    ]
    for _, rows_of_file in groupby(rows, key=lambda row: row.file_name):
        first = next(rows_of_file)
        writer.line(_caption(first))
        table = StreamTable(writer, columns)
        for row in chain([first], rows_of_file):
            table.row(_cells(row))
        table.finish()


def _caption(row: _Row) -> str:
    header, layout = row.header, row.layout
    return (
        f"{row.file_name}: {header.key_count} of {layout.capacity} keys, {header.hash_slot_count} of"
        f" {layout.slot_count} slots, commit log {header.begin_physical_offset} to {header.end_physical_offset},"
        f" stored {local_time(header.begin_timestamp_ms)} to {local_time(header.end_timestamp_ms)} {zone_name()}"
    )


def _cells(row: _Row) -> tuple[str, ...]:
    return (
        str(row.number),
        str(row.entry.key_hash),
        str(row.slot),
        str(row.entry.physical_offset),
        f"{row.entry.time_diff_seconds} s",
        local_time(row.store_timestamp_ms),
        str(row.entry.previous_entry or "-"),
    )


def _write_headers(
    target: IndexTarget, output: Output, limit: int | None, writer: LineWriter, problems: list[str]
) -> None:
    table = StreamTable(writer, _header_columns())
    for file in islice(target.files, limit):
        with mapped_view(file.path) as view:
            try:
                header = decode_header(view)
            except FormatError as error:
                problems.append(f"{file.path}: {error}")
                continue
        if not output.is_table:
            writer.line(json.dumps(_header_object(file, header, target.layout), separators=(",", ":")))
        else:
            table.row(_header_cells(file, header, target.layout))
    table.finish()


def _header_object(file: SizedFile, header: IndexHeader, layout: IndexLayout | None) -> dict[str, str | int | None]:
    return {
        "file": file.path.name,
        "beginTimestamp": header.begin_timestamp_ms,
        "endTimestamp": header.end_timestamp_ms,
        "beginPhyOffset": header.begin_physical_offset,
        "endPhyOffset": header.end_physical_offset,
        "hashSlotCount": header.hash_slot_count,
        "indexCount": header.index_count,
        "slots": layout.slot_count if layout else None,
        "entries": layout.entry_count if layout else None,
    }


def _header_columns() -> list[Column]:
    return [
        Column("file", style="green"),
        Column("keys", right=True),
        Column("of", right=True),
        Column("slots used", right=True),
        Column("of", right=True),
        Column("first offset", right=True),
        Column("last offset", right=True),
        Column(f"first stored ({zone_name()})"),
        Column("last stored"),
    ]


def _header_cells(file: SizedFile, header: IndexHeader, layout: IndexLayout | None) -> tuple[str, ...]:
    return (
        file.path.name,
        str(header.key_count),
        str(layout.capacity) if layout else "?",
        str(header.hash_slot_count),
        str(layout.slot_count) if layout else "?",
        str(header.begin_physical_offset),
        str(header.end_physical_offset),
        local_time(header.begin_timestamp_ms),
        local_time(header.end_timestamp_ms),
    )
