"""Timer files of 5.x looked at: slots of the wheel where their times belong, and the units of the log they lead to.

What waits is in the log, under a topic of its own; which of it was delivered is in no other file. So a repair sets
the files aside, and a Java broker reads that topic from its beginning: what was delivered comes again, nothing is lost.
Our own broker needs none of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from orbitlog.doctor.repair_journal import RepairJournal
from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.message_scan import Damage, LogEnd
from orbitlog.formats.timer_checkpoint import TIMER_CHECKPOINT_FILE
from orbitlog.formats.timer_log import TIMER_UNIT_BYTES, read_timer_unit_at
from orbitlog.formats.timer_wheel import SLOT_BYTES, turn_slots_of
from orbitlog.store.findings import Finding
from orbitlog.store.mapped_view import end_of_written, mapped_view, written_until
from orbitlog.store.store_files import OffsetFile, StoreFiles

_SLOT = np.dtype([("time", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("magic", ">i4")])
_UNIT = np.dtype(
    [("size", ">i4"), ("previous", ">i8"), ("magic", ">u4"), ("times", "V12"), ("physical_offset", ">i8"),
     ("record", ">i4"), ("rest", "V12")]
)  # fmt: skip
assert (_SLOT.itemsize, _UNIT.itemsize) == (SLOT_BYTES, TIMER_UNIT_BYTES)
_ROWS_AT_ONCE = 1 << 16


def timer_findings(store: StoreFiles) -> Iterator[Finding]:
    """Name what is wrong with the timer wheel and the timer log."""
    if store.timer_wheel is not None and not store.timer_log:
        yield Finding("timer", str(store.root / tree.TIMER_LOG), "is missing, though there is a timer wheel")
    end = 0
    if store.timer_wheel is None and any(_log_stop(file)[0] for file in store.timer_log):
        yield Finding("timer", str(store.root / tree.TIMER_WHEEL), "is missing, though there is a timer log")
    for file in store.timer_log:
        stop, problem = _log_stop(file)
        end = file.base + stop
        if problem:
            yield Finding("timer", str(file.path), problem, position=stop)
    if store.timer_wheel is not None:
        try:
            slots = 2 * turn_slots_of(store.timer_wheel.size_bytes)
        except FormatError as error:
            yield Finding("timer", str(store.timer_wheel.path), str(error))
            return
        yield from _wheel_findings(store, slots, end)


def plan_timers(journal: RepairJournal, store: StoreFiles) -> None:
    """Plan to let brokers make the files again, from the log."""
    why = "brokers make it again from the timer topic: what was delivered already comes again"
    for path in (
        store.root / tree.TIMER_WHEEL,
        store.root / tree.TIMER_LOG,
        store.root / tree.CONFIG / TIMER_CHECKPOINT_FILE,
    ):
        if os.path.lexists(path):
            journal.set_aside(path, why)


def _log_stop(file: OffsetFile) -> tuple[int, str]:
    """Return where the units of a file end, and what is wrong there, if anything is."""
    with mapped_view(file.path) as view:
        whole = len(view) // TIMER_UNIT_BYTES
        position = whole * TIMER_UNIT_BYTES
        for start in range(0, whole, _ROWS_AT_ONCE):
            rows = view[start * TIMER_UNIT_BYTES : min(start + _ROWS_AT_ONCE, whole) * TIMER_UNIT_BYTES]
            units = np.frombuffer(rows, _UNIT)
            other = np.flatnonzero(
                (units["size"] != TIMER_UNIT_BYTES) | (units["previous"] < -1) | (units["record"] <= 0)
            )
            del units, rows
            if len(other):
                position = (start + int(other[0])) * TIMER_UNIT_BYTES
                break
        found = read_timer_unit_at(view, position) if position < len(view) else LogEnd(position)
        rest = end_of_written(view, position, written_until(file.path)) if isinstance(found, LogEnd) else position
    if isinstance(found, Damage):
        return position, f"{found.error.field}: {found.error.problem}"
    if rest > position:
        return position, f"{rest - position} bytes behind the last unit are none"
    return position, ""


def _wheel_findings(store: StoreFiles, slots: int, log_end: int) -> Iterator[Finding]:
    """Name the slots that hold another time than theirs, or lead behind the end of the timer log."""
    assert store.timer_wheel is not None
    path = store.timer_wheel.path
    wrong: list[int] = []
    with mapped_view(path) as view:
        for start in range(0, slots, _ROWS_AT_ONCE):
            part = np.frombuffer(view[start * SLOT_BYTES : (start + _ROWS_AT_ONCE) * SLOT_BYTES], _SLOT)
            numbers = np.arange(start, start + len(part))
            is_used = part["time"] != 0
            is_elsewhere = part["time"] % slots != numbers
            leads_nowhere = (part["last"] >= log_end) | (part["first"] > part["last"]) | (part["count"] < 0)
            wrong += numbers[is_used & (is_elsewhere | leads_nowhere)].tolist()
            del part
    if wrong:
        reason = f"{len(wrong)} slots hold times that are not theirs, or lead to no unit of the timer log"
        yield Finding("timer", str(path), reason, position=wrong[0] * SLOT_BYTES, count=len(wrong))
