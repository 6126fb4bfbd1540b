"""Time search: queue offsets by timestamp, by the rules of Java 5.x and 4.x.

5.x searches for the first message at or after a timestamp (`LOWER`), or the last at or before it (`UPPER`). 4.x picks
a file by its modification time and returns the nearest message in it; stores compatible with 4.x do the same.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QueueEntry
from orbitlog.formats.hosts import IPV4_HOST_BYTES, IPV6_HOST_BYTES
from orbitlog.formats.java import divide
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import RECORD_PREFIX
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.log.commitlog import CommitLog

_SYS_FLAG_AND_TIME = RECORD_PREFIX.partial("sys_flag", "store_timestamp_ms")
_IPV6_EXTRA = IPV6_HOST_BYTES - IPV4_HOST_BYTES


class UnitReader(Protocol):
    """A queue whose units can be read by queue offset."""

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Return the unit at a queue offset, or None."""


class Boundary(Enum):
    LOWER = "LOWER"
    UPPER = "UPPER"


class TimeSearch:
    """Searches the queues of one store."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    def store_time_ms(self, physical_offset: int) -> int:
        """Return the store timestamp of the record at a physical offset, or -1 if the log does not have it."""
        head = self._log.read(physical_offset, _SYS_FLAG_AND_TIME.size + _IPV6_EXTRA)
        if head is None:
            return -1
        sys_flag, timestamp_ms = _SYS_FLAG_AND_TIME.unpack_from(head)
        if sys_flag & flags.BORN_HOST_IPV6:  # a longer host comes before the timestamp
            _, timestamp_ms = _SYS_FLAG_AND_TIME.unpack_from(head, _IPV6_EXTRA)
        return int(timestamp_ms)

    def unit_time_ms(self, queue: UnitReader, queue_offset: int) -> int:
        entry = queue.entry(queue_offset)
        return -1 if entry is None else self.store_time_ms(entry.physical_offset)

    def search(self, queue: UnitReader, timestamp_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Search as 5.x does; past the last message, return the queue's end."""
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            stored_ms = self.unit_time_ms(queue, middle)
            is_before = stored_ms < timestamp_ms if boundary is Boundary.LOWER else stored_ms <= timestamp_ms
            low, high = (middle + 1, high) if is_before else (low, middle)
        if boundary is Boundary.LOWER:
            return low
        return max(low - 1, queue.min_offset)

    def search_4x(self, queue: ConsumeQueue, timestamp_ms: int) -> int:
        """Search as 4.x does, quirks included: the nearest message in the file chosen by modification time."""
        if queue.min_offset == queue.max_offset:
            return queue.max_offset  # all its messages have expired
        bases = queue.segments.bases
        base = next((base for base in bases if queue.segments.modified_ms(base) >= timestamp_ms), bases[-1])
        low = max(queue.min_offset * ENTRY_BYTES - base, 0)
        high = min(queue.max_offset * ENTRY_BYTES - base, queue.segments.file_bytes) - ENTRY_BYTES
        left = right = -1
        left_ms = right_ms = -1
        while high >= low:
            middle = (low + high) // (2 * ENTRY_BYTES) * ENTRY_BYTES
            entry = queue.entry((base + middle) // ENTRY_BYTES)
            if entry is None or entry.physical_offset < self._log.min_physical_offset:
                low, left = middle + ENTRY_BYTES, middle
                continue
            stored_ms = self.store_time_ms(entry.physical_offset)
            if stored_ms < 0:
                return 0
            if stored_ms == timestamp_ms:
                return (base + middle) // ENTRY_BYTES
            if stored_ms > timestamp_ms:
                high, right, right_ms = middle - ENTRY_BYTES, middle, stored_ms
            else:
                low, left, left_ms = middle + ENTRY_BYTES, middle, stored_ms
        if left_ms == -1:
            position = right
        elif right_ms == -1:
            position = left
        else:
            position = left if timestamp_ms - left_ms <= right_ms - timestamp_ms else right
        return divide(base + position, ENTRY_BYTES)
