"""The CommitLog: every message of the broker, one after the other, in segments.

Appending is two steps, so that the caller can fill in what only the place decides: `reserve` finds room (and rolls
to the next segment where there is none), `write` copies records there and makes them part of the log. Two
marks only ever grow: `flushed_to` <= `written_to`; which of them readers may follow is the store's decision.
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
# From here on it is worth a call of the system: 80 KB in 35 us instead of 80, which is a fault for every page that was
# not written to since the last sync, and the sync that follows finds no maps to go through.
_MANY_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the log that lies in one segment; positions count within it."""

    base: int
    start: int
    stop: int


class CommitLog:
    """The log of one store; one writer."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.written_to = segments.start
        self.flushed_to = segments.start
        self.own_from = LONG_MAX  # where the records begin that this process wrote itself; LONG_MAX where it wrote none
        self._blank_bytes = 0  # at the ends of segments that were ended since the log was opened
        self._fetched_to = 0
        self._flushing = Lock()

    @property
    def min_physical_offset(self) -> int:
        return self.segments.start

    def recover_to(self, end: int, *, flushed_to: int) -> None:
        """Go on writing at `end`: what lies behind it was never part of the log, and is wiped.

        A whole record left there would be taken for a new one after the next crash. What lies before it can be read,
        but is known to be on the disk only up to `flushed_to`: perhaps the process was killed, and not the machine.
        """
        self.segments.cut(end, keep_first=True)
        self.written_to, self.flushed_to = end, min(flushed_to, end)
        self.own_from = end

    @property
    def appended_bytes(self) -> int:
        """Bytes of records appended since `recover_to`."""
        return max(self.written_to - self.own_from, 0) - self._blank_bytes

    def reserve(self, size_bytes: int) -> None:
        """Find room for that many bytes in one segment, ending the current one if they do not fit.

        They have the physical offset `written_to` then.
        """
        if size_bytes > self.room_bytes:
            self._reserve_anew(size_bytes)

    @property
    def room_bytes(self) -> int:
        """Bytes that can be written at once; none where a segment must be made, grown or ended first."""
        segments = self.segments
        if self.written_to < segments.tail_base:
            return 0
        return segments.tail_base + segments.tail_allocated_to - self.written_to - BLANK_BYTES

    def _reserve_anew(self, size_bytes: int) -> None:
        """Find room where the last place does not tell: a segment is made, grown or ended."""
        segment_bytes = self.segments.file_bytes
        if not fits(size_bytes, segment_bytes):
            raise LimitExceeded(field="record size", limit=segment_bytes - BLANK_BYTES, got=size_bytes)
        base = self.segments.base_of(self.written_to)
        position = self.written_to - base
        if not self.segments.has(base):
            self.segments.add(base)
        if not fits(size_bytes, segment_bytes - position):
            base, position = self._roll(base, position), 0
        # The BLANK that may follow must find its bytes allocated, too: ending a segment cannot fail then.
        self.segments.ensure_allocated(base, min(position + size_bytes + BLANK_BYTES, segment_bytes))
        self.segments.remember_tail(base)

    def write(self, records: bytes) -> None:
        """Copy one record or several to where there is room for them, and make them part of the log."""
        segments, written_to = self.segments, self.written_to
        tail = segments.tail
        assert tail is not None
        size_bytes = len(records)
        # Whole, and once: a page that reaches the disk meanwhile has the record's bytes or zeros, nothing else.
        if size_bytes < _MANY_BYTES:
            tail.write(written_to - segments.tail_base, records)
        else:
            tail.write_many(written_to - segments.tail_base, records)
        self.written_to = written_to + size_bytes

    def _roll(self, base: int, position: int) -> int:
        """End the segment with a BLANK and go to the next, which is made first: it may find the disk full."""
        following = base + self.segments.file_bytes
        if not self.segments.has(following):
            self.segments.add(following)
        self.segments.ensure_allocated(base, position + BLANK_BYTES)
        self.segments.file(base).write(position, encode_blank(self.segments.file_bytes - position))
        self.written_to = following
        self._blank_bytes += self.segments.file_bytes - position
        return following

    def prepare_next(self) -> bool:
        """Make the next segment ahead of its need, if the current one is more than half full; True if one was made."""
        base = self.segments.base_of(self.written_to)
        following = base + self.segments.file_bytes
        if self.written_to - base <= self.segments.file_bytes // 2 or self.segments.has(following):
            return False
        self.segments.add(following)
        return True

    def fetch_ahead(self, ahead_bytes: int) -> Callable[[], None] | None:
        """Return what has the bytes in memory that are written to next, for another thread to call; None if they are.

        A page that is written to for the first time is made by the system, with many that follow it: a pause of
        milliseconds for all who wait for an answer.
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
        target = self.written_to
        with self._flushing:  # of two concurrent flushes the slower one would set the mark back
            if target > self.flushed_to:
                self.segments.sync(self.flushed_to, target)
                self.flushed_to = target
        return target

    def read(self, physical_offset: int, size_bytes: int) -> bytes | None:
        """Copy a range that lies in one segment; None where it is not, or no longer, there."""
        base = self.segments.base_of(physical_offset)
        position = physical_offset - base
        if physical_offset < 0 or not self.segments.has(base) or position + size_bytes > self.segments.file_bytes:
            return None
        if physical_offset + size_bytes > self.written_to:
            return None
        return self.segments.file(base).read(position, size_bytes)

    def read_record(self, physical_offset: int) -> bytes | None:
        """Copy a record whose size is not known, by the size that it states; None where none can be."""
        base = self.segments.base_of(physical_offset)
        position = physical_offset - base
        room_bytes = min(self.written_to - physical_offset, self.segments.file_bytes - position)
        if physical_offset < 0 or room_bytes < RECORD_BYTES_MIN or not self.segments.has(base):
            return None
        file = self.segments.file(base)
        (size_bytes,) = _SIZE.unpack(file.read(position, _SIZE.size))
        return file.read(position, size_bytes) if RECORD_BYTES_MIN <= size_bytes <= room_bytes else None

    def read_message(self, physical_offset: int, size_bytes: int) -> Message | None:
        """Read one record; raises a `FormatError` where its bytes are damaged."""
        record = self.read(physical_offset, size_bytes)
        return None if record is None else decode_message(record, physical_offset=physical_offset)

    def spans(self, start: int, stop: int) -> Iterator[Span]:
        """Yield the parts of a range, segment by segment."""
        for base in self.segments.bases:
            first, last = max(start, base), min(stop, base + self.segments.file_bytes)
            if first < last:
                yield Span(base, first - base, last - base)
