"""Timer log writer: writes the waiting timer messages as a timer log for a Java broker (`TimerLog`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from orbitlog.broker.delayed.timer_handover import WAITING_MAX, JavaTimer
from orbitlog.broker.runtime.broker_settings import TIMER_LOG_BYTES, TIMER_LOG_BYTES_MIN
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.timer_log import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    TIMER_LOG_BLANK,
    TIMER_UNIT_BYTES,
    TimerLogUnit,
    encode_timer_unit,
)
from orbitlog.storefiles.disk import Disk

_WINDOW_MS = 2 * 24 * 3600 * 1000
_NEW = ".orbitlog-new"
assert (WAITING_MAX + 1) * TIMER_UNIT_BYTES + TIMER_LOG_BLANK.size_bytes <= TIMER_LOG_BYTES_MIN


def write_timer_log(disk: Disk, directory: Path, timers: list[JavaTimer], log_bytes: int | None) -> int:
    """Replace the timer log, and the wheel made from it, by a log with these messages; return its end offset.

    `log_bytes` is the size of a file if an operator set it; None infers it from the files.
    """
    disk.make_directory(directory)
    old = [entry for entry in disk.list_directory(directory) if not entry.name.endswith(_NEW)]
    found_bytes = max((entry.size_bytes for entry in old), default=0)
    # Java does not load a file whose size differs from its setting.
    file_bytes = log_bytes or found_bytes or TIMER_LOG_BYTES.default
    units = b"".join(_units(timers))
    if len(units) + TIMER_LOG_BLANK.size_bytes > file_bytes:
        file_bytes = TIMER_LOG_BYTES.default
    path = directory / (tree.offset_file_name(0) + _NEW)
    disk.remove_file(path)
    file = disk.create_file(path, file_bytes)
    try:
        file.allocate(0, len(units))
        file.write(0, units)
        file.sync()
    finally:
        file.close()
    disk.remove_file(directory.parent / tree.TIMER_WHEEL)
    for entry in old:
        disk.remove_file(directory / entry.name)
    disk.rename_file(path, tree.offset_file_name(0))
    disk.sync_directory(directory)
    return len(units)


def _units(timers: Iterable[JavaTimer]) -> Iterable[bytes]:
    """Yield the units; the units of a slot form a list from the last to the first."""
    last_of_slot: dict[int, int] = {}
    for number, timer in enumerate(timers):
        written_ms = max(min(timer.stored_ms, timer.slot_ms), timer.slot_ms - _WINDOW_MS)
        magic = MAGIC_DEFAULT | (MAGIC_ROLL if timer.is_roll else 0) | (MAGIC_DELETE if timer.is_delete else 0)
        yield encode_timer_unit(
            TimerLogUnit(
                previous_log_position=last_of_slot.get(timer.slot_ms),
                write_time_ms=written_ms,
                delay_ms=timer.slot_ms - written_ms,
                physical_offset=timer.physical_offset,
                record_bytes=timer.size_bytes,
                real_topic_hash=timer.topic_hash,
                magic=magic,
            )
        )
        last_of_slot[timer.slot_ms] = number * TIMER_UNIT_BYTES
