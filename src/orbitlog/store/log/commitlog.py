"""CommitLog: all messages of a broker, one after the other, in segments.

Appending takes two steps, because a record contains its own physical offset: `reserve` finds room, in the next segment
if the current one is full; `write` copies records there and makes them part of the log. Two marks only grow:
`flushed_to` <= `written_to`; the store decides which of them readers follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from threading import Lock

from orbitlog.errors import LimitExceeded
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.records.message import RECORD_BYTES_MIN, RECORD_PREFIX, Message, decode_message
from orbitlog.formats.records.message_scan import BLANK_BYTES, encode_blank, fits
from orbitlog.store.log.segments import Segments

_SIZE = RECORD_PREFIX.partial("total_size")
# From this size on pwrite is faster than the map: 80 KB in 35 us instead of 80. The map takes a page fault for every
# page that is clean since the last sync, and the next sync must walk its page tables.
_MANY_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Span:
    """A range of the log within one segment; positions count from the start of the segment."""

    base: int
    start: int
    stop: int


class CommitLog:
    """The log of one store; one writer."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.written_to = segments.start
        self.flushed_to = segments.start
        self.own_from = LONG_MAX  # start of the records that this process wrote; LONG_MAX if it wrote none
        self._blank_bytes = 0  # of BLANK records written since the log was opened
        self._fetched_to = 0
        self._flushing = Lock()

    @property
    def min_physical_offset(self) -> int:
        return self.segments.start

    def recover_to(self, end: int, *, flushed_to: int) -> None:
        """Continue writing at `end`; bytes after it were never part of the log and are overwritten with zeros.

        A complete record left there would look like a new one after the next crash. Bytes before `end` are readable,
        but known to be durable only up to `flushed_to`: the process may have been killed without a power cut.
        """
        self.segments.cut(end, keep_first=True)
        self.written_to, self.flushed_to = end, min(flushed_to, end)
        self.own_from = end

    def cut_to(self, end: int) -> None:
        """End the log at `end`, durably: a slave gives up bytes that its master does not have."""
        with self._flushing:  # a flush in another thread must not sync a segment that is removed here
            self.segments.cut(end, keep_first=True)
            self.written_to, self.flushed_to = end, min(self.flushed_to, end)

    def start_at(self, physical_offset: int) -> None:
        """Start an empty log at a segment other than the first: a slave whose master has deleted earlier ones."""
        assert self.segments.is_empty
        self.written_to = self.flushed_to = self.own_from = physical_offset

    @property
    def appended_bytes(self) -> int:
        """Bytes of records appended since `recover_to`."""
        return max(self.written_to - self.own_from, 0) - self._blank_bytes

    def reserve(self, size_bytes: int) -> None:
        """Find room for `size_bytes` in one segment; end the current one if they do not fit.

        Their physical offset is `written_to` afterwards.
        """
        if size_bytes > self.room_bytes:
            self._reserve_slowly(size_bytes)

    @property
    def room_bytes(self) -> int:
        """Bytes that can be written at once; 0 if a segment must be created or ended first."""
        segments = self.segments
        if self.written_to < segments.tail_base:
            return 0
        return segments.tail_base + segments.tail_allocated_to - self.written_to - BLANK_BYTES

    def _reserve_slowly(self, size_bytes: int) -> None:
        """Slow path of `reserve`: create, allocate or end a segment."""
        segment_bytes = self.segments.file_bytes
        if not fits(size_bytes, segment_bytes):
            raise LimitExceeded(field="record size", limit=segment_bytes - BLANK_BYTES, got=size_bytes)
        base = self.segments.base_of(self.written_to)
        position = self.written_to - base
        if not self.segments.has(base):
            self.segments.add(base)
        if not fits(size_bytes, segment_bytes - position):
            base, position = self._roll(base, position), 0
        # The bytes of a following BLANK are allocated as well: ending a segment then cannot fail on a full disk.
        self.segments.ensure_allocated(base, min(position + size_bytes + BLANK_BYTES, segment_bytes))
        self.segments.remember_tail(base)

    def write(self, records: bytes) -> None:
        """Copy records to the reserved room, and make them part of the log."""
        segments, written_to = self.segments, self.written_to
        tail = segments.tail
        assert tail is not None
        size_bytes = len(records)
        # Copied once and complete: a page written back meanwhile contains the record's bytes or zeros, nothing else.
        if size_bytes < _MANY_BYTES:
            tail.write(written_to - segments.tail_base, records)
        else:
            tail.write_many(written_to - segments.tail_base, records)
        self.written_to = written_to + size_bytes

    def _roll(self, base: int, position: int) -> int:
        """End the segment with a BLANK and start the next, which is created first: the disk may be full."""
        following = base + self.segments.file_bytes
        if not self.segments.has(following):
            self.segments.add(following)
        self.segments.ensure_allocated(base, position + BLANK_BYTES)
        self.segments.file(base).write(position, encode_blank(self.segments.file_bytes - position))
        self.written_to = following
        self._blank_bytes += self.segments.file_bytes - position
        return following

    def prepare_next(self) -> bool:
        """Create the next segment if the current one is more than half full; return whether one was created."""
        base = self.segments.base_of(self.written_to)
        following = base + self.segments.file_bytes
        if self.written_to - base <= self.segments.file_bytes // 2 or self.segments.has(following):
            return False
        self.segments.add(following)
        return True

    def fetch_ahead(self, ahead_bytes: int) -> Callable[[], None] | None:
        """Return a function, for another thread, that loads the pages written next; None if they are loaded.

        The first write to a page makes the kernel allocate it and many after it: a pause of milliseconds for every
        waiting client.
        """
        segments = self.segments
        if segments.tail is None or self.written_to < segments.tail_base:
            return None
        segment_end = segments.tail_base + segments.file_bytes
        start, stop = max(self._fetched_to, self.written_to), min(self.written_to + ahead_bytes, segment_end)
        if start >= stop or (stop - start < ahead_bytes // 2 and stop < segment_end):
            return None
        self._fetched_to = stop
        return partial(segments.tail.fetch, start - segments.tail_base, stop - segments.tail_base)

    def flush(self) -> int:
        """Sync the log up to `written_to`, and return that offset; may be called in any thread.

        The offset is read before the sync: bytes written during the sync may not be durable after it.
        """
        with self._flushing:  # of two concurrent flushes the slower one would set the mark back
            target = self.written_to
            if target > self.flushed_to:
                self.segments.sync(self.flushed_to, target)
                self.flushed_to = target
        return target

    def read(self, physical_offset: int, size_bytes: int) -> bytes | None:
        """Copy a range of one segment; return None if it is not in the log."""
        base = self.segments.base_of(physical_offset)
        position = physical_offset - base
        if physical_offset < 0 or not self.segments.has(base) or position + size_bytes > self.segments.file_bytes:
            return None
        if physical_offset + size_bytes > self.written_to:
            return None
        return self.segments.file(base).read(position, size_bytes)

    def read_record(self, physical_offset: int) -> bytes | None:
        """Copy a record by the size that it states; return None if that is invalid."""
        base = self.segments.base_of(physical_offset)
        position = physical_offset - base
        room_bytes = min(self.written_to - physical_offset, self.segments.file_bytes - position)
        if physical_offset < 0 or room_bytes < RECORD_BYTES_MIN or not self.segments.has(base):
            return None
        file = self.segments.file(base)
        (size_bytes,) = _SIZE.unpack(file.read(position, _SIZE.size))
        return file.read(position, size_bytes) if RECORD_BYTES_MIN <= size_bytes <= room_bytes else None

    def read_message(self, physical_offset: int, size_bytes: int) -> Message | None:
        """Read one record; raise `FormatError` if it is damaged."""
        record = self.read(physical_offset, size_bytes)
        return None if record is None else decode_message(record, physical_offset=physical_offset)

    def spans(self, start: int, stop: int) -> Iterator[Span]:
        """Yield the spans of a range, segment by segment."""
        for base in self.segments.bases:
            first, last = max(start, base), min(stop, base + self.segments.file_bytes)
            if first < last:
                yield Span(base, first - base, last - base)
