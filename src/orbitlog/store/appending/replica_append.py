"""Replica append: writes bytes of a master's log at their physical offset, so that a slave's log is a copy of it.

Mirrors `CommitLog.appendData`. Bytes arrive in pieces that may end inside a record. `received_to` counts all of them;
the log's `written_to` follows only to the end of the last complete record, so dispatch, readers and flushes never see a
part of one. An incomplete record is not part of the log: recovery cuts it, and the slave requests it from there.
"""

from __future__ import annotations

from orbitlog.errors import ReplicaMismatch
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, RECORD_START
from orbitlog.formats.records.message_scan import BLANK, BLANK_BYTES, MAGIC_BLANK, fits
from orbitlog.store.log.commitlog import CommitLog

_MAGICS = frozenset((MAGIC_V1, MAGIC_V2))


class ReplicaAppend:
    """Appends to the log of one slave; used by one thread."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self.received_to = log.written_to
        """Physical offset after the last byte received, which may be inside a record."""

    @property
    def is_empty(self) -> bool:
        """Whether the log has no byte and starts at 0: it may then start at any segment of the master."""
        return self.received_to == 0

    def start_at(self, physical_offset: int, data: bytes) -> None:
        """Start an empty log at a segment of the master; the segments before it were deleted there, or are not sent.

        `data` are its first bytes. They are checked before: a log with another start could follow no master.
        """
        log = self._log
        assert self.is_empty
        segment_bytes = log.segments.file_bytes
        self._check(physical_offset % segment_bytes == 0, physical_offset, "is not the start of a segment")
        self._check(physical_offset <= LONG_MAX - segment_bytes, physical_offset, "is past the end of any log")
        if len(data) >= RECORD_START.size:
            size_bytes, magic = BLANK.struct.unpack_from(data)
            if magic == MAGIC_BLANK:
                self._check_blank(size_bytes, segment_bytes, physical_offset)
            else:
                self._check_record(size_bytes, magic, segment_bytes, physical_offset)
                self._check_stated(RECORD_START.unpack_from(data)[2], physical_offset)
        log.segments.drop_from(0)  # an empty first segment of an earlier start
        log.start_at(physical_offset)
        self.received_to = physical_offset

    def drop_incomplete(self) -> None:
        """Forget the bytes of an incomplete last record; they are requested again."""
        self.received_to = self._log.written_to

    def cut(self, end: int) -> None:
        """End the log at `end`, the end of a record, durably: later bytes are overwritten with zeros."""
        self._log.cut_to(end)
        self.received_to = end

    def append(self, physical_offset: int, data: bytes) -> int:
        """Write bytes that start at `physical_offset`; return the number of records that they completed.

        Raise `ReplicaMismatch`, with nothing added to the log, if they do not continue it; `DiskFull` if there is no
        room for them.
        """
        self._check(physical_offset == self.received_to, physical_offset, f"does not continue at {self.received_to}")
        segments = self._log.segments
        base = segments.base_of(physical_offset)
        position, stop = physical_offset - base, physical_offset - base + len(data)
        self._check(stop <= segments.file_bytes, physical_offset, f"{len(data)} bytes cross the end of a segment")
        if not segments.has(base):
            # A segment exists only if the one before it is complete and durable. After a power cut a log that ends with
            # a BLANK would otherwise continue in the next segment, although bytes before it were lost.
            self._log.flush()
            segments.add(base)
        segments.ensure_allocated(base, stop)
        segments.file(base).write_many(position, data)
        self.received_to = base + stop
        try:
            return self._take_complete(base, stop)
        except ReplicaMismatch:
            self.received_to = self._log.written_to  # the record is requested from its start
            raise

    def _take_complete(self, base: int, stop: int) -> int:
        """Make complete records up to `stop` part of the log; return their number."""
        log, count = self._log, 0
        position = log.written_to - base
        view = log.segments.file(base).view()
        try:
            while stop - position >= BLANK_BYTES:
                size_bytes = self._complete_bytes(view, base, position, stop)
                if size_bytes == 0:
                    break
                position += size_bytes
                count += 1
            if position == len(view) and count:
                count -= 1  # the BLANK is not a message
            self._check(stop < len(view) or position == stop, base + position, "is a record past the segment's end")
        finally:
            view.release()
        log.written_to = base + position
        return count

    def _complete_bytes(self, view: memoryview, base: int, position: int, stop: int) -> int:
        """Return the size of the record or BLANK at `position`; 0 if it is not complete."""
        room_bytes, physical_offset = len(view) - position, base + position
        size_bytes: int
        size_bytes, magic = BLANK.struct.unpack_from(view, position)
        if magic == MAGIC_BLANK:
            self._check_blank(size_bytes, room_bytes, physical_offset)
            return size_bytes if position + size_bytes == stop else 0
        self._check_record(size_bytes, magic, room_bytes, physical_offset)
        if position + size_bytes > stop:
            return 0
        self._check_stated(RECORD_START.unpack_from(view, position)[2], physical_offset)
        return size_bytes

    def _check_blank(self, size_bytes: int, room_bytes: int, physical_offset: int) -> None:
        self._check(size_bytes == room_bytes, physical_offset, f"is a BLANK of {size_bytes} bytes")

    def _check_record(self, size_bytes: int, magic: int, room_bytes: int, physical_offset: int) -> None:
        is_valid = magic in _MAGICS and size_bytes >= RECORD_BYTES_MIN and fits(size_bytes, room_bytes)
        self._check(is_valid, physical_offset, f"has size {size_bytes} and magic 0x{magic:08X}, which no record has")

    def _check_stated(self, stated_offset: int, physical_offset: int) -> None:
        self._check(stated_offset == physical_offset, physical_offset, f"is a record of offset {stated_offset}")

    def _check(self, is_valid: bool, physical_offset: int, problem: str) -> None:
        if not is_valid:
            raise ReplicaMismatch(
                f"log of the master: offset {physical_offset} {problem}; nothing was overwritten. Compare both stores"
                " with `orbitlog doctor check`, or start the slave with an empty store"
            )
