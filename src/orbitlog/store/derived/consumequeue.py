"""The ConsumeQueue: where the messages of one queue lie in the log, one unit of 20 bytes each.

Unit n lies at byte n * 20 of the queue's own log. A unit is put where its queue offset says: deriving a stretch of the
log twice changes nothing, and a hole in the log becomes units that are none instead of shifting all that follow.
"""

from __future__ import annotations

from orbitlog.errors import BadField
from orbitlog.formats.derived.queue_entry import (
    ENTRY_BYTES,
    PRE_BLANK_RAW,
    QUEUE_ENTRY,
    QueueEntry,
    decode_entry,
    encode_entry,
)
from orbitlog.formats.java import INT_MAX, LONG_MAX
from orbitlog.formats.records.message import RECORD_BYTES_MIN
from orbitlog.store.log.segments import Segments

_UNPACK = QUEUE_ENTRY.struct.unpack
_NO_UNIT = bytes(ENTRY_BYTES)


# Queues that others made may begin anywhere; damaged numbers are far larger, mostly.
_FIRST_OFFSET_SLACK = 1_000_000


def _check_count(count: int, count_max: int) -> None:
    """Refuse a hole for more messages than there were bytes for: filling it would take for ever."""
    if not 0 <= count <= count_max:
        raise BadField(f"{count} messages cannot have been before it", field="queue offset")


