"""`orbitlog dump timerwheel`: prints the slots of the timer wheel (5.x): times at which messages are delivered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click

from orbitlog.cli.dump import dump_options as options
from orbitlog.cli.dump.dump_target import timer_wheel_target
from orbitlog.cli.output.display_text import counted, local_time, zone_name
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.stream_table import Column, StreamTable
from orbitlog.cli.store_options import report_damage, warn
from orbitlog.errors import FormatError
from orbitlog.formats.derived.timer_checkpoint import decode_timer_checkpoint
from orbitlog.formats.derived.timer_wheel import SLOT_BYTES, TimerSlot, scan_wheel, turn_slots_of
from orbitlog.storefiles.mapped_view import mapped_view, written_until

_PAIR_BYTES = 2 * SLOT_BYTES  # a wheel has slots for two turns
_FIELDS = ("deliverTimestamp", "messages", "firstLogPosition", "lastLogPosition")


@click.command(
    "timerwheel", help="Show the slots of the timer wheel, the earliest first. PATH: a store or the wheel's file."
)
@options.path_argument
@output_options
@click.option(
    "--all", "with_delivered", is_flag=True, help="Also print slots that config/timercheck records as delivered."
)
@options.limit_option
def command(*, path: Path, output: Output, with_delivered: bool, limit: int | None) -> None:
    output.check(_FIELDS)
    wheel, checkpoint = timer_wheel_target(path)
    if wheel is None:
        warn(f"{path} has no timer wheel; only brokers of 5.x write one")
        return
    delivered_until_ms = 0 if with_delivered or checkpoint is None else _delivered_until_ms(checkpoint)
    problems: list[str] = []
    with mapped_view(wheel) as view:
        try:
            turn_slots_of(len(view))
            # Without the hole at the end, which may be a terabyte in a store of a stranger.
            written = -(-written_until(wheel) // _PAIR_BYTES) * _PAIR_BYTES
            written_slots = scan_wheel(view[: max(written, _PAIR_BYTES)])
            slots = [slot for _, slot in written_slots if slot.time_ms >= delivered_until_ms]
        except FormatError as error:
            slots = []
            problems.append(f"{wheel}: {error}")
    slots.sort(key=lambda slot: slot.time_ms)
    with output.writer(_FIELDS) as writer:
        if not output.is_table:
            for slot in islice(slots, limit):
                writer.line(json.dumps(_as_object(slot), separators=(",", ":")))
        else:
            _write_table(islice(slots, limit), writer)
    report_damage(problems)


def _delivered_until_ms(checkpoint: Path) -> int:
    with mapped_view(checkpoint) as view:
        return decode_timer_checkpoint(view).last_read_time_ms


def _as_object(slot: TimerSlot) -> dict[str, int]:
    return {
        "deliverTimestamp": slot.time_ms,
        "messages": slot.message_count,
        "firstLogPosition": slot.first_log_position,
        "lastLogPosition": slot.last_log_position,
    }


def _write_table(slots: Iterator[TimerSlot], writer: LineWriter) -> None:
    columns = (
        Column(f"due ({zone_name()})", style="green"),
        Column("messages", right=True),
        Column("first log position", right=True),
        Column("last log position", right=True),
    )
    table = StreamTable(writer, columns)
    count = 0
    for slot in slots:
        count += 1
        positions = str(slot.first_log_position), str(slot.last_log_position)
        table.row((local_time(slot.time_ms), str(slot.message_count), *positions))
    table.finish()
    writer.line(counted(count, "slot"))
