"""Store reads: the queries of a store, open for writing or read-only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING

from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_id import parse_offset_message_id
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.store.derived.queue_set import QueueSet
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.reads.key_query import FoundByKey, KeyQuery, query_by_key, query_steps, read_record_at
from orbitlog.store.reads.queue_reader import GetResult, JoinedReads, ReadRequest, read_queue
from orbitlog.store.reads.time_search import Boundary, TimeSearch
from orbitlog.storefiles.store_config import StoreConfig

if TYPE_CHECKING:
    from orbitlog.store.reads.time_query import FoundByTime, TimeQuery


class StoreReads(ABC):
    """Reads by queue, time, id and key, up to `confirmed_to`."""

    _config: StoreConfig
    _log: CommitLog
    _queues: QueueSet
    _index: IndexFiles
    _joined_reads: JoinedReads | None = None  # a kernel, once it is loaded

    @property
    def min_physical_offset(self) -> int:
        return self._log.min_physical_offset

    @property
    @abstractmethod
    def confirmed_to(self) -> int:
        """Physical offset up to which readers may read."""

    @property
    @abstractmethod
    def dispatched_to(self) -> int:
        """Physical offset up to which messages are in their queues and in the index."""

    @abstractmethod
    def _note_damage(self, physical_offset: int, size_bytes: int, reason: str) -> None:
        """Remember an unreadable record."""

    def use_joined_reads(self, joined: JoinedReads) -> None:
        """Read joined records by a kernel from now on."""
        self._joined_reads = joined

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.find(topic, queue_id)

    def queue_keys(self) -> list[tuple[str, int]]:
        """Return topic and id of every queue."""
        return [(queue.topic, queue.queue_id) for queue in self._queues]

    def get(self, topic: str, queue_id: int, request: ReadRequest) -> GetResult:
        """Read messages of a queue from an offset on."""
        queue = self._queues.find(topic, queue_id)
        if queue is not None:
            self._queues.used(queue)
        result = read_queue(queue, self._log, request, self._joined_reads)
        for physical_offset, size_bytes in result.damaged:
            self._note_damage(physical_offset, size_bytes, f"met when reading {topic} {queue_id}")
        return result

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Return the queue offset at a timestamp, by the rules of the version that the store is compatible with."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        search = TimeSearch(self._log)
        if self._config.rules.compat.searches_time_by_file:
            return search.search_4x(queue, timestamp_ms)
        return search.search(queue, timestamp_ms, boundary)

    def earliest_time_ms(self, topic: str, queue_id: int) -> int:
        """Return the store timestamp of a queue's first message, or -1 if it has none."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else TimeSearch(self._log).unit_time_ms(queue, queue.min_offset)

    def earliest_log_time_ms(self) -> int:
        """Return the store timestamp of the oldest message in the log, or -1 if it has none."""
        start = self.min_physical_offset
        return TimeSearch(self._log).store_time_ms(start) if start < self.confirmed_to else -1

    def query_by_time(self, query: TimeQuery) -> FoundByTime:
        """Find messages of a topic by store timestamp, newest first."""
        from orbitlog.store.reads.time_query import query_by_time

        queues = [queue for queue in self._queues if queue.topic == query.topic]
        result = query_by_time(query, self._log, queues, indexed_to=self.dispatched_to)
        for queue in queues:
            self._queues.used(queue)
        return result

    def query(self, query: KeyQuery) -> FoundByKey:
        """Find messages by key, newest first."""
        return query_by_key(query, self._log, self._index, indexed_to=self.dispatched_to)

    def query_steps(self, query: KeyQuery) -> Generator[int, None, FoundByKey]:
        """Search as `query` does, and yield after each step of the search."""
        return query_steps(query, self._log, self._index, indexed_to=self.dispatched_to)

    def read_at(self, physical_offset: int) -> Message | None:
        """Return the message at a physical offset; None if no record starts there or it is not confirmed."""
        if not self.min_physical_offset <= physical_offset < self.confirmed_to:
            return None
        return read_record_at(self._log, physical_offset)

    def last_queued_offset(self) -> int | None:
        """Return the physical offset of the last dispatched message that is in a queue; None without one."""
        found = None
        for queue in self._queues:
            entry = queue.entry(queue.max_offset - 1) if queue.max_offset > queue.min_offset else None
            self._queues.used(queue)
            if entry is not None and not entry.is_pre_blank:
                found = max(found or 0, entry.physical_offset)
        return found

    def read_by_id(self, message_id: str) -> Message | None:
        """Return the message with an offset message id."""
        return self.read_at(parse_offset_message_id(message_id).physical_offset)
