"""Timer survey: findings about the timer wheel, the timer log and `timercheck` of 5.x.

A slot of the wheel must have the time that belongs to it, and point to a unit of the timer log. Java rebuilds a missing
wheel from the last two files of the timer log (`TimerMessageStore.recover`); Orbitlog's broker leaves none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orbitlog.errors import FormatError, StoreLinkError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.timer_checkpoint import TIMER_CHECKPOINT_FILE, TimerCheckpoint, decode_timer_checkpoint
from orbitlog.formats.derived.timer_log import TIMER_UNIT_BYTES, TimerLogUnit, read_timer_unit_at
from orbitlog.formats.derived.timer_wheel import PRECISION_MS_DEFAULT, SLOT_BYTES, TURN_SLOTS_DEFAULT, wheel_bytes
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.records.message_scan import Damage, LogEnd, SegmentEnd
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.row_dtypes import places_of
from orbitlog.storefiles.confined.regular_files import read_below
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import end_of_written, mapped_view, written_until
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles

_SLOT = np.dtype([("time", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("magic", ">i4")])
_UNIT = np.dtype(
    [("size", ">i4"), ("previous", ">i8"), ("magic", ">u4"), ("written_ms", ">i8"), ("delay_ms", ">i4"),
     ("physical_offset", ">i8"), ("record", ">i4"), ("rest", "V12")]
)  # fmt: skip
assert (_SLOT.itemsize, _UNIT.itemsize) == (SLOT_BYTES, TIMER_UNIT_BYTES)
_ROWS_AT_ONCE = 1 << 16
_MAGIC_MAX = 0xF
# Java has no setting for it, and does not start with another one.
_WHEEL_BYTES = wheel_bytes(TURN_SLOTS_DEFAULT)


def timer_findings(store: StoreFiles) -> Iterator[Finding]:
    """Yield findings for the timer wheel and the timer log.

    A wheel without a timer log is sound: 5.x creates the wheel when it starts, and the log with the first timer
    message. A timer log that was deleted shows in `timercheck` and in the slots of the wheel.
    """
    yield from _place_findings(store.timer_log)
    end, has_units = 0, False
    for file in store.timer_log:
        stop, problem = _log_stop(file)
        end, has_units = file.base + stop, has_units or stop > 0
        if problem:
            yield Finding(FindingKind.TIMER, str(file.path), problem, position=stop)
    checkpoint = timer_checkpoint(store)
    yield from _against_checkpoint(store, checkpoint, end, has_units=has_units)
    if store.timer_wheel is None:
        if has_units:
            kind = FindingKind.TIMER_WHEEL if is_wheel_rebuilt(store, checkpoint) else FindingKind.TIMER
            yield Finding(kind, str(store.root / tree.TIMER_WHEEL), "is missing, though there is a timer log")
        return
    if store.timer_wheel.size_bytes != _WHEEL_BYTES:
        reason = f"has {store.timer_wheel.size_bytes} bytes, a wheel has {_WHEEL_BYTES}"
        yield Finding(FindingKind.TIMER, str(store.timer_wheel.path), reason)
        return
    yield from _wheel_findings(store, end, checkpoint.last_read_time_ms if checkpoint is not None else LONG_MAX)


def timer_checkpoint(store: StoreFiles) -> TimerCheckpoint | None:
    """Return `timercheck`; None if it is missing or unreadable."""
    path = store.root / tree.CONFIG / TIMER_CHECKPOINT_FILE
    try:
        raw = read_below(store.root, path)
        return None if raw is None else decode_timer_checkpoint(raw)
    except (FormatError, StoreLinkError, IsADirectoryError, NotADirectoryError):
        return None


def is_wheel_rebuilt(store: StoreFiles, checkpoint: TimerCheckpoint | None) -> bool:
    """Return whether a Java broker would put every unit of the timer log on a new wheel."""
    if checkpoint is None or not store.timer_log:
        return False
    first, last = store.timer_log[0], store.timer_log[-1]
    return checkpoint.last_log_flush_position - last.size_bytes < first.base + first.size_bytes


def units_of(file: OffsetFile) -> npt.NDArray[np.void]:
    """Return physical offset and size of each message that a file of the timer log has a unit for."""
    count = min(_log_stop(file)[0], file.size_bytes) // TIMER_UNIT_BYTES
    with mapped_view(file.path) as view:
        units = np.frombuffer(view, _UNIT, count)
        places = places_of(units["physical_offset"], units["record"])
        del units
    return places


def _against_checkpoint(
    store: StoreFiles, checkpoint: TimerCheckpoint | None, log_end: int, *, has_units: bool
) -> Iterator[Finding]:
    """Yield contradictions between the timer log and `timercheck`: Java would skip pending messages."""
    file = store.root / tree.CONFIG / TIMER_CHECKPOINT_FILE
    path = str(file)
    if checkpoint is None:
        if has_units and not (file.is_file() and file.stat().st_size):
            yield Finding(FindingKind.TIMER, path, "is missing or empty, though there is a timer log")
        return
    if checkpoint.last_log_flush_position > log_end:
        reason = f"ends at {log_end}, though timercheck records position {checkpoint.last_log_flush_position}"
        yield Finding(FindingKind.TIMER, str(store.root / tree.TIMER_LOG), reason)
    if has_units and not checkpoint.last_read_time_ms:
        yield Finding(FindingKind.TIMER, path, "has no time, though there is a timer log")


def _log_stop(file: OffsetFile) -> tuple[int, str]:
    """Return the end of a file's units, and what is wrong there, if anything."""
    with mapped_view(file.path) as view:
        whole = len(view) // TIMER_UNIT_BYTES
        position = whole * TIMER_UNIT_BYTES
        for start in range(0, whole, _ROWS_AT_ONCE):
            rows = view[start * TIMER_UNIT_BYTES : min(start + _ROWS_AT_ONCE, whole) * TIMER_UNIT_BYTES]
            other = np.flatnonzero(_are_none(np.frombuffer(rows, _UNIT), file.base + start * TIMER_UNIT_BYTES))
            del rows
            if len(other):
                position = (start + int(other[0])) * TIMER_UNIT_BYTES
                break
        found = read_timer_unit_at(view, position) if position < len(view) else LogEnd(position)
        rest = end_of_written(view, position, written_until(file.path)) if isinstance(found, LogEnd) else position
    if isinstance(found, Damage):
        return position, f"{found.error.field}: {found.error.problem}"
    if isinstance(found, TimerLogUnit):
        return position, "a unit has an invalid time, or points to a later unit"
    if rest > position:
        return position, f"{rest - position} bytes after the last unit are not a unit"
    return (file.size_bytes if isinstance(found, SegmentEnd) else position), ""


