"""Queue set: all ConsumeQueues of a store by topic and queue id, created with their first message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock

from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.names import check_stored_topic, is_stored_topic, is_system_topic
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.log.segments import Segments
from orbitlog.storefiles.disk import Disk

_ALLOCATE_BYTES = 4096  # one page: a store may have ten thousand queues
# Opening and closing a file costs five times as much as everything else done for a message, so a broker with thousands
# of queues in use keeps them open. Each takes about 8 KiB of memory, page tables included.
_OPEN_QUEUES_MAX = 8192

QueueKey = tuple[str, int]


class QueueSet:
    """Queues of one store; keeps the files of the most recently used ones open."""

    def __init__(self, disk: Disk, root: Path, file_bytes: int, *, writable: bool = True) -> None:
        self._disk = disk
        self._root = root
        self._file_bytes = file_bytes
        self._writable = writable
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self._used: dict[QueueKey, None] = {}
        # Half of the file descriptors, two for each queue: sockets, segments and index need some as well.
        self._open_max = min(_OPEN_QUEUES_MAX, disk.open_files_max() // 4)
        # Held while a file is closed: another thread may be syncing it.
        self._closing = Lock()

    def load(self, empty_files: list[Path] | None = None) -> None:
        """Find every queue directory that is not loaded yet; `empty_files` as in `Segments.load`."""
        directory = self._root / tree.CONSUMEQUEUE
        for topic_entry in self._disk.list_directory(directory):
            if not topic_entry.is_directory or not is_stored_topic(topic_entry.name):
                continue
            for queue_entry in self._disk.list_directory(directory / topic_entry.name):
                queue_id = tree.parse_queue_id(queue_entry.name) if queue_entry.is_directory else None
                if queue_id is not None and (topic_entry.name, queue_id) not in self._queues:
                    queue = self._make(topic_entry.name, queue_id)
                    queue.segments.load(empty_files)

    def list_again(self, trusted_to: int) -> None:
        """Remove files that a killed process created after the units of records before `trusted_to`.

        Units that it left in remaining files are put again with the same bytes.
        """
        known = dict(self._queues)
        self.load()
        with self._closing:
            for key, queue in list(self._queues.items()):
                if key in known:
                    queue.segments.close()
                    queue.segments.load()
                    queue.segments.drop_unused(queue.max_offset * ENTRY_BYTES)
                else:
                    queue.begin_recovery(trusted_to)
                    queue.end_recovery()
            self.forget_empty()

    def recently_used(self) -> list[ConsumeQueue]:
        """Return the queues whose files may be open."""
        return [self._queues[key] for key in self._used if key in self._queues]

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def find_key(self, key: QueueKey) -> ConsumeQueue | None:
        return self._queues.get(key)

    def find_or_make(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self._queues.get((topic, queue_id))
        return self._make(check_stored_topic(topic), queue_id) if queue is None else queue

    def used(self, queue: ConsumeQueue) -> None:
        """Note that a queue's files are in use, and close those of the least recently used queue."""
        key = queue.topic, queue.queue_id
        self._used.pop(key, None)
        self._used[key] = None
        if len(self._used) > self._open_max and self._closing.acquire(blocking=False):
            try:
                while len(self._used) > self._open_max:
                    oldest = next(iter(self._used))
                    del self._used[oldest]
                    self._queues[oldest].segments.close()
            finally:
                self._closing.release()

    def sync(self) -> None:
        """Sync every unit of every queue; may be called in any thread, one call at a time."""
        for queue in self:
            if queue.has_unflushed:
                with self._closing:
                    queue.sync()

    @property
    def directory(self) -> Path:
        return self._root / tree.CONSUMEQUEUE

    def drop_expired(self, min_physical_offset: int) -> list[QueueKey]:
        """Remove queues whose last message is no longer in the log, except those of system topics; return them."""
        gone: list[QueueKey] = []
        for key, queue in list(self._queues.items()):
            last = queue.last_physical_offset
            if last is not None and last < min_physical_offset and not is_system_topic(queue.topic):
                queue.segments.drop_from(0)
                gone.append(key)
        self.forget_empty()
        return gone

    def drop_topics(self, is_dropped: Callable[[str], bool]) -> list[QueueKey]:
        """Remove all queues of some topics; return them."""
        gone = [key for key in self._queues if is_dropped(key[0])]
        for key in gone:
            self._queues[key].segments.drop_from(0)
        self.forget_empty()
        return gone

    def follow_log_start(self, min_physical_offset: int) -> int:
        """Set every queue's start to its first message in the log; return the number of files removed."""
        count = 0
        for queue in self:
            if not queue.segments.is_empty:
                queue.correct_min_offset(min_physical_offset)
                count += queue.drop_expired()
                self.used(queue)
        return count

    @property
    def unit_count(self) -> int:
        return sum(queue.max_offset for queue in self)  # a copy: another thread may be asking

    def forget_empty(self) -> None:
        """Drop queues without files: their next message has offset 0, as in a Java broker."""
        for key, queue in list(self._queues.items()):
            if queue.segments.is_empty:
                del self._queues[key]
                self._used.pop(key, None)

    def close(self) -> None:
        for queue in self._queues.values():
            queue.segments.close()

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        directory = self._root / tree.CONSUMEQUEUE / topic / str(queue_id)
        segments = Segments(
            self._disk,
            directory,
            self._file_bytes,
            allocate_bytes=_ALLOCATE_BYTES,
            writable=self._writable,
            scattered=True,
            names_later=True,
        )
        queue = ConsumeQueue(topic, queue_id, segments)
        self._queues[topic, queue_id] = queue
        return queue
