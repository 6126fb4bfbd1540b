"""ConsumeQueue: the physical offsets of one queue's messages, in units of 20 bytes.

Unit n starts at byte n * 20 of the queue's own log. A unit is written at the position of its queue offset: deriving a
range of the log twice changes nothing, and a gap in the log becomes fillers instead of shifting all later units.
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


# Queues created by other brokers may start at any offset; damaged offsets are usually far larger.
_FIRST_OFFSET_SLACK = 1_000_000


def _check_count(count: int, count_max: int) -> None:
    """Raise `BadField` for a gap of more messages than the log had bytes for: filling it would never end."""
    if not 0 <= count <= count_max:
        raise BadField(f"gap of {count} messages is larger than the log", field="queue offset")


class ConsumeQueue:
    """The units of one queue, from `min_offset` up to but not including `max_offset`."""

    def __init__(self, topic: str, queue_id: int, segments: Segments) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.segments = segments
        self.min_offset = segments.start // ENTRY_BYTES
        self.max_offset = self.min_offset
        self.flushed_offset = self.min_offset
        self._is_recovering = False

    def put_next(self, queue_offset: int, unit: bytes) -> bool:
        """Fast path: put the next unit if a copy is enough; return False if it needs `put`."""
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
        """Reserve room in the last file for the next units; return False if they need `put`."""
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
        """Put units for which `reserve` has reserved room."""
        segments = self.segments
        assert segments.tail is not None
        segments.tail.write(self.max_offset * ENTRY_BYTES - segments.tail_base, units)
        self.max_offset += len(units) // ENTRY_BYTES

    def put(self, queue_offset: int, entry: QueueEntry) -> bool:
        """Put a unit; return False if the queue has one at that offset. Raise `BadField` for an impossible offset."""
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
        """Overwrite an invalid unit or a filler."""
        byte = queue_offset * ENTRY_BYTES
        base = self.segments.base_of(byte)
        self.segments.ensure_allocated(base, byte - base + ENTRY_BYTES)
        self.segments.file(base).write(byte - base, encode_entry(entry))
        self.flushed_offset = min(self.flushed_offset, queue_offset)

    def _begin(self, queue_offset: int) -> None:
        """Write fillers (pre-blank units) before the first unit of a queue that starts inside a file, as Java does."""
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
        """Put the next units; the queue must have files already."""
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
        """Advance to a unit that another process has put; return False if the file does not contain it."""
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
        """Return the unit at a queue offset; None for an offset without a unit or with a filler."""
        found = decode_entry(self.read(queue_offset, 1) or _NO_UNIT)
        return None if found is None or found.is_pre_blank else found

    def read(self, queue_offset: int, count: int) -> bytes:
        """Copy at most `count` units of one file; fewer at the end of the file or the queue."""
        count = min(count, self.max_offset - queue_offset)
        byte = queue_offset * ENTRY_BYTES
        base = self.segments.base_of(byte)
        if queue_offset < self.min_offset or count <= 0 or not self.segments.has(base):
            return b""
        position = byte - base
        return self.segments.file(base).read(position, min(count * ENTRY_BYTES, self.segments.file_bytes - position))

    def stored_units(self, queue_offset: int, count: int) -> bytes:
        """Copy units from the files, also outside the bounds of the queue; stops at a missing file."""
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
        """Physical offset of the last message, even if the log no longer has it; None if there never was one."""
        if self.segments.is_empty or self.max_offset * ENTRY_BYTES <= self.segments.start:
            return None
        physical_offset, size_bytes, _ = _UNPACK(self._raw(self.max_offset - 1))
        return None if size_bytes == INT_MAX else int(physical_offset)

    @property
    def has_unflushed(self) -> bool:
        return self.max_offset > self.flushed_offset

    def sync(self) -> None:
        """Sync every unit; may be called in any thread, one call at a time."""
        target = self.max_offset
        if target > self.flushed_offset:
            self.segments.sync(self.flushed_offset * ENTRY_BYTES, target * ENTRY_BYTES)
            self.flushed_offset = target

    def begin_recovery(self, trusted_to: int) -> None:
        """Continue after the units of records before `trusted_to`, which are all durable.

        They are a prefix whose physical offsets rise. After it a crash may leave anything: units, zeros, torn units.
        Nothing is removed yet: units derived from the log overwrite the same positions.
        """
        end = self._end_of_trusted(trusted_to)
        if not self._ends_well(end):
            end = self._end_by_walking(trusted_to)
        self.max_offset = self.flushed_offset = end
        self.min_offset = min(self.segments.start // ENTRY_BYTES, end)
        self._is_recovering = True

    def last_entries(self, count: int, before: int = LONG_MAX) -> list[QueueEntry]:
        """Return the last units of records before a physical offset, oldest first, before recovery keeps some."""
        first, end = self.segments.start // ENTRY_BYTES, self._end_of_trusted(before)
        offsets = (offset for offset in range(max(first, end - count), end) if self._is_trusted(offset, before))
        return [entry for offset in offsets if (entry := decode_entry(self._raw(offset))) is not None]

    def restart_at(self, queue_offset: int) -> None:
        """Recover from that queue offset on: the log has its record, so no later unit belongs to an expired record."""
        if self.segments.has(self.segments.base_of(queue_offset * ENTRY_BYTES)):
            self.max_offset = self.flushed_offset = queue_offset
        else:
            self._begin(queue_offset)

    @property
    def first_stored_offset(self) -> int:
        """The queue offset at which the first file starts."""
        return self.segments.start // ENTRY_BYTES

    def has_expired_unit(self, queue_offset: int, min_physical_offset: int) -> bool:
        """Return whether a unit is a filler or belongs to an expired record."""
        return self._is_trusted(queue_offset, max(min_physical_offset, 1))

    def end_recovery(self) -> None:
        """Remove everything after the last unit whose record is in the log."""
        self._is_recovering = False
        self.segments.cut(self.max_offset * ENTRY_BYTES)

    def _end_of_trusted(self, trusted_to: int) -> int:
        """Return the queue offset after the last trusted unit, by binary search."""
        # Only where data was written: reading a hole of a sparse file would load pages of zeros.
        low, high = self.segments.start // ENTRY_BYTES, -(-self.segments.data_end() // ENTRY_BYTES)
        while low < high:
            middle = (low + high) // 2
            if self._is_trusted(middle, trusted_to):
                low = middle + 1
            else:
                high = middle
        return low

    def _ends_well(self, end: int) -> bool:
        """Return whether the last two units are in order: one torn unit after the prefix may look valid, two do not."""
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
        """Set the queue's start to its first unit whose record is still in the log."""
        entry = self.entry(self.min_offset)
        if entry is not None and entry.physical_offset >= min_physical_offset:
            return
        # Search for the first unit that is in the log, or that is a filler followed by a unit in the log.
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
        """Return the first queue offset before `stop` whose unit is not a filler, or `stop`."""
        while queue_offset < stop and _UNPACK(self._raw(queue_offset))[1] == INT_MAX:
            queue_offset += 1
        return queue_offset

    def drop_expired(self) -> int:
        """Remove files whose units are all before the queue's start; return their number.

        The file with the last unit before the start is kept as well. That unit is durable, later ones may not be:
        after a crash it shows how many messages the queue had.
        """
        last_expired = max(self.min_offset - 1, 0) * ENTRY_BYTES
        return self.segments.drop_before(self.segments.base_of(last_expired))