class ConsumeQueue:
    """One queue's units: from `min_offset` to before `max_offset`."""

    def __init__(self, topic: str, queue_id: int, segments: Segments) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.segments = segments
        self.min_offset = segments.start // ENTRY_BYTES
        self.max_offset = self.min_offset
        self.flushed_offset = self.min_offset
        self._is_recovering = False

    def put_next(self, queue_offset: int, unit: bytes) -> bool:
        """Put the unit that follows the last one where that is nothing but a copy; False where it is for `put`."""
        segments = self.segments
        position = queue_offset * ENTRY_BYTES - segments.tail_base
        if (
            queue_offset != self.max_offset
            or position < 0
            or position + ENTRY_BYTES > segments.tail_allocated_to
            or segments.tail is None
            or self._is_recovering
        ):
            return False
        segments.tail.write(position, unit)
        self.max_offset = queue_offset + 1
        return True

    def reserve(self, queue_offset: int, count: int) -> bool:
        """Find room in the last file for units that follow the last one; False where they are for `put`."""
        segments = self.segments
        position = queue_offset * ENTRY_BYTES - segments.tail_base
        if queue_offset != self.max_offset or position < 0 or segments.tail is None or self._is_recovering:
            return False
        stop = position + count * ENTRY_BYTES
        if stop > segments.file_bytes:
            return False
        if stop > segments.tail_allocated_to:
            base = segments.tail_base
            segments.ensure_allocated(base, stop)
            segments.remember_tail(base)
        return True

    def put_reserved(self, units: bytes) -> None:
        """Put units for which there is room."""
        segments = self.segments
        assert segments.tail is not None
        segments.tail.write(self.max_offset * ENTRY_BYTES - segments.tail_base, units)
        self.max_offset += len(units) // ENTRY_BYTES

    def put(self, queue_offset: int, entry: QueueEntry) -> bool:
        """Put a unit; False where the queue has one there already. Refuses an offset that no queue can have reached."""
        if self.segments.is_empty:
            _check_count(queue_offset, entry.physical_offset // RECORD_BYTES_MIN + _FIRST_OFFSET_SLACK)
            self._begin(queue_offset)
        if queue_offset < self.max_offset:
            return False
        if queue_offset > self.max_offset > self.segments.start // ENTRY_BYTES:
            last_physical_offset, _, _ = _UNPACK(self._raw(self.max_offset - 1))
            bytes_between = entry.physical_offset - last_physical_offset
            _check_count(queue_offset - self.max_offset, bytes_between // RECORD_BYTES_MIN)
        while self.max_offset < queue_offset:
            self._write(PRE_BLANK_RAW)
        self._write(encode_entry(entry))
        return True

    def replace(self, queue_offset: int, entry: QueueEntry) -> None:
        """Put a unit where a wrong one is, or one that only fills room."""
        byte = queue_offset * ENTRY_BYTES
        base = self.segments.base_of(byte)
        self.segments.ensure_allocated(base, byte - base + ENTRY_BYTES)
        self.segments.file(base).write(byte - base, encode_entry(entry))
        self.flushed_offset = min(self.flushed_offset, queue_offset)

    def _begin(self, queue_offset: int) -> None:
        """A queue that starts inside a file is filled up with units that are none, as Java does."""
        first_of_file = self.segments.base_of(queue_offset * ENTRY_BYTES) // ENTRY_BYTES
        self.min_offset = queue_offset
        self.max_offset = self.flushed_offset = first_of_file

    def _write(self, unit: bytes) -> None:
        byte = self.max_offset * ENTRY_BYTES
        base = self.segments.base_of(byte)
        position = byte - base
        if not self.segments.has(base):
            self.segments.add(base)
        file = self.segments.file(base)
        if not self._is_recovering or file.read(position, ENTRY_BYTES) != unit:
            self.segments.ensure_allocated(base, position + ENTRY_BYTES)
            file.write(position, unit)
            self.segments.remember_tail(base)
        self.max_offset += 1

    def put_run(self, units: bytes) -> None:
        """Put units that follow the last one; the queue must have files already."""
        done = 0
        while done < len(units):
            byte = self.max_offset * ENTRY_BYTES
            base = self.segments.base_of(byte)
            position = byte - base
            if not self.segments.has(base):
                self.segments.add(base)
            part = units[done : done + self.segments.file_bytes - position]
            file = self.segments.file(base)
            if not self._is_recovering or file.read(position, len(part)) != part:
                self.segments.ensure_allocated(base, position + len(part))
                file.write(position, part)
            self.max_offset += len(part) // ENTRY_BYTES
            done += len(part)

    def follow(self, queue_offset: int, physical_offset: int) -> bool:
        """Take in a unit that another process put, with all before it; False where the file does not have it."""
        if queue_offset < self.max_offset:
            return True
        file_bytes, last_base = self.segments.file_bytes, self.segments.base_of(queue_offset * ENTRY_BYTES)
        is_first = self.segments.is_empty
        base = last_base if is_first else self.segments.base_of(self.max_offset * ENTRY_BYTES)
        while base <= last_base:
            if not self.segments.note(base):
                return False
            base += file_bytes
        if _UNPACK(self._raw(queue_offset))[0] != physical_offset:
            return False
        if is_first:
            self._begin(queue_offset)
        self.max_offset = queue_offset + 1
        return True

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Return one unit, or None where there is none (or one that only fills room)."""
        found = decode_entry(self.read(queue_offset, 1) or _NO_UNIT)
        return None if found is None or found.is_pre_blank else found

    def read(self, queue_offset: int, count: int) -> bytes:
        """Copy units that lie in one file: at most `count`, fewer where file or queue end."""
        count = min(count, self.max_offset - queue_offset)
        byte = queue_offset * ENTRY_BYTES
        base = self.segments.base_of(byte)
        if queue_offset < self.min_offset or count <= 0 or not self.segments.has(base):
            return b""
        position = byte - base
        return self.segments.file(base).read(position, min(count * ENTRY_BYTES, self.segments.file_bytes - position))

    def stored_units(self, queue_offset: int, count: int) -> bytes:
        """Copy units from the files, whatever the bounds of the queue; ends early at a file that is missing."""
        parts, byte = [], queue_offset * ENTRY_BYTES
        end = byte + count * ENTRY_BYTES
        while 0 <= byte < end:
            base = self.segments.base_of(byte)
            if not self.segments.has(base):
                break
            part_bytes = min(end - byte, base + self.segments.file_bytes - byte)
            parts.append(self.segments.file(base).read(byte - base, part_bytes))
            byte += part_bytes
        return b"".join(parts)

    @property
    def last_physical_offset(self) -> int | None:
        """Where the last message lies or lay, even if the log no longer has it; None where none ever came."""
        if self.segments.is_empty or self.max_offset * ENTRY_BYTES <= self.segments.start:
            return None
        physical_offset, size_bytes, _ = _UNPACK(self._raw(self.max_offset - 1))
        return None if size_bytes == INT_MAX else int(physical_offset)

    @property
    def has_unflushed(self) -> bool:
        return self.max_offset > self.flushed_offset

    def sync(self) -> None:
        """Put every unit on the disk; may be called in any thread, one at a time."""
        target = self.max_offset
        if target > self.flushed_offset:
            self.segments.sync(self.flushed_offset * ENTRY_BYTES, target * ENTRY_BYTES)
            self.flushed_offset = target

    def begin_recovery(self, trusted_to: int) -> None:
        """Go on after the units of records before `trusted_to`, which are all on the disk.

        They are a prefix whose physical offsets rise. Behind it a crash may leave anything: units, zeros, torn ones.
        Nothing of that is removed yet: what is put again lands in the same places.
        """
        end = self._end_of_trusted(trusted_to)
        if not self._ends_well(end):
            end = self._end_by_walking(trusted_to)
        self.max_offset = self.flushed_offset = end
        self.min_offset = min(self.segments.start // ENTRY_BYTES, end)
        self._is_recovering = True

    def last_entries(self, count: int) -> list[QueueEntry]:
        """Return the last units that were written, before recovery decides which of them to keep; oldest first."""
        first, end = self.segments.start // ENTRY_BYTES, self._end_of_trusted(LONG_MAX)
        entries = (decode_entry(self._raw(queue_offset)) for queue_offset in range(max(first, end - count), end))
        return [entry for entry in entries if entry is not None]

    def restart_at(self, queue_offset: int) -> None:
        """Recover from that queue offset on: the log has its record, so units after it are of no expired one."""
        if self.segments.has(self.segments.base_of(queue_offset * ENTRY_BYTES)):
            self.max_offset = self.flushed_offset = queue_offset
        else:
            self._begin(queue_offset)

    @property
    def first_stored_offset(self) -> int:
        """The queue offset at which the first file starts."""
        return self.segments.start // ENTRY_BYTES

    def has_expired_unit(self, queue_offset: int, min_physical_offset: int) -> bool:
        """Return whether a unit is a filler or one of a record that expired."""
        return self._is_trusted(queue_offset, max(min_physical_offset, 1))

    def end_recovery(self) -> None:
        """Remove what lies behind the last unit that the log has."""
        self._is_recovering = False
        self.segments.cut(self.max_offset * ENTRY_BYTES)

    def _end_of_trusted(self, trusted_to: int) -> int:
        """Return the queue offset after the last trusted unit, by halving."""
        # No further than something was written: each look at a hole would put pages of zeros into memory.
        low, high = self.segments.start // ENTRY_BYTES, -(-self.segments.data_end() // ENTRY_BYTES)
        while low < high:
            middle = (low + high) // 2
            if self._is_trusted(middle, trusted_to):
                low = middle + 1
            else:
                high = middle
        return low

    def _ends_well(self, end: int) -> bool:
        """Tell whether the last two units are in order: a torn one behind the prefix can look trusted, but not both."""
        first = self.segments.start // ENTRY_BYTES
        if end - first < 2:
            return end == first or self._is_trusted(first, LONG_MAX)
        before, last = _UNPACK(self._raw(end - 2)), _UNPACK(self._raw(end - 1))
        is_filler = before[1] == INT_MAX
        return bool(before[1] > 0 and (is_filler or last[1] == INT_MAX or before[0] < last[0]))

    def _end_by_walking(self, trusted_to: int) -> int:
        queue_offset, previous = self.segments.start // ENTRY_BYTES, -1
        while self._is_trusted(queue_offset, trusted_to):
            physical_offset, size_bytes, _ = _UNPACK(self._raw(queue_offset))
            if size_bytes != INT_MAX and physical_offset <= previous:
                break
            previous = max(previous, physical_offset if size_bytes != INT_MAX else previous)
            queue_offset += 1
        return queue_offset

    def _is_trusted(self, queue_offset: int, trusted_to: int) -> bool:
        physical_offset, size_bytes, _ = _UNPACK(self._raw(queue_offset))
        return bool(0 <= physical_offset < trusted_to and size_bytes > 0)

    def _raw(self, queue_offset: int) -> bytes:
        byte = queue_offset * ENTRY_BYTES
        base = self.segments.base_of(byte)
        return self.segments.file(base).read(byte - base, ENTRY_BYTES) if self.segments.has(base) else _NO_UNIT

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Let the queue start at its first unit whose record is still in the log."""
        entry = self.entry(self.min_offset)
        if entry is not None and entry.physical_offset >= min_physical_offset:
            return
        # Looking for the first unit such that the next real one, itself or behind units that are none, is in the log.
        low, high = self.segments.start // ENTRY_BYTES, self.max_offset
        while low < high:
            middle = (low + high) // 2
            real = self._real_unit_from(middle, high)
            if real == high or _UNPACK(self._raw(real))[0] >= min_physical_offset:
                high = middle
            else:
                low = real + 1
        self.min_offset = self._real_unit_from(low, self.max_offset)

    def _real_unit_from(self, queue_offset: int, stop: int) -> int:
        """Return the first queue offset before `stop` that has a unit which is one, or `stop`."""
        while queue_offset < stop and _UNPACK(self._raw(queue_offset))[1] == INT_MAX:
            queue_offset += 1
        return queue_offset

    def drop_expired(self) -> int:
        """Remove files whose units are all before the queue's start; returns how many.

        The file with the last unit before the start stays, too. That unit is on the disk, those behind it may not be:
        after a crash it is what tells how many messages the queue had.
        """
        last_expired = max(self.min_offset - 1, 0) * ENTRY_BYTES
        return self.segments.drop_before(self.segments.base_of(last_expired))
