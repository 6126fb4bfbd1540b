"""Broker dispatch: writes queues and index in the broker, or follows an external engine that does.

    inline       the broker holds the lease, or it was never handed over; `dispatch_once` writes
    handed over  an external engine may take the lease, holds it, or died with it; `dispatch_once` follows its marks
    recalled     the broker wants it back: it follows until the lock is free, then continues at the last mark

After an owner that handed back, the last mark is enough to continue. After an owner that died, units after the mark
are put again into the same positions, and keys after it are removed from the index first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.errors import FormatError, StoreError, StoreLocked
from orbitlog.formats.derived.derive import DeriveRules, queue_units
from orbitlog.formats.derived.dispatch_marks import INLINE, DispatchLease, DispatchMark
from orbitlog.store.derived.index_files import IndexBoundary
from orbitlog.store.dispatch.arrival import Arrival
from orbitlog.store.dispatch.dispatch_lease import LeaseFiles
from orbitlog.store.dispatch.dispatcher import Dispatcher
from orbitlog.store.dispatch.lease_settings import settings_of
from orbitlog.store.reads.key_query import read_record_at
from orbitlog.store.recovery.store_recovery import StoreParts
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.store_config import StoreConfig

if TYPE_CHECKING:
    from orbitlog.store.dispatch.dispatch_follower import DispatchFollower

Sleep = Callable[[float], None]
_POLL_S = 0.02
# An external owner finishes its batch before it gives dispatch back; ten seconds are long for one batch.
_ATTEMPTS = 500


def mark_of(parts: StoreParts, rules: DeriveRules, *, epoch: int, sequence: int) -> DispatchMark:
    """Return a mark with the owner's progress."""
    dispatcher, queues = parts.dispatcher, parts.queues
    index_file, index_header = parts.index.tail
    return DispatchMark(
        dispatched_to=dispatcher.dispatched_to,
        index_from=dispatcher.index_from.physical_offset,
        index_skip_keys=dispatcher.index_from.skip_keys,
        unit_count=queues.unit_count - _units_ahead(parts, rules),
        last_store_timestamp_ms=dispatcher.last_store_timestamp_ms,
        last_physical_offset=dispatcher.last_physical_offset,
        index_file=index_file,
        index_header=index_header,
        epoch=epoch,
        sequence=sequence,
    )


def _units_ahead(parts: StoreParts, rules: DeriveRules) -> int:
    """Count units of the next message that are put already: the disk may become full between its units and its keys."""
    next_offset = parts.dispatcher.dispatched_to
    message = read_record_at(parts.log, next_offset)
    try:
        units = [] if message is None else queue_units(message, rules)
    except FormatError:
        return 0
    count = 0
    for unit in units:
        queue = parts.queues.find(unit.topic, unit.queue_id)
        stored = queue.entry(unit.queue_offset) if queue is not None else None
        count += stored is not None and stored.physical_offset == next_offset
    return count


def start_from_mark(mark: DispatchMark, dispatcher: Dispatcher) -> None:
    """Start a dispatcher at a mark."""
    dispatcher.start(mark.dispatched_to, IndexBoundary(mark.index_from, mark.index_skip_keys))
    dispatcher.last_store_timestamp_ms = mark.last_store_timestamp_ms
    dispatcher.last_physical_offset = mark.last_physical_offset


