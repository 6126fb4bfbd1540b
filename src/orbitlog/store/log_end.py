"""Where does the log end? Asked when a store is opened that nobody closed, or that somebody else wrote.

From a record known to be one the log is followed to the first bytes that are none. After a crash that is its end:
what lies behind may be pages that reached the disk out of order. But where a later record is older than the
checkpoint's time, it was safely on the disk long ago; then the bytes before it are damage in the middle, and the log
goes on behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitlog.formats.message import Message
from orbitlog.formats.message_scan import BLANK, Damage, LogEnd, SegmentEnd, find_record, read_at
from orbitlog.store.commitlog import CommitLog
from orbitlog.store.dispatcher import DamagedLog

# Below this the plain decoder is done before the kernels are loaded.
_KERNEL_BYTES_MIN = 16 * 1024 * 1024


@dataclass(slots=True)
class FoundEnd:
    """The end of the log, the store time of the last message before it, and damage that was passed over."""

    physical_offset: int
    last_store_timestamp_ms: int = 0
    damage: list[DamagedLog] = field(default_factory=list)


def find_log_end(log: CommitLog, start: int, durable_timestamp_ms: int) -> FoundEnd:
    """Follow the log from the record at `start`; messages stored up to that time are known to be on the disk."""
    result = FoundEnd(start)
    bases = [base for base in log.segments.bases if base + log.segments.file_bytes > start]
    for base in bases:
        if base > result.physical_offset:
            break  # the segment before did not lead here
        if not _follow_segment(log, base, max(start - base, 0), durable_timestamp_ms, result):
            break
    return result


def _follow_segment(log: CommitLog, base: int, position: int, durable_timestamp_ms: int, result: FoundEnd) -> bool:
    """Follow one segment; True where the log goes on in the next, which is there."""
    view = log.segments.file(base).view()
    try:
        while True:
            position, found = _follow_records(view, base, position, result)
            result.physical_offset = base + position
            if isinstance(found, SegmentEnd):
                if not log.segments.has(base + len(view)):
                    return False  # as Java: the end is where the BLANK is
                result.physical_offset = base + len(view)
                return True
            following = find_record(view, position + 1, base_physical_offset=base)
            if following is None or not _is_durable(view, base, following, durable_timestamp_ms):
                return False
            reason = str(found.error) if isinstance(found, Damage) else "zeros where records should be"
            result.damage.append(DamagedLog(base + position, following - position, reason))
            position = following
    finally:
        view.release()


def _follow_records(
    view: memoryview, base: int, position: int, result: FoundEnd
) -> tuple[int, SegmentEnd | LogEnd | Damage]:
    """Go from record to record; returns where they end, and with what."""
    if len(view) - position >= _KERNEL_BYTES_MIN:
        position = _follow_fast(view, base, position, result)
    while True:
        found = read_at(view, position, base_physical_offset=base)
        if not isinstance(found, Message):
            return position, found
        result.last_store_timestamp_ms = found.store_timestamp_ms
        position += BLANK.struct.unpack_from(view, position)[0]


def _follow_fast(view: memoryview, base: int, position: int, result: FoundEnd) -> int:
    from orbitlog.kernels.record_walk import walk_messages

    walk = walk_messages(view, position, base_physical_offset=base)
    if len(walk.positions):
        last = read_at(view, int(walk.positions[-1]), base_physical_offset=base, check_crc=False)
        if isinstance(last, Message):
            result.last_store_timestamp_ms = last.store_timestamp_ms
    return walk.next_position


def _is_durable(view: memoryview, base: int, position: int, durable_timestamp_ms: int) -> bool:
    found = read_at(view, position, base_physical_offset=base)
    if isinstance(found, SegmentEnd):
        return False
    return isinstance(found, Message) and 0 < found.store_timestamp_ms <= durable_timestamp_ms
