"""`orbitlog dump timerlog`: prints the units of the timer log (5.x): scheduled messages and their delivery times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click

from orbitlog.cli.dump import dump_options as options
from orbitlog.cli.dump.dump_target import timer_log_target
from orbitlog.cli.output.display_text import byte_count, counted, local_time, zone_name
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.stream_table import Column, StreamTable
from orbitlog.cli.store_options import report_damage
from orbitlog.formats.derived.timer_log import TimerLogUnit, scan_timer_log
from orbitlog.formats.records.message_scan import Damage
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import OffsetFile

_FIELDS = (
    *("logPosition", "deliverTimestamp", "writeTimestamp", "commitLogOffset", "size", "realTopicHash", "isRoll"),
    *("isDelete", "previousLogPosition"),
)
Row = tuple[int, TimerLogUnit]


@click.command("timerlog", help="Show the units of the timer log. PATH: a store, its timerlog directory, or one file.")
@options.path_argument
@output_options
@options.from_option("Start at this position of the timer log.")
@options.limit_option
def command(*, path: Path, output: Output, start: int, limit: int | None) -> None:
    output.check(_FIELDS)
    problems: list[str] = []
    rows = islice((row for row in _units(timer_log_target(path), problems) if row[0] >= start), limit)
    with output.writer(_FIELDS) as writer:
        if not output.is_table:
            for log_position, unit in rows:
                writer.line(json.dumps(_as_object(log_position, unit), separators=(",", ":")))
        else:
            _write_table(rows, writer)
    report_damage(problems)


def _units(files: tuple[OffsetFile, ...], problems: list[str]) -> Iterator[Row]:
    for file in files:
        with mapped_view(file.path) as view:
            for position, scanned in scan_timer_log(view):
                if isinstance(scanned, TimerLogUnit):
                    yield file.base + position, scanned
                elif isinstance(scanned, Damage):
                    error, rest = scanned.error, len(view) - position
                    problems.append(
                        f"{file.path}: timer log position {file.base + position} (byte {position} of the file):"
                        f" {error.field}: {error.problem}; {rest} bytes skipped"
                    )


def _as_object(log_position: int, unit: TimerLogUnit) -> dict[str, int | bool | None]:
    return {
        "logPosition": log_position,
        "deliverTimestamp": unit.due_time_ms,
        "writeTimestamp": unit.write_time_ms,
        "commitLogOffset": unit.physical_offset,
        "size": unit.record_bytes,
        "realTopicHash": unit.real_topic_hash,
        "isRoll": unit.is_roll,
        "isDelete": unit.is_delete,
        "previousLogPosition": unit.previous_log_position,
    }


def _write_table(rows: Iterator[Row], writer: LineWriter) -> None:
    columns = (
        Column("log position", right=True, style="cyan"),
        Column(f"due ({zone_name()})"),
        Column("written"),
        Column("commit log offset", right=True),
        Column("size", right=True),
        Column("previous", right=True),
        Column("kind"),
    )
    table = StreamTable(writer, columns)
    units = 0
    for log_position, unit in rows:
        units += 1
        previous = unit.previous_log_position
        kind = "deletion" if unit.is_delete else "rolled" if unit.is_roll else "message"
        table.row(
            (
                str(log_position),
                local_time(unit.due_time_ms),
                local_time(unit.write_time_ms),
                str(unit.physical_offset),
                byte_count(unit.record_bytes),
                "-" if previous is None else str(previous),
                kind,
            )
        )
    table.finish()
    writer.line(counted(units, "unit"))
