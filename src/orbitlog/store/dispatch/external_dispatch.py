"""External dispatch: an engine outside the broker takes the lease, writes queues and index, and hands back.

It works only for a running broker that wants it; both are checked before every write. It does not sync what it writes:
the broker does, up to a mark that it has followed, so checkpoint and state file always have one writer. Only a full
index file is synced here, before the next one is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from orbitlog.errors import FormatError, LeaseLost, StoreError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.dispatch_marks import DispatchLease, DispatchMark
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.derived.store_state import CONFIRMED, CONFIRMED_FILE
from orbitlog.store.derived.derived_range import DerivedRange
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.store.derived.queue_set import QueueSet
from orbitlog.store.dispatch.arrival import DamagedLog
from orbitlog.store.dispatch.broker_dispatch import mark_of, start_from_mark
from orbitlog.store.dispatch.dispatch_lease import LeaseFiles
from orbitlog.store.dispatch.dispatcher import STEP_BYTES, Dispatcher
from orbitlog.store.dispatch.kernel_dispatch import BulkDispatch
from orbitlog.store.dispatch.lease_settings import config_of
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.log.segments import open_log_segments
from orbitlog.store.recovery.store_recovery import StoreParts
from orbitlog.storefiles.disk import Disk, MappedFile, RealDisk
from orbitlog.storefiles.store_config import StoreConfig


class ExternalDispatch:
    """Use `ExternalDispatch.take`; then `dispatch_once` or `put_ranges`, and `hand_back` in the end."""

    def __init__(self, root: Path, config: StoreConfig, disk: Disk, files: LeaseFiles) -> None:
        self._root = root
        self._config = config
        self._disk = disk
        self._files = files
        self._confirmed: MappedFile | None = None
        self._lease = DispatchLease()
        self._broker_process = disk.lock_holder(root / tree.LOCK)
        self._is_closed = False
        # False during a step: queues and index are then ahead of the dispatcher's marks.
        self._is_sound = False
        self._marked_to = 0
        self._make_parts()

    def _make_parts(self) -> None:
        geometry, disk, root = self._config.geometry, self._disk, self._root
        segments = open_log_segments(disk, self._config.paths_of(root), geometry.segment_bytes, writable=False)
        self._log = CommitLog(segments)
        self._queues = QueueSet(disk, root, geometry.queue_file_bytes)
        self._index = IndexFiles(disk, root, geometry.index_layout)
        self._dispatcher = Dispatcher(self._log, self._queues, self._index, self._config.rules)
        self._bulk = BulkDispatch(self._queues, self._index, self._config.rules)

    @classmethod
    def take(cls, root: Path, engine: str, disk: Disk | None = None) -> ExternalDispatch:
        """Take the lease that a running broker offers; raise `LeaseLost` with the reason without an offer."""
        disk = disk or RealDisk()
        files = LeaseFiles(disk, root)
        with ExitStack() as undo:
            undo.callback(files.close)
            files.open(create=False)
            if not files.try_lock():
                # A broker that takes dispatch back holds the lock before it writes its lease: the old one names us.
                if not files.is_outside_wanted:
                    raise LeaseLost(_not_offered(root))
                raise LeaseLost(f"dispatch of {root} is held by {files.read_lease() or 'another process'}")
            before = files.read_lease() or DispatchLease()
            owner = cls(root, config_of(before.settings, root), disk, files)
            undo.callback(owner._close_parts)
            owner._check_wanted()
            owner._begin(engine, before)
            undo.pop_all()
        return owner

    def _begin(self, engine: str, before: DispatchLease) -> None:
        mark = self._files.newest_mark()
        if mark is None:
            raise LeaseLost(f"{self._root}: no valid dispatch mark; let the broker hand over dispatch again")
        self._confirmed = self._disk.open_file(self._root / CONFIRMED_FILE, writable=False)
        # Written first: if this process dies from here on, the next owner must not trust anything after the mark.
        self._lease = self._files.take_lease(engine, mark.dispatched_to, before.settings)
        self._load(mark, is_clean=before.is_released)
        self._publish()

    def _load(self, mark: DispatchMark, *, is_clean: bool) -> None:
        """Open queues and index as they were at the mark; drop what a dead process put after it."""
        self._queues.load()
        for queue in self._queues:
            queue.begin_recovery(mark.dispatched_to)
            queue.end_recovery()
        self._queues.forget_empty()
        if self._queues.unit_count != mark.unit_count:
            raise StoreError(
                f"the queues of {self._root} hold {self._queues.unit_count} units, the mark counts {mark.unit_count};"
                " reopen the store to recover it"
            )
        self._index.load()
        tail = mark.index_file, mark.index_header
        if not is_clean:
            self._index.cut_to(tail)
        if self._index.tail != tail:
            raise StoreError(f"the index of {self._root} differs from the mark; reopen the store to recover")
        start_from_mark(mark, self._dispatcher)

    @property
    def config(self) -> StoreConfig:
        """Sizes and rules of the store, from the broker's lease."""
        return self._config

    @property
    def lease(self) -> DispatchLease:
        return self._lease

    @property
    def dispatched_to(self) -> int:
        """Physical offset of the last mark; after a failure, units after it are put again."""
        return self._marked_to

    @property
    def damage(self) -> list[DamagedLog]:
        return list(self._dispatcher.damage)

    @property
    def confirmed_to(self) -> int:
        """Physical offset up to which other processes may read the broker's log."""
        assert self._confirmed is not None
        (confirmed_to,) = CONFIRMED.struct.unpack(self._confirmed.read(0, CONFIRMED.size_bytes))
        return int(confirmed_to)

    @property
    def is_wanted(self) -> bool:
        """Whether the broker is running and still wants this process to dispatch."""
        return not self.is_broker_gone and self._files.is_outside_wanted

    @property
    def is_broker_gone(self) -> bool:
        """Whether the broker that handed over no longer has the store open."""
        return self._broker_process is None or self._holder() != self._broker_process

    def _holder(self) -> int | None:
        return self._disk.lock_holder(self._root / tree.LOCK)

    def _check_wanted(self) -> None:
        if self.is_broker_gone:
            raise LeaseLost(f"no broker has {self._root} open; the rest is dispatched when one opens it")
        if not self._files.is_outside_wanted:
            raise LeaseLost(_not_offered(self._root))

    def check(self) -> None:
        """Raise `LeaseLost` unless this process is still the owner; called before every write."""
        self._check_wanted()
        found = self._files.read_lease()
        if found is None or (found.epoch, found.owner) != (self._lease.epoch, self._lease.owner):
            raise LeaseLost(f"dispatch of {self._root} now belongs to {found or 'no process'}")

    # Steps

    def dispatch_once(self, max_bytes: int = STEP_BYTES) -> int:
        """Dispatch confirmed messages in this process; return the physical offset reached."""
        self.check()
        self._make_sound()
        limit = self.confirmed_to
        self._extend_log(limit)
        self._dispatcher.dispatch_once(limit, max_bytes)
        self._publish()
        return self.dispatched_to

    def put_ranges(self, ranges: Sequence[DerivedRange]) -> int:
        """Put ranges derived elsewhere, in log order; return the physical offset reached.

        A range that is dispatched already is skipped.
        """
        self.check()
        self._make_sound()
        for derived in ranges:
            self._put_range(derived)
        self._publish()
        return self.dispatched_to

    def _put_range(self, derived: DerivedRange) -> None:
        dispatcher = self._dispatcher
        if derived.stop <= dispatcher.dispatched_to:
            return
        if derived.start != dispatcher.dispatched_to or derived.stop > self.confirmed_to:
            raise StoreError(
                f"range {derived.start} to {derived.stop} does not start at {dispatcher.dispatched_to}"
                f" or ends after {self.confirmed_to}"
            )
        self._extend_log(derived.stop)
        if len(derived.columns.physical_offset):
            self._put_columns(derived)
        while dispatcher.dispatched_to < derived.stop:
            dispatcher.dispatch_once(derived.stop)

    def _put_columns(self, derived: DerivedRange) -> None:
        columns, dispatcher = derived.columns, self._dispatcher
        if bool(columns.is_multi_dispatch.any()) and self._config.rules.multi_dispatch:
            return  # light queues need the slow path
        try:
            self._bulk.put(columns, derived.queues.__getitem__, dispatcher.index_from)
        except FormatError:
            # A field that no checksum covers is damaged: the slow path reports it.
            dispatcher.start(dispatcher.dispatched_to, self._index.boundary())
            return
        dispatcher.dispatched_to = derived.derived_to
        dispatcher.last_physical_offset = int(columns.physical_offset[-1])
        dispatcher.last_store_timestamp_ms = int(columns.store_timestamp_ms[-1])

    def _extend_log(self, limit: int) -> None:
        """Map the segments from the one being dispatched up to the one that ends at `limit`, and no others."""
        segments = self._log.segments
        base = segments.base_of(self._dispatcher.dispatched_to)
        segments.forget_before(base)
        while base < limit:
            if not segments.note(base):
                raise StoreError(f"{self._root} has no segment that starts at {base}")
            base += segments.file_bytes
        self._log.written_to = limit

    def _publish(self) -> None:
        parts = StoreParts(self._log, self._queues, self._index, self._dispatcher)
        mark = mark_of(parts, self._config.rules, epoch=self._lease.epoch, sequence=self._files.next_sequence)
        self._files.put_mark(mark)
        self._is_sound, self._marked_to = True, mark.dispatched_to
        # The broker deletes old files: a map of one in this process would keep its blocks allocated.
        for queue in self._queues.recently_used():
            queue.segments.close_before(queue.segments.base_of(queue.max_offset * ENTRY_BYTES))

    def _make_sound(self) -> None:
        """Go back to the last mark if the last step failed: it may have put any number of units after it."""
        if self._is_sound:
            self._is_sound = False
            return
        mark = self._files.newest_mark()
        assert mark is not None
        self._close_parts()
        self._make_parts()
        self._confirmed = self._disk.open_file(self._root / CONFIRMED_FILE, writable=False)
        self._load(mark, is_clean=False)

    def hand_back(self) -> None:
        """Release the lease cleanly; the next owner continues at the last mark."""
        if self._is_closed:
            return
        try:
            found = self._files.read_lease()
            is_owner = found is not None and (found.epoch, found.owner) == (self._lease.epoch, self._lease.owner)
            if is_owner and self._is_sound:
                self._files.write_lease(self._lease.released(self.dispatched_to))
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release lock and files without writing, as if this process were killed."""
        if not self._is_closed:
            self._is_closed = True
            self._close_parts()
            self._files.close()

    def _close_parts(self) -> None:
        self._log.segments.close()
        self._queues.close()
        self._index.close()
        if self._confirmed is not None:
            self._confirmed.close()
            self._confirmed = None


def _not_offered(root: Path) -> str:
    return f"the broker of {root} dispatches itself; start it with --dispatch spark"
