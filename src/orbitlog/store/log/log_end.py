"""Log end: finds the end of the log of a store that was not closed cleanly, or that another broker wrote.

The log is followed from a known record to the first bytes that are not a record. After a crash that is its end: bytes
after it may be pages that were written back out of order. But if a later record is older than the checkpoint's
timestamp, it was durable long ago: then the bytes before it are damage, and the log continues after them.

A record's CRC covers only its body. Pages that were not written back read as zeros. So a record by Orbitlog without a
zero byte in topic and properties is complete: a missing page would show there, in the body's CRC or in lengths that do
not add up. A message whose properties contain zero bytes, which is valid, is therefore stored with a property CRC
(`formats.records.property_crc`) even if no setting asks for it; after a crash it is complete only if that CRC is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitlog.errors import BadField, ChecksumMismatch
from orbitlog.formats.records.message import Message, encode_message
from orbitlog.formats.records.message_scan import BLANK, Damage, LogEnd, SegmentEnd, find_record, read_at
from orbitlog.formats.records.properties import check_crc_property
from orbitlog.kernels import COMPILED
from orbitlog.store.dispatch.arrival import DamagedLog, Progress
from orbitlog.store.log.commitlog import CommitLog

# Below this the plain decoder is done before the kernels are loaded.
_KERNEL_BYTES_MIN = 16 * 1024 * 1024


@dataclass(slots=True)
class FoundEnd:
    """The end of the log, the store timestamp of the last message before it, and skipped damage."""

    physical_offset: int
    last_store_timestamp_ms: int = 0
    damage: list[DamagedLog] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class KnownLog:
    """Facts about a log before it is walked: which broker wrote it, and which part was durable."""

    is_own: bool
    durable_timestamp_ms: int
    last_durable_physical_offset: int

    def is_durable(self, message: Message) -> bool:
        """Return whether a message was durable; of those stored in the last millisecond only some were."""
        if message.store_timestamp_ms == self.durable_timestamp_ms:
            return message.physical_offset <= self.last_durable_physical_offset
        return 0 < message.store_timestamp_ms < self.durable_timestamp_ms

    def may_go_on(self, physical_offset: int, last_store_timestamp_ms: int) -> bool:
        """Return whether a message known to be durable can follow one stored at that time."""
        if self.is_own:
            return physical_offset <= self.last_durable_physical_offset
        return last_store_timestamp_ms < self.durable_timestamp_ms

    def is_torn(self, message: Message) -> bool:
        """Return whether a crash tore a record by Orbitlog: one after the last durable record.

        Earlier ones may be another broker's, whose properties may contain zero bytes without a checksum.
        """
        return self.is_own and message.physical_offset > self.last_durable_physical_offset and is_torn(message)


def find_log_end(log: CommitLog, start: int, known: KnownLog, progress: Progress | None = None) -> FoundEnd:
    """Follow the log from the record at `start`; `progress` gets bytes done and to do after each segment."""
    result = FoundEnd(start)
    bases = [base for base in log.segments.bases if base + log.segments.file_bytes > start]
    for base in bases:
        if base > result.physical_offset:
            break  # the segment before did not end with a BLANK
        goes_on = _follow_segment(log, base, max(start - base, 0), known, result)
        if progress is not None:
            progress(result.physical_offset - start, max(_written_end(log), result.physical_offset) - start)
        if not goes_on:
            break
    return result


def _written_end(log: CommitLog) -> int:
    """Return an upper bound of the log's end."""
    last = log.segments.bases[-1]
    return last + log.segments.file(last).data_end()


def _follow_segment(log: CommitLog, base: int, position: int, known: KnownLog, result: FoundEnd) -> bool:
    """Follow one segment; return whether the log continues in the next one, which exists."""
    view = log.segments.file(base).view()
    try:
        while True:
            position, found = _follow_records(view, base, position, known, result)
            result.physical_offset = base + position
            if isinstance(found, SegmentEnd):
                if not log.segments.has(base + len(view)):
                    return False  # as Java: the end is where the BLANK is
                result.physical_offset = base + len(view)
                return True
            following = None
            if known.may_go_on(base + position, result.last_store_timestamp_ms):
                # Only where data was written: the rest of a segment may be a gigabyte of zeros.
                with view[: log.segments.file(base).data_end()] as written:
                    following = find_record(written, position + 1, base_physical_offset=base)
            if following is None:
                following = len(view)  # the end of this segment is damaged; the next one may follow
            if not _is_durable(log, base + following, known):
                return False
            reason = str(found.error) if isinstance(found, Damage) else "zeros where records should be"
            result.damage.append(DamagedLog(base + position, following - position, reason))
            position = following
            if position == len(view):
                result.physical_offset = base + position
                return True
    finally:
        view.release()


def _follow_records(
    view: memoryview, base: int, position: int, known: KnownLog, result: FoundEnd
) -> tuple[int, SegmentEnd | LogEnd | Damage]:
    """Go from record to record; return the position of the first that is not a message, and what it is."""
    found = read_at(view, position, base_physical_offset=base)
    if isinstance(found, Message) and COMPILED and len(view) - position >= _KERNEL_BYTES_MIN:
        position = _follow_fast(view, base, position, known, result)
        found = read_at(view, position, base_physical_offset=base)
    while isinstance(found, Message):
        if known.is_torn(found):
            return position, Damage(position, BadField("were torn by a crash", field="properties", position=position))
        result.last_store_timestamp_ms = found.store_timestamp_ms
        position += BLANK.struct.unpack_from(view, position)[0]
        found = read_at(view, position, base_physical_offset=base)
    return position, found


def _follow_fast(view: memoryview, base: int, position: int, known: KnownLog, result: FoundEnd) -> int:
    from orbitlog.kernels.record_walk import walk_messages

    walk = walk_messages(view, position, base_physical_offset=base)
    # In a log by another broker only the last record's timestamp is needed.
    for found_at in walk.positions.tolist() if known.is_own else walk.positions[-1:].tolist():
        found = read_at(view, found_at, base_physical_offset=base, check_crc=False)
        assert isinstance(found, Message)
        if known.is_torn(found):
            return int(found_at)
        result.last_store_timestamp_ms = found.store_timestamp_ms
    return walk.next_position


def _is_durable(log: CommitLog, physical_offset: int, known: KnownLog) -> bool:
    """Return whether a durable message is stored there, or after the end of that segment."""
    base = log.segments.base_of(physical_offset)
    if not log.segments.has(base):
        return False
    view = log.segments.file(base).view()
    try:
        found = read_at(view, physical_offset - base, base_physical_offset=base)
    finally:
        view.release()
    if isinstance(found, SegmentEnd):
        return _is_durable(log, base + log.segments.file_bytes, known)
    return isinstance(found, Message) and known.is_durable(found)


def is_torn(message: Message) -> bool:
    """Return whether a record of a log by Orbitlog lacks pages that a crash lost."""
    if 0 not in message.properties_raw:
        return "\0" in message.topic
    try:
        return not check_crc_property(encode_message(message))
    except ChecksumMismatch:
        return True
