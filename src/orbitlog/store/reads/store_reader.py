"""Store reader: opens a store read-only, with or without a running broker; takes no lock and changes no byte.

The log is read up to its last intact record, or up to the confirmed offset of a running Orbitlog broker if that is
lower, so no partly written record is seen. The log of a DLedger store is read up to its committed end. A reader sees a
snapshot; `refresh` updates it, and so does a read that meets a file which the broker has deleted since.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from orbitlog.errors import FormatError, StoreFileGone, StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.store_state import CONFIRMED, CONFIRMED_FILE, STATE_FILE, decode_state
from orbitlog.formats.records.message import Message
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.store.derived.queue_set import QueueSet
from orbitlog.store.dispatch.arrival import DamagedLog
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.log.log_end import KnownLog, find_log_end
from orbitlog.store.log.segments import open_log_segments
from orbitlog.store.reads.key_query import FoundByKey, KeyQuery
from orbitlog.store.reads.queue_reader import GetResult, ReadRequest
from orbitlog.store.reads.store_reads import StoreReads
from orbitlog.store.reads.time_search import Boundary
from orbitlog.storefiles.disk import Disk, RealDisk
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_contents import READABLE, Part, refuse_reading
from orbitlog.storefiles.store_files import StoreFiles, find_store_files
from orbitlog.storefiles.store_log import readable_end
from orbitlog.storefiles.store_paths import StorePaths

# Deletions are short and come in batches hours apart.
_LOOKS_MAX = 100

Answer = TypeVar("Answer")


class StoreReader(StoreReads):
    """Use `StoreReader.open`, and close it."""

    def __init__(self, root: Path, config: StoreConfig, disk: Disk) -> None:
        self._root = root
        self._config = config
        self._disk = disk
        self.damage: list[DamagedLog] = []
        self._look()

    @classmethod
    def open(cls, root: Path, config: StoreConfig, disk: Disk | None = None) -> StoreReader:
        """Open an existing store for reading."""
        disk = disk or RealDisk()
        refuse_reading(root, Part.LOG | Part.QUEUES | Part.INDEX, disk, except_for=READABLE)
        paths = _with_dledger(root, config.paths_of(root), disk).paths
        if not any(disk.list_directory(directory) for directory in paths.log_directories):
            raise StoreLayoutError(
                f"{root} has no {tree.COMMITLOG} with files (looked in {paths.shown}); give a broker's"
                " storePathRootDir, and its storePathCommitLog if that is set"
            )
        return cls(root, config, disk)

    def refresh(self) -> None:
        """Update the snapshot: new messages, deleted files."""
        self.close()
        self._look()

    def _look(self) -> None:
        for _ in range(_LOOKS_MAX - 1):
            try:
                return self._load()
            except StoreFileGone:
                continue
        return self._load()

    def _again(self, answer: Callable[[], Answer]) -> Answer:
        """Retry a read after a refresh if it met a deleted file."""
        for _ in range(_LOOKS_MAX - 1):
            try:
                return answer()
            except StoreFileGone:
                self.refresh()
        return answer()

    def get(self, topic: str, queue_id: int, request: ReadRequest) -> GetResult:
        return self._again(lambda: super(StoreReader, self).get(topic, queue_id, request))

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        return self._again(lambda: super(StoreReader, self).offset_by_time(topic, queue_id, timestamp_ms, boundary))

    def earliest_time_ms(self, topic: str, queue_id: int) -> int:
        return self._again(lambda: super(StoreReader, self).earliest_time_ms(topic, queue_id))

    def query(self, query: KeyQuery) -> FoundByKey:
        return self._again(lambda: super(StoreReader, self).query(query))

    def read_at(self, physical_offset: int) -> Message | None:
        return self._again(lambda: super(StoreReader, self).read_at(physical_offset))

    @property
    def confirmed_to(self) -> int:
        return self._log.written_to

    @property
    def dispatched_to(self) -> int:
        return self._dispatched_to

    def close(self) -> None:
        self._log.segments.close()
        self._queues.close()
        self._index.close()

    def __enter__(self) -> StoreReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note_damage(self, physical_offset: int, size_bytes: int, reason: str) -> None:
        self.damage.append(DamagedLog(physical_offset, size_bytes, reason))

    def _load(self) -> None:
        geometry = self._config.geometry
        store = _with_dledger(self._root, self._config.paths_of(self._root), self._disk)
        with ExitStack() as undo:
            segments = open_log_segments(self._disk, store.paths, geometry.segment_bytes, writable=False)
            undo.callback(segments.close)
            segments.load()
            self._log = CommitLog(segments)
            is_dledger = store.dledger_member is not None
            self._log.written_to = self._log.flushed_to = readable_end(store) if is_dledger else self._find_end()
            self._queues = QueueSet(self._disk, self._root, geometry.queue_file_bytes, writable=False)
            undo.callback(self._queues.close)
            self._queues.load()
            self._index = IndexFiles(self._disk, self._root, geometry.index_layout, writable=False)
            undo.callback(self._index.close)
            self._index.load()
            self._look_at_queues()
            undo.pop_all()

    def _look_at_queues(self) -> None:
        self._dispatched_to = self._log.min_physical_offset
        for queue in self._queues:
            queue.begin_recovery(self._log.written_to)
            queue.correct_min_offset(self._log.min_physical_offset)
            last = queue.entry(queue.max_offset - 1)
            if last is not None:
                self._dispatched_to = max(self._dispatched_to, last.physical_offset + last.size_bytes)
            self._queues.used(queue)

    def _find_end(self) -> int:
        """Return the end of the intact records, limited by the confirmed offset of a running broker."""
        log = self._log
        known = KnownLog(is_own=False, durable_timestamp_ms=0, last_durable_physical_offset=0)
        found = find_log_end(log, self._known_record(), known).physical_offset
        published = self._disk.read_file(self._root / CONFIRMED_FILE)
        is_open = self._disk.read_file(self._root / tree.ABORT) is not None
        if is_open and published is not None and len(published) >= CONFIRMED.size_bytes:
            (confirmed_to,) = CONFIRMED.struct.unpack_from(published)
            return max(min(found, int(confirmed_to)), log.min_physical_offset)
        return found

    def _known_record(self) -> int:
        """Return a known record start or log end; the log before it need not be followed."""
        start = self._log.min_physical_offset
        try:
            state = decode_state(self._disk.read_file(self._root / STATE_FILE) or b"")
        except FormatError:
            return start
        base = self._log.segments.base_of(state.dispatched_to)
        return state.dispatched_to if self._log.segments.has(base) and state.dispatched_to > start else start


def _with_dledger(root: Path, paths: StorePaths, disk: Disk) -> StoreFiles:
    """Return the store with the data files of DLedger; its other files are not listed if it has none."""
    names = [entry.name for entry in disk.list_directory(root) if entry.is_directory]
    if any(name.startswith(tree.DLEDGER_PREFIX) for name in names):
        return find_store_files(root, paths)
    return StoreFiles(root, given_paths=paths)
