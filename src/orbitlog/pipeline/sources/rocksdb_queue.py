"""A ConsumeQueue in RocksDB: the bounds and units that planning asks for, as `ConsumeQueue` gives them for files."""

from __future__ import annotations

from collections.abc import Iterator

from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QueueEntry, decode_entry
from orbitlog.storefiles.rocksdb.databases import Database
from orbitlog.storefiles.rocksdb.rocksdb_queues import LastUnit, units_of_queue


class RocksdbQueue:
    """One queue of an open database; `max_offset` may be lowered, as for units whose records are not readable."""

    def __init__(self, database: Database, topic: str, queue_id: int, last: LastUnit, log_start: int) -> None:
        self._database = database
        self._topic = topic
        self._queue_id = queue_id
        self.max_offset = last.queue_offset + 1
        self.min_offset = self._first_from(log_start)

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Return the unit at a queue offset, or None."""
        raw = self.read(queue_offset, 1)
        return decode_entry(raw) if raw else None

    def read(self, queue_offset: int, count: int) -> bytes:
        """Copy at most `count` units; fewer at the end of the queue or before a unit that is missing."""
        stop = min(queue_offset + count, self.max_offset)
        if queue_offset < self.min_offset or queue_offset >= stop:
            return b""
        return b"".join(adjacent_units(self._database, self._topic, self._queue_id, queue_offset, stop))

    def _first_from(self, log_start: int) -> int:
        """Return the queue offset of the first message that the log still has: Java drops expired units later."""
        for unit in units_of_queue(self._database, self._topic, self._queue_id):
            entry = decode_entry(unit.raw)
            if entry is not None and entry.physical_offset >= log_start:
                return min(unit.queue_offset, self.max_offset)
        return self.max_offset


def adjacent_units(database: Database, topic: str, queue_id: int, start: int, stop: int) -> Iterator[bytes]:
    """Yield the 20 bytes of each unit from `start` on, up to `stop` or before the first that is missing."""
    for expected, unit in enumerate(units_of_queue(database, topic, queue_id, start), start):
        if unit.queue_offset != expected or expected >= stop:
            return
        assert len(unit.raw) == ENTRY_BYTES
        yield unit.raw
