"""Message store: append, dispatch, flush, read; opened cleanly or after a crash, closed cleanly.

Every operation is a step that the caller takes: the store has no thread and no clock of its own. One thread appends,
dispatches and reads; `flush_log` and `flush_derived` may run in another, one at a time. `store_marks` explains which
offsets readers follow, `derived_flush` in which order files are synced, `store_opening` what opening does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from orbitlog.errors import ReplicaMismatch, StoreError
from orbitlog.formats.derived.dispatch_marks import INLINE, DispatchLease
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.store.appending.appender import Appender, NowMs
from orbitlog.store.availability import Availability
from orbitlog.store.derived.queue_set import QueueKey
from orbitlog.store.derived_flush import DerivedFlush
from orbitlog.store.dispatch.arrival import Arrival, DamagedLog, Progress
from orbitlog.store.dispatch.broker_dispatch import BrokerDispatch, Sleep
from orbitlog.store.reads.store_reads import StoreReads
from orbitlog.store.retention.deletion import Deleted, Retention
from orbitlog.store.store_marks import StoreMarks
from orbitlog.store.store_notices import StoreNotice
from orbitlog.store.store_opening import OpenedStore, lock_store
from orbitlog.storefiles.disk import Disk, RealDisk, disk_errors
from orbitlog.storefiles.store_config import StoreConfig

if TYPE_CHECKING:
    from orbitlog.store.appending.replica_append import ReplicaAppend
    from orbitlog.store.store_numbers import StoreNumbers


class MessageStore(StoreReads):
    """One store on one disk. Use `MessageStore.open`.

    `append`, `append_batch`, `append_run` and `append_members` are the appender's own methods: a method here that calls
    them would add a call to every send.
    """

    def __init__(self, opened: OpenedStore, now_ms: NowMs) -> None:
        assert opened.confirmed is not None
        self._opened = opened
        self._root = opened.root
        self._config = opened.config
        self._sync_flush = opened.config.sync_flush
        self._now_ms = now_ms
        self._log, self._queues, self._index = opened.parts.log, opened.parts.queues, opened.parts.index
        self._dispatcher = opened.parts.dispatcher
        self._dispatch = opened.dispatch
        self._availability = Availability(opened.root)
        self._marks = StoreMarks(opened.confirmed)
        if opened.config.is_group_member:
            self._marks.confirm_limit = self._dispatcher.dispatched_to
        self._derived = DerivedFlush(opened, self._marks, self._availability, self.flush_log)
        self._retention = Retention(
            opened.disk,
            self._log,
            self._queues,
            self._index,
            policy=opened.config.retention,
            availability=self._availability,
        )
        self._appender = Appender(
            self._log, opened.config, now_ms, self._availability, recheck_disks=self._retention.recheck
        )
        self._replica: ReplicaAppend | None = None
        if opened.config.is_replica:
            from orbitlog.store.appending.replica_append import ReplicaAppend  # a master needs none

            self._replica = ReplicaAppend(self._log)
            self._availability.refuse_own_messages()
        self.append = self._appender.append
        self.append_batch = self._appender.append_batch
        self.append_run = self._appender.append_run
        self.append_members = self._appender.append_members

    @classmethod
    def open(
        cls,
        root: Path,
        config: StoreConfig,
        now_ms: NowMs,
        disk: Disk | None = None,
        *,
        progress: Progress | None = None,
        sleep: Sleep | None = None,
    ) -> MessageStore:
        """Open a store for writing, recovering it after a crash; create it if it does not exist.

        `progress` gets the bytes of the log done and to do while a long recovery runs. `sleep` is called between
        attempts to get dispatch back from an external engine; without it the first failed attempt raises `StoreLocked`.
        """
        disk = disk or RealDisk()
        with ExitStack() as undo:
            locks = lock_store(root, config, disk)
            undo.callback(locks.close)
            opened = OpenedStore(root, config, disk, locks, BrokerDispatch(disk, root, config, sleep))
            undo.callback(opened.release)
            with disk_errors(f"opening {root}"):
                opened.recover(progress)
                store = cls(opened, now_ms)
                store._start()
            undo.pop_all()
        return store

    def _start(self) -> None:
        """Continue where recovery ended; the state file is valid after the flush, the recovery note until then."""
        self._appender.start(
            {(queue.topic, queue.queue_id): queue.max_offset for queue in self._queues},
            self._dispatcher.last_store_timestamp_ms,
            property_crc=self._opened.has_property_crc,
        )
        self._marks.publish(self.confirmed_to)
        self.flush_derived()
        self._opened.end_recovery()
        self._dispatch.settle(self._opened.parts)
        if self._config.dispatch_engine != INLINE and not (self._replica is not None and self._replica.is_empty):
            self.hand_over_dispatch()

    # Marks

    @property
    def written_to(self) -> int:
        return self._log.written_to

    @property
    def messages_appended(self) -> int:
        """Number of messages appended since the store was opened."""
        return self._appender.messages_appended

    @property
    def last_append_ms(self) -> int:
        """Store timestamp of the last append."""
        return self._appender.last_append_ms

    @property
    def flushed_to(self) -> int:
        return self._log.flushed_to

    @property
    def dispatched_to(self) -> int:
        return self._dispatcher.dispatched_to

    @property
    def confirmed_to(self) -> int:
        """Physical offset up to which readers may read."""
        return min(self._log.flushed_to if self._sync_flush else self._log.written_to, self._marks.confirm_limit)

    @property
    def damage(self) -> list[DamagedLog]:
        """Ranges of the log that were unreadable since the store was opened."""
        return list(self._dispatcher.damage)

    @property
    def availability(self) -> Availability:
        """Whether the store takes messages, and the reason if it does not."""
        return self._availability

    @property
    def notices(self) -> list[StoreNotice]:
        """Sentences for the operator about what the store was found with."""
        return list(self._opened.notices)

    def numbers(self) -> StoreNumbers:
        """Return counts and marks as of now."""
        from orbitlog.store.store_numbers import StoreNumbers

        return StoreNumbers(
            at_ms=self._now_ms(),
            messages_appended=self._appender.messages_appended,
            bytes_appended=self._log.appended_bytes,
            messages_refused=self._appender.messages_refused,
            min_physical_offset=self.min_physical_offset,
            written_to=self.written_to,
            flushed_to=self.flushed_to,
            dispatched_to=self.dispatched_to,
            segment_count=len(self._log.segments.bases),
            queue_count=len(self._queues),
            unit_count=self._queues.unit_count,
            index_file_count=self._index.file_count,
            key_count=self._index.key_count,
            damage_count=len(self._dispatcher.damage),
        )

    # The log's bytes, for replication

    @property
    def segment_bytes(self) -> int:
        """Size of a segment of the log."""
        return self._config.geometry.segment_bytes

    def read_log(self, physical_offset: int, bytes_max: int) -> bytes:
        """Copy bytes of the log as they are stored, at most to the end of their segment.

        Raise `StoreError` if they were deleted or not written yet.
        """
        segment_end = physical_offset - physical_offset % self.segment_bytes + self.segment_bytes
        raw = self._log.read(physical_offset, min(bytes_max, segment_end - physical_offset))
        if raw is None:
            raise StoreError(f"the log of {self._root} has no bytes at {physical_offset}")
        return raw

    @property
    def received_to(self) -> int:
        """End of the bytes that a slave received; past `written_to` while its last record is incomplete."""
        return self._log.written_to if self._replica is None else self._replica.received_to

    def append_replicated(self, physical_offset: int, data: bytes) -> None:
        """Append bytes of the master's log, as they are, to the log of a slave.

        They must continue at `received_to`; an empty log may start at any segment of the master. Raise
        `ReplicaMismatch`, with nothing overwritten, if they do not fit.
        """
        replica = self._replica
        assert replica is not None, "a master's log takes records from the appender alone"
        self._availability.check_open()
        with self._availability.failing_for_good():
            if replica.is_empty:
                self._start_replica(physical_offset, data)
            self._appender.messages_appended += replica.append(physical_offset, data)

    def _start_replica(self, physical_offset: int, data: bytes) -> None:
        """Start the empty log of a slave at the master's offset; an external engine may dispatch from there on."""
        assert self._replica is not None
        if physical_offset:
            with self._marks.lock:
                self._replica.start_at(physical_offset, data)
                self._dispatcher.dispatched_to = physical_offset
        if self._config.dispatch_engine != INLINE:
            self.hand_over_dispatch()

    def drop_incomplete(self) -> None:
        """Forget the incomplete last record that a slave received, before it follows a master on a new connection."""
        if self._replica is not None:
            self._replica.drop_incomplete()

    def confirm(self, physical_offset: int) -> None:
        """Let readers of a group member's store read up to an offset that the group has confirmed.

        It is published at once: after a kill, recovery dispatches up to there and no further.
        """
        assert self._config.is_group_member, "only a replica group confirms"
        self._marks.confirm_limit = physical_offset
        self._marks.publish(self.confirmed_to)

    def cut_log(self, end: int) -> None:
        """End the log of a slave in a replica group at `end`, durably; bytes after it never come back.

        Raise `ReplicaMismatch`, with nothing changed, if messages after `end` were confirmed: readers may have them.
        """
        replica = self._replica
        assert replica is not None, "a master's log is never cut"
        self._availability.check_open()
        if end < self.dispatched_to:
            raise ReplicaMismatch(
                f"the log of {self._root} must end at {end}, but messages up to {self.dispatched_to} were confirmed to"
                " readers; nothing was removed. Move this store away and start the member with an empty one"
            )
        with self._availability.failing_for_good():
            replica.cut(end)

    # Dispatch

    def dispatch_once(self, max_bytes: int = 4 * 1024 * 1024, *, each: bool = True) -> list[Arrival]:
        """Derive units and keys of confirmed messages; return `each` message that can be read now.

        Without `each`, at least the last of each queue is returned, which costs less.
        """
        confirmed_to = self.confirmed_to
        with self._availability.failing_for_good(), self._marks.lock:
            arrivals = self._dispatch.dispatch_once(confirmed_to, max_bytes, each=each)
        self._marks.publish(confirmed_to)
        return arrivals

    def load_kernels(self) -> None:
        """Load the kernels for large dispatch steps, for batches and for pulls.

        Call it once, in any thread. It takes half a second, or most of a minute if the kernels were never compiled on
        this machine.
        """
        from orbitlog.kernels.batch_encode import BatchEncoder
        from orbitlog.kernels.reading.joined_reads import JoinedReader

        self._dispatcher.load_kernels()
        encoder = BatchEncoder()
        encoder.load()
        self._appender.use_batch_encoder(encoder.encode_records)
        reader = JoinedReader()
        reader.load()
        self.use_joined_reads(reader)

    @property
    def has_kernels(self) -> bool:
        """Whether large dispatch steps use the kernels."""
        return self._dispatcher.has_kernels

    def hand_over_dispatch(self) -> None:
        """Allow an external engine to own dispatch; `dispatch_once` then follows it (docs/durability.md)."""
        with disk_errors(f"handing over dispatch of {self._root}"):
            self._dispatch.hand_over()

    def take_back_dispatch(self) -> bool:
        """Ask for dispatch back from an external engine; True when it is back, else each `dispatch_once` retries."""
        with self._availability.failing_for_good():
            return self._dispatch.take_back()

    @property
    def dispatch_lease(self) -> DispatchLease:
        """The dispatch lease; it names the owner."""
        return self._dispatch.lease

    @property
    def is_dispatch_inline(self) -> bool:
        """Whether this process dispatches."""
        return self._dispatch.is_inline

    @property
    def is_dispatch_orphaned(self) -> bool:
        """Whether dispatch was handed over and has no living owner: not taken yet, handed back, or the owner died."""
        return self._dispatch.is_orphaned

    # Flush

    def flush_log(self) -> int:
        """Sync the log up to `written_to`; return that offset. May be called in any thread.

        If the disk refuses, no unflushed byte can be relied on: the store accepts no more messages.
        """
        availability = self._availability
        if availability.failure:
            raise StoreError(availability.failure)
        try:
            return self._log.flush()
        except OSError as error:
            raise availability.fail(error) from error

    def flush_derived(self) -> None:
        """Sync queues and index, and record it in checkpoint and state file."""
        self._derived.flush()

    def prepare_once(self) -> bool:
        """Create the next segment ahead of need; return whether one was created.

        A slave creates none: the next segment exists only after the one before is complete (`replica_append`).
        """
        return not self._config.is_replica and self._log.prepare_next()

    def fetch_ahead(self, ahead_bytes: int) -> Callable[[], None] | None:
        """Return a function that loads the log's next pages into memory, or None if they are loaded.

        It may be called in any thread. Under load appends then do not wait for page faults.
        """
        return self._log.fetch_ahead(ahead_bytes)

    # Retention

    def retain_once(self) -> Deleted:
        """Delete expired files, and more if a disk is too full; return what was deleted and why.

        Also updates whether a disk is too full to accept messages. While `flush_derived` runs in another thread nothing
        is deleted, and the result states it: a file may not be removed while it is synced.
        """
        self._availability.check_open()
        if not self._derived.files_lock.acquire(blocking=False):
            return Deleted(problems=("queues and index are being flushed; nothing was deleted in this step",))
        try:
            with disk_errors(f"deleting from {self._root}"):
                return self._retention.delete_once(self._now_ms(), self._derived.derived_to)
        finally:
            self._derived.files_lock.release()

    def follow_retention(self, policy: RetentionPolicy) -> None:
        """Delete by another policy from the next `retain_once` on."""
        self._retention.follow(policy)

    def delete_expired_now(self) -> None:
        """Allow the next `retain_once` steps to delete expired files at any hour."""
        self._retention.ask()

    def clean_expired_queues(self) -> list[QueueKey]:
        """Remove queues whose messages have all expired, and return them; their next message has offset 0, as in Java.

        Queues of system topics are kept, and queues with messages that are not dispatched yet.
        """
        return self._drop_queues(lambda: self._queues.drop_expired(self.min_physical_offset))

    def delete_topics(self, is_deleted: Callable[[str], bool]) -> list[QueueKey]:
        """Remove the queues of deleted topics, and return them; messages sent to such a topic later start at offset 0.

        Their messages stay in the log until their segments expire, as in Java. Does nothing while messages are not
        dispatched, or while an external engine dispatches.
        """
        return self._drop_queues(lambda: self._queues.drop_topics(is_deleted))

    def _drop_queues(self, drop: Callable[[], list[QueueKey]]) -> list[QueueKey]:
        self._availability.check_open()
        if self.dispatched_to < self.written_to or not self.is_dispatch_inline:
            return []
        with self._derived.files_lock, disk_errors(f"deleting from {self._root}"):
            dropped = drop()
            for key in dropped:
                self._appender.next_queue_offsets.pop(key, None)
            if dropped:
                self._derived.flush_locked()  # the state file counts units: with the old count it would be invalid
        return dropped

    def _note_damage(self, physical_offset: int, size_bytes: int, reason: str) -> None:
        self._dispatcher.note_damage(physical_offset, size_bytes, reason)

    # Closing

    def close(self) -> None:
        """Dispatch and flush everything, and leave a store that needs no recovery."""
        if self._availability.is_closed:
            return
        self._availability.close()
        try:
            if not self._availability.failure:
                with self._availability.failing_for_good():
                    self._close_clean()
        finally:
            self._opened.release()

    def _close_clean(self) -> None:
        self.flush_log()
        self._dispatch.bring_back()
        while self.dispatched_to < self.confirmed_to:
            self.dispatch_once()
        self._log.segments.drop_unused(self._log.written_to, keep_first=True)  # the segment prepared ahead
        self.flush_derived()
        self._dispatch.leave_clean()
        self._opened.mark_clean()

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
