"""`orbitlog dump commitlog`: prints the messages of the log, and reports damage."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import click

from orbitlog.cli.dump import dump_options as options
from orbitlog.cli.dump.dump_target import LogTarget, log_target
from orbitlog.cli.output.display_text import byte_count, counted, local_time, zone_name
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.progress import Progress
from orbitlog.cli.output.stored_message_rows import STORED_FIELDS, message_cells, message_json
from orbitlog.cli.output.stream_table import Column, StreamTable
from orbitlog.cli.store_options import read_settings, report_damage, settings_options, warn
from orbitlog.errors import FormatError
from orbitlog.formats.records.message import Message
from orbitlog.storefiles.log_walk import LogWalk, StoredMessage

_ROWS_PER_UPDATE = 512


@click.command(
    "commitlog", help="Show the messages of the log. PATH: a store, its commitlog directory, or one segment."
)
@options.path_argument
@output_options
@options.topic_option
@options.from_option("Start at the first message at or after this physical offset.")
@options.limit_option
@settings_options
def command(
    *,
    path: Path,
    output: Output,
    topic: str | None,
    start: int,
    limit: int | None,
    config_path: Path | None,
    assignments: tuple[str, ...],
) -> None:
    output.check(STORED_FIELDS)
    target = log_target(path, read_settings(config_path, assignments))
    walk = LogWalk(target.segments, target.segment_bytes, start=start, committed_end=target.committed_end)
    shown = _Shown(target)
    with (
        output.writer(STORED_FIELDS) as writer,
        Progress(target.size_bytes) as progress,
        closing(walk.records()) as records,
    ):
        rows = islice(_of_topic(records, topic), limit)
        if not output.is_table:
            _write_json(rows, shown, writer, progress)
        else:
            _write_table(rows, shown, writer, progress)
            writer.line(shown.summary(walk.segments_read))
    if target.tail is not None:
        warn(f"not shown: {target.tail}")
    damaged = [(damage.start, str(damage)) for damage in walk.damage]
    report_damage([sentence for _, sentence in sorted(damaged + shown.bad_bodies)])


def _of_topic(records: Iterator[StoredMessage], topic: str | None) -> Iterator[StoredMessage]:
    return records if topic is None else (stored for stored in records if stored[0].topic == topic)


@dataclass
class _Shown:
    """Counts of the messages printed so far."""

    target: LogTarget
    messages: int = 0
    size_bytes: int = 0
    first_ms: int = sys.maxsize
    last_ms: int = 0
    bad_bodies: list[tuple[int, str]] = field(default_factory=list)

    def count(self, message: Message, size_bytes: int) -> None:
        self.messages += 1
        self.size_bytes += size_bytes
        self.first_ms = min(self.first_ms, message.store_timestamp_ms)
        self.last_ms = max(self.last_ms, message.store_timestamp_ms)

    def bad_body(self, message: Message, error: FormatError) -> None:
        physical_offset = message.physical_offset
        segments = self.target.segments
        segment = segments[bisect_right(segments, physical_offset, key=lambda file: file.base) - 1]
        sentence = (
            f"{segment.path}: physical offset {physical_offset} (byte {physical_offset - segment.base} of the file):"
            f" {error.field}: {error.problem}; the message is shown without the length and hash of its body"
        )
        self.bad_bodies.append((physical_offset, sentence))

    def summary(self, segments_read: int) -> str:
        read = counted(segments_read, "segment")
        text = f"{counted(self.messages, 'message')}, {byte_count(self.size_bytes)}, {read} read"
        if self.messages:
            text += f", stored {local_time(self.first_ms)} to {local_time(self.last_ms)} {zone_name()}"
        return text


def _write_json(rows: Iterator[StoredMessage], shown: _Shown, writer: LineWriter, progress: Progress) -> None:
    for number, (message, size_bytes) in enumerate(rows):
        line, error = message_json(message, size_bytes)
        writer.line(line)
        if error is not None:
            shown.bad_body(message, error)
        if not number % _ROWS_PER_UPDATE:
            progress.update(message.physical_offset - shown.target.segments[0].base)


def _columns() -> list[Column]:
    return [
        Column("offset", right=True, style="cyan"),
        Column("size", right=True),
        Column("topic", width_max=32, width_min=10, style="green"),
        Column("queue", right=True),
        Column("queue offset", right=True),
        Column("tags", width_max=16, width_min=6, dispensable=2),
        Column("keys", width_max=24, width_min=8, dispensable=1),
        Column(f"stored ({zone_name()})"),
        Column("born host", width_max=48, width_min=15, dispensable=3),
        Column("body", right=True),
        Column("", width_max=160, width_min=16, dispensable=1),
    ]


def _write_table(rows: Iterator[StoredMessage], shown: _Shown, writer: LineWriter, progress: Progress) -> None:
    table = StreamTable(writer, _columns())
    for message, size_bytes in rows:
        cells, error = message_cells(message, size_bytes)
        table.row(cells)
        shown.count(message, size_bytes)
        if error is not None:
            shown.bad_body(message, error)
        if not shown.messages % _ROWS_PER_UPDATE:
            progress.update(message.physical_offset - shown.target.segments[0].base)
    table.finish()