def _are_none(units: npt.NDArray[np.void], first_position: int) -> npt.NDArray[np.bool_]:
    """Return which rows are not units: a list points backwards, and no due time is before the time of writing."""
    positions = first_position + TIMER_UNIT_BYTES * np.arange(len(units))
    return np.asarray(
        (units["size"] != TIMER_UNIT_BYTES)
        | (units["previous"] < -1)
        | (units["previous"] >= positions)
        | (units["magic"] > _MAGIC_MAX)
        | (units["written_ms"] <= 0)
        | (units["delay_ms"] < 0)
        | (units["record"] <= 0)
    )


def _place_findings(files: Sequence[OffsetFile]) -> Iterator[Finding]:
    """Yield findings for files of the timer log that do not follow each other: positions count over all of them."""
    for before, file in zip([None, *files], files, strict=False):
        is_last = file is files[-1]
        if file.size_bytes and file.base % file.size_bytes:
            reason = f"starts at {file.base}, which is not a multiple of its {file.size_bytes} bytes"
            yield Finding(FindingKind.TIMER, str(file.path), reason)
        elif before is not None and (file.base != before.base + before.size_bytes or not (file.size_bytes or is_last)):
            reason = f"starts at {file.base}, the file before it ends at {before.base + before.size_bytes}"
            yield Finding(FindingKind.TIMER, str(file.path), reason)


def _wheel_findings(store: StoreFiles, log_end: int, read_to_ms: int) -> Iterator[Finding]:
    """Yield a finding for slots that have the wrong time, or do not point to a unit of the timer log.

    Delivered ones may point to files that were deleted.
    """
    assert store.timer_wheel is not None
    path, slots = store.timer_wheel.path, _WHEEL_BYTES // SLOT_BYTES
    log_start, file_bytes = (store.timer_log[0].base, store.timer_log[0].size_bytes or 1) if store.timer_log else (0, 1)
    wrong: list[int] = []
    with mapped_view(path) as view:
        for start in range(0, slots, _ROWS_AT_ONCE):
            part = np.frombuffer(view[start * SLOT_BYTES : (start + _ROWS_AT_ONCE) * SLOT_BYTES], _SLOT)
            numbers = np.arange(start, start + len(part))
            is_used = part["time"] != 0
            is_elsewhere = part["time"] % slots != numbers
            points_nowhere = (part["last"] >= log_end) | (part["first"] > part["last"]) | (part["count"] < 0)
            is_no_unit = (part["last"] < log_start) | (part["last"] % file_bytes % TIMER_UNIT_BYTES != 0)
            waits = part["time"] > read_to_ms // PRECISION_MS_DEFAULT
            wrong += numbers[is_used & (is_elsewhere | points_nowhere | (waits & is_no_unit))].tolist()
            del part
    if wrong:
        reason = f"{len(wrong)} slots have wrong times, or do not point to a unit of the timer log"
        yield Finding(FindingKind.TIMER, str(path), reason, position=wrong[0] * SLOT_BYTES, count=len(wrong))