class BrokerDispatch:
    """Dispatch of one store, inline or by an external engine."""

    def __init__(self, disk: Disk, root: Path, config: StoreConfig, sleep: Sleep | None = None) -> None:
        self._sleep = sleep
        self._root = root
        self._rules = config.rules
        self._settings = settings_of(config)
        self._files = LeaseFiles(disk, root)
        self._lease: DispatchLease | None = None
        self._follower: DispatchFollower | None = None
        self._is_recalled = False
        self._seen_marks = b""
        self._mark: DispatchMark | None = None
        self._arrived: list[Arrival] = []

    @property
    def is_inline(self) -> bool:
        """Whether the broker itself dispatches."""
        return self._follower is None

    @property
    def knows_index(self) -> bool:
        """Whether the known index has reached the dispatched offset; a follower reads it when a mark is reached."""
        if self._follower is None or self._mark is None:
            return True
        return self._parts.dispatcher.dispatched_to >= self._mark.dispatched_to

    @property
    def lease(self) -> DispatchLease:
        """The lease on disk, or the broker's own if there never was one."""
        return self._files.read_lease() or DispatchLease()

    @property
    def is_orphaned(self) -> bool:
        """Whether dispatch was handed over and has no living owner: not taken yet, handed back, or the owner died."""
        return not self.is_inline and self._files.is_orphaned

    def claim(self) -> None:
        """Take dispatch back from the engine that an earlier broker handed it to; before any file is changed."""
        if not self._files.exist:
            return
        self._files.open(create=False)
        self._files.want_outside(False)
        self._attempt(self._files.try_lock)

    def settle(self, parts: StoreParts) -> None:
        """Take the lease after recovery, if there is one."""
        self._parts = parts
        if self._files.is_locked:
            self._lease = self._files.take_lease(INLINE, self._parts.dispatcher.dispatched_to, self._settings)

    def hand_over(self) -> None:
        """Offer dispatch to an external engine; no messages are dispatched until one takes the lease."""
        from orbitlog.store.dispatch.dispatch_follower import DispatchFollower

        if self._follower is not None:
            self._is_recalled = False
            self._files.want_outside(True)
            return
        self._files.open(create=True)
        self._files.want_outside(False)
        if not self._files.try_lock():
            raise StoreLocked(self._held())
        dispatcher = self._parts.dispatcher
        lease = self._lease or self._files.take_lease(INLINE, dispatcher.dispatched_to, self._settings)
        mark = mark_of(self._parts, self._rules, epoch=lease.epoch, sequence=self._files.next_sequence)
        self._files.put_mark(mark)
        self._files.write_lease(lease.released(mark.dispatched_to))
        self._lease, self._is_recalled = None, False
        self._follower = DispatchFollower(
            self._parts.log, self._parts.queues, self._parts.index, dispatcher, self._rules
        )
        self._files.want_outside(True)
        self._files.unlock()

    def take_back(self) -> bool:
        """Ask for dispatch back; return True when it is back, False while the owner finishes its batch."""
        if self._follower is None:
            return True
        self._is_recalled = True
        self._files.want_outside(False)
        if not self._files.try_lock():
            return False
        before, mark = self._files.read_lease(), self._files.newest_mark()
        if mark is None:
            raise StoreError(f"{self._root}: the dispatch marks are unreadable; reopen the store to recover it")
        lease = self._files.take_lease(INLINE, mark.dispatched_to, self._settings)
        while self._parts.dispatcher.dispatched_to < mark.dispatched_to:
            self._arrived += self._follower.follow(mark, 1 << 30)
        # Even if nothing was dispatched since the last mark: a file may have been created for a step that failed.
        self._parts.index.follow((mark.index_file, mark.index_header))
        if before is None or not before.is_released:
            self._parts.queues.list_again(mark.dispatched_to)
            self._parts.index.cut_to((mark.index_file, mark.index_header))
        start_from_mark(mark, self._parts.dispatcher)
        self._lease, self._follower, self._is_recalled = lease, None, False
        return True

    def bring_back(self) -> None:
        """Take dispatch back, waiting for its owner; raise `StoreLocked` if the owner does not give it back."""
        self._attempt(self.take_back)

    def _attempt(self, attempt: Callable[[], bool]) -> None:
        """Repeat an attempt until it succeeds; without a `sleep` function there is one attempt."""
        for number in range(_ATTEMPTS if self._sleep is not None else 1):
            if number and self._sleep is not None:
                self._sleep(_POLL_S)
            if attempt():
                return
        raise StoreLocked(self._held())

    def dispatch_once(self, limit: int, max_bytes: int, *, each: bool) -> list[Arrival]:
        """Dispatch, or follow what was dispatched externally; return the messages that can be read now.

        With `each` all of them, else at least the last of each queue.
        """
        if self._is_recalled:
            self.take_back()
        arrived, self._arrived = self._arrived, []
        if self._follower is None:
            return arrived + self._parts.dispatcher.dispatch_once(limit, max_bytes, each=each)
        return arrived + self._follow(max_bytes)

    def _follow(self, max_bytes: int) -> list[Arrival]:
        assert self._follower is not None
        raw = self._files.raw_marks()
        if raw != self._seen_marks:
            mark = self._files.newest_mark()
            self._seen_marks = raw
            # A mark of an earlier epoch is by an owner that lost its lease and has not noticed yet (fencing).
            if mark is not None and (self._mark is None or mark.epoch >= self._mark.epoch):
                self._mark = mark
        if self._mark is None or self._mark.dispatched_to <= self._parts.dispatcher.dispatched_to:
            return []
        return self._follower.follow(self._mark, max_bytes)

    def release(self) -> None:
        """Release lock and files in any state; for a store that is closed."""
        self._files.close()

    def leave_clean(self) -> None:
        """Mark the lease as released; for a store that is about to be closed cleanly."""
        if self._files.is_locked and self._lease is not None:
            self._files.write_lease(self._lease.released(self._parts.dispatcher.dispatched_to))
            self._lease = None

    def _held(self) -> str:
        return f"dispatch of {self._root} is held by {self.lease}, which did not release it; stop that process"
