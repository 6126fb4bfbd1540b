"""`orbitlog dump consumequeue`: prints the units of ConsumeQueues, and reports missing ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path

import click

from orbitlog.cli.dump import dump_options as options
from orbitlog.cli.dump.dump_target import QueueTarget, queue_target
from orbitlog.cli.output.display_text import byte_count, counted, local_time, printable, zone_name
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.stream_table import Column, StreamTable
from orbitlog.cli.store_options import read_settings, report_damage, settings_options
from orbitlog.formats import names
from orbitlog.formats.derived.queue_entry import QueueEntry
from orbitlog.formats.java import INT_MAX, INT_MIN
from orbitlog.storefiles.damage import DamagedRange
from orbitlog.storefiles.queue_walk import QueueWalk

_FIELDS = ("topic", "queueId", "queueOffset", "commitLogOffset", "size", "tagsCode", "deliverTimestamp", "preBlank")
Row = tuple[str | None, int | None, int, QueueEntry]


@click.command(
    "consumequeue",
    help="Show the units of queues. PATH: a store, its consumequeue directory, that of a topic or queue, or one file.",
)
@options.path_argument
@output_options
@options.topic_option
@options.from_option("Start each queue at this queue offset.")
@options.limit_option
@click.option("--all", "with_pre_blank", is_flag=True, help="Also print placeholder units before the first one.")
@settings_options
def command(
    *,
    path: Path,
    output: Output,
    topic: str | None,
    start: int,
    limit: int | None,
    with_pre_blank: bool,
    config_path: Path | None,
    assignments: tuple[str, ...],
) -> None:
    output.check(_FIELDS)
    target = queue_target(path, read_settings(config_path, assignments))
    damage: list[DamagedRange] = []
    units = _units(target, topic, start, damage)
    rows = islice((row for row in units if with_pre_blank or not row[3].is_pre_blank), limit)
    with output.writer(_FIELDS) as writer:
        if not output.is_table:
            for row in rows:
                writer.line(_as_json(row))
        else:
            _write_table(rows, writer)
    report_damage([str(damaged) for damaged in damage])


def _units(target: QueueTarget, topic: str | None, start: int, damage: list[DamagedRange]) -> Iterator[Row]:
    for queue in target.queues:
        if topic in (None, queue.topic):
            walk = QueueWalk(queue.files, target.file_bytes, start=start)
            for queue_offset, unit in walk.units():
                yield queue.topic, queue.queue_id, queue_offset, unit
            damage += walk.damage


def _deliver_timestamp_ms(row: Row) -> int | None:
    """Return the delivery time of a delayed message; None for a tag hash, which some 4.9 rebuilds store."""
    topic, _, _, unit = row
    return unit.tags_code if topic == names.SCHEDULE_TOPIC and unit.tags_code > INT_MAX else None


def _as_json(row: Row) -> str:
    topic, queue_id, queue_offset, unit = row
    due_ms = _deliver_timestamp_ms(row)
    more = "" if due_ms is None else f',"deliverTimestamp":{due_ms}'
    if unit.is_pre_blank:
        more += ',"preBlank":true'
    return (
        f'{{"topic":{"null" if topic is None else quoted(topic)},"queueId":{"null" if queue_id is None else queue_id},'
        f'"queueOffset":{queue_offset},"commitLogOffset":{unit.physical_offset},"size":{unit.size_bytes},'
        f'"tagsCode":{unit.tags_code}{more}}}'
    )


def _write_table(rows: Iterator[Row], writer: LineWriter) -> None:
    columns = [
        Column("topic", width_max=48, width_min=10, style="green"),
        Column("queue", right=True),
        Column("queue offset", right=True, style="cyan"),
        Column("commit log offset", right=True),
        Column("size", right=True),
        Column("tags code", right=True),
        Column("", dispensable=1),
    ]
    table = StreamTable(writer, columns)
    units, queues = 0, set()
    for row in rows:
        topic, queue_id, queue_offset, unit = row
        units += 1
        queues.add((topic, queue_id))
        table.row(
            (
                "?" if topic is None else printable(topic),
                "?" if queue_id is None else str(queue_id),
                str(queue_offset),
                str(unit.physical_offset),
                "-" if unit.is_pre_blank else byte_count(unit.size_bytes),
                str(unit.tags_code),
                _meaning(row),
            )
        )
    table.finish()
    writer.line(f"{counted(units, 'unit')} in {counted(len(queues), 'queue')}")


def _meaning(row: Row) -> str:
    due_ms = _deliver_timestamp_ms(row)
    if due_ms is not None:
        return f"due {local_time(due_ms)} {zone_name()}"
    if row[3].is_pre_blank:
        return "placeholder before the first unit"
    # A hash has 32 bits; a lower number is the address of a unit in consumequeue_ext.
    return "extension unit" if row[3].tags_code < INT_MIN else ""
