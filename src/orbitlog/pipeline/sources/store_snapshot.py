"""Store snapshot: the queues of a store, their bounds, and offsets by store time, read once.

Takes no lock and changes nothing. The readable part ends at the offset that a running Orbitlog broker has confirmed, or
after the last entry that a DLedger group has committed. Other stores have no such mark; there a queue ends after the
last unit that points to an intact record. Planning takes a new snapshot each time.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import orjson

from orbitlog.errors import FormatError, StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QUEUE_ENTRY, QueueEntry
from orbitlog.formats.derived.store_state import CONFIRMED, CONFIRMED_FILE
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.names import is_stored_topic
from orbitlog.formats.records.message import decode_message
from orbitlog.pipeline.sources.broker_stores import BrokerStore, OptionError
from orbitlog.pipeline.sources.rocksdb_queue import RocksdbQueue
from orbitlog.pipeline.sources.source_options import Subscription
from orbitlog.pipeline.sources.topic_offsets import QueueKey
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.log.segments import Segments, open_log_segments
from orbitlog.store.reads.time_search import TimeSearch
from orbitlog.storefiles.config_reading import read_config
from orbitlog.storefiles.confined.regular_files import read_regular
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.log_presence import check_log_is_there
from orbitlog.storefiles.mapped_view import written_until
from orbitlog.storefiles.rocksdb.databases import Database, open_database
from orbitlog.storefiles.rocksdb.rocksdb_queues import LastUnit, last_units, queue_database
from orbitlog.storefiles.store_contents import IN_ROCKSDB, READABLE, Part, refuse_reading
from orbitlog.storefiles.store_files import StoreFiles, find_store_files, list_segments
from orbitlog.storefiles.store_inference import infer_queue_file_bytes, infer_segment_bytes
from orbitlog.storefiles.store_log import committed_end

_SIZES_READ_AT_ONCE = 4096


class QueueBounds(NamedTuple):
    """The first readable offset, and the offset after the last message."""

    earliest: int
    latest: int


def confirmed_to(root: Path) -> int | None:
    """Return the physical offset up to which a running Orbitlog broker allows reads; None if none is running."""
    published = root / CONFIRMED_FILE
    if not (root / tree.ABORT).exists() or not published.exists():
        return None
    raw = read_regular(published)
    return int(CONFIRMED.struct.unpack_from(raw)[0]) if len(raw) >= CONFIRMED.size_bytes else None


class StoreSnapshot:
    """Use in a `with` block, which keeps the files mapped."""

    def __init__(self, store: BrokerStore) -> None:
        self.store = store
        self._root = Path(store.root)
        self._disk = RealDisk()
        self._queues: dict[tuple[str, int], ConsumeQueue | RocksdbQueue] = {}
        self._opened = ExitStack()

    def __enter__(self) -> StoreSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for queue in self._queues.values():
            if isinstance(queue, ConsumeQueue):
                queue.segments.close()
        self._opened.close()
        if "log" in self.__dict__:
            self.log.segments.close()

    @cached_property
    def files(self) -> StoreFiles:
        refuse_reading(self._root, Part.LOG, except_for=READABLE)
        files = find_store_files(self._root, self.store.paths)
        check_log_is_there(files)
        return files

    @cached_property
    def segment_bytes(self) -> int:
        return infer_segment_bytes(self.files.segments, StoreSettings())

    @cached_property
    def queue_file_bytes(self) -> int:
        files = [file for files in self.files.queues.values() for file in files]
        return infer_queue_file_bytes(files, StoreSettings())

    @cached_property
    def readable_to(self) -> int:
        """The physical offset at which the readable part of the log ends."""
        written = max(
            (segment.base + written_until(segment.path) for segment in list_segments(self.files.paths).segments),
            default=0,
        )
        return written if self.limit is None else min(self.limit, written)

    @cached_property
    def limit(self) -> int | None:
        """The physical offset after which nothing is read: a broker has confirmed no more, or a DLedger group."""
        published = confirmed_to(self._root)
        return committed_end(self.files) if published is None else published

    def lost_end(self) -> str | None:
        """Return a sentence if the last files of a DLedger log are missing, which its committed end shows."""
        if self.files.dledger_member is None or self.limit is None:
            return None
        # Listed after the limit was read: a live broker may have begun a file since the snapshot was made.
        segments = list_segments(self.files.paths).segments
        end = max((segment.base + segment.size_bytes for segment in segments), default=0)
        if self.limit <= end:
            return None
        return f"the log of {self.store.broker_name} ends at {end}, before its committed end {self.limit}"

    @cached_property
    def log(self) -> CommitLog:
        segments = open_log_segments(self._disk, self.files.paths, self.segment_bytes, writable=False)
        segments.load()
        log = CommitLog(segments)
        log.written_to = log.flushed_to = self.readable_to
        return log

    @cached_property
    def known_topics(self) -> frozenset[str]:
        """Topics with a queue, and those in topics.json without a message."""
        with_queues = {topic for topic, _ in self._queue_names}
        return frozenset(with_queues | self._configured_topics())

    def _configured_topics(self) -> set[str]:
        path = self._root / tree.CONFIG / "topics.json"
        try:
            table = orjson.loads(read_config(path)).get("topicConfigTable", {})
        except (OSError, ValueError, AttributeError):
            return (
                set()
            )  # Java's JSON may be laxer than orjson accepts; the queue directories list every topic with messages
        return set(table) if isinstance(table, dict) else set()

    def queue_keys(self, subscription: Subscription) -> list[QueueKey]:
        """Return subscribed queues that have files; raise an error for a store with another kind of queue."""
        refuse_reading(self._root, Part.QUEUES, except_for=READABLE | IN_ROCKSDB)
        keys = (QueueKey(topic, self.store.broker_name, queue_id) for topic, queue_id in self._queue_names)
        return [key for key in keys if subscription.wants(key) and is_stored_topic(key.topic)]

    @property
    def _queue_names(self) -> Collection[tuple[str, int]]:
        return self.files.queues.keys() if self._rocksdb is None else self._rocksdb[1].keys()

    @cached_property
    def _rocksdb(self) -> tuple[Database, dict[tuple[str, int], LastUnit]] | None:
        """The database of queues with the last unit of each; None if queues are files."""
        directory = queue_database(self._root)
        if directory is None:
            return None
        database = self._opened.enter_context(open_database(directory))
        return database, last_units(database)

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue has files; raise an error for a store with another kind of queue."""
        refuse_reading(self._root, Part.QUEUES, except_for=READABLE | IN_ROCKSDB)
        return (topic, queue_id) in self._queue_names

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        queue = self._queue(topic, queue_id)
        return QueueBounds(queue.min_offset, queue.max_offset)

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> QueueEntry | None:
        """Return a unit of a queue or None; raise `FormatError` if it is invalid."""
        return self._queue(topic, queue_id).entry(queue_offset)

    def record_at(self, topic: str, queue_id: int, queue_offset: int) -> bytes | None:
        """Return the record of a message, None if a unit or the record is missing."""
        entry = self._queue(topic, queue_id).entry(queue_offset)
        record = None if entry is None else self.log.read(entry.physical_offset, entry.size_bytes)
        return None if record is None else bytes(record)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time, or the end of the queue."""
        return TimeSearch(self.log).search(self._queue(topic, queue_id), timestamp_ms)

    def sizes_from(self, topic: str, queue_id: int, start: int, stop: int, bytes_max: int) -> list[int]:
        """Return record sizes from a queue offset on, until their sum exceeds `bytes_max`."""
        queue = self._queue(topic, queue_id)
        sizes: list[int] = []
        total = 0
        while start < stop and total <= bytes_max:
            units = queue.read(start, min(stop - start, _SIZES_READ_AT_ONCE))
            if not units:
                units = bytes(ENTRY_BYTES)  # a hole between files counts as size 0
            for _, size_bytes, _ in QUEUE_ENTRY.struct.iter_unpack(units):
                sizes.append(0 if size_bytes == INT_MAX else max(size_bytes, 0))
                total += sizes[-1]
            start += len(units) // ENTRY_BYTES
        return sizes

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | RocksdbQueue:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._stored_queue(topic, queue_id) or self._file_queue(topic, queue_id)
            self._trim_invalid_tail(queue)
            self._queues[topic, queue_id] = queue
        return queue

    def _stored_queue(self, topic: str, queue_id: int) -> RocksdbQueue | None:
        if self._rocksdb is None:
            return None
        database, last = self._rocksdb
        return RocksdbQueue(database, topic, queue_id, last[topic, queue_id], self.log.min_physical_offset)

    def _file_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        directory = self._root / tree.queue_directory(topic, queue_id)
        segments = Segments(self._disk, directory, self.queue_file_bytes, allocate_bytes=0, writable=False)
        segments.load()
        queue = ConsumeQueue(topic, queue_id, segments)
        queue.begin_recovery(self.readable_to)
        queue.correct_min_offset(self.log.min_physical_offset)
        return queue

    def _trim_invalid_tail(self, queue: ConsumeQueue | RocksdbQueue) -> None:
        """End a queue after its last unit that points to a whole record.

        After a crash, or while a broker writes, units may be on disk before their records.
        """
        while queue.max_offset > queue.min_offset:
            entry = queue.entry(queue.max_offset - 1)
            if entry is not None and self._has_record(entry.physical_offset, entry.size_bytes):
                return
            queue.max_offset -= 1

    def _has_record(self, physical_offset: int, size_bytes: int) -> bool:
        record = self.log.read(physical_offset, size_bytes)
        if record is None:
            return False
        try:
            decode_message(record, physical_offset=physical_offset)
        except FormatError:
            return False
        return True


def check_topics(snapshots: list[StoreSnapshot], subscription: Subscription) -> None:
    """Raise an error with the nearest existing name for a topic that no store has."""
    known = frozenset[str]().union(*(snapshot.known_topics for snapshot in snapshots))
    batch = {topic for snapshot in snapshots for topic, _ in snapshot.files.batch_queues}
    for topic in subscription.named_topics:
        if topic in batch:
            raise OptionError(f"topic {topic!r} has batch queues (batchconsumequeue), which are not supported yet")
        if topic not in known:
            near = difflib.get_close_matches(topic, known, n=1)
            shown = ", ".join(sorted(name for name in known if not re.match("rmq_sys_|%|RMQ_SYS_", name))[:8])
            hint = f"did you mean {near[0]!r}?" if near else f"available: {shown or 'none'}"
            raise StoreLayoutError(f"no store has topic {topic!r}; {hint}")
