"""The message store: append, dispatch, flush, read; opened clean or after a crash, closed clean.

Everything is a step that the caller takes when it wants: the store has no thread and no clock of its own. One thread
appends, dispatches and reads; `flush_log` and `flush_derived` may run in another, one at a time.

Marks, all physical offsets: `flushed_to` <= `written_to`; readers and the dispatcher follow `confirmed_to`, which is
`flushed_to` where sends wait for the disk and `written_to` where they do not. Nobody ever sees a message that a
crash could take back from a store that promised to keep it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from types import TracebackType

from orbitlog.errors import FormatError, StoreClosed, StoreError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import Checkpoint, encode_checkpoint
from orbitlog.formats.derived.dispatch_marks import INLINE, DispatchLease
from orbitlog.formats.derived.store_state import (
    CONFIRMED,
    CONFIRMED_FILE,
    KEYS_UNKNOWN,
    STATE_FILE,
    RecoveryNote,
    StoreState,
    encode_state,
)
from orbitlog.formats.records import flags
from orbitlog.formats.records.batch_records import encode_records
from orbitlog.formats.records.message import Message, encode_placed, measure_record
from orbitlog.formats.records.properties import CRC_PROPERTY_START
from orbitlog.formats.records.property_crc import encode_sealed_run
from orbitlog.formats.records.record_template import Row, encode_run
from orbitlog.store.appending.append_together import measure_together, place_together
from orbitlog.store.appending.put_result import AppendedMembers, PutResult, PutStatus, refusal_of
from orbitlog.store.appending.put_rules import PutRules
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.store.derived.light_queues import LIGHT_QUEUES_MARK, LightQueues
from orbitlog.store.derived.queue_set import QueueKey, QueueSet
from orbitlog.store.dispatch.arrival import Arrival, DamagedLog, Progress
from orbitlog.store.dispatch.broker_dispatch import BrokerDispatch
from orbitlog.store.dispatch.dispatcher import Dispatcher
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.log.confirmed_offset import open_confirmed
from orbitlog.store.log.property_crc_mode import EncodeRecords, EncodeRun, encode_no_records, infer_mode
from orbitlog.store.log.segments import open_log_segments
from orbitlog.store.reads.store_reads import StoreReads
from orbitlog.store.recovery.store_recovery import (
    FoundStore,
    RecoverySteps,
    StoreParts,
    read_checkpoint,
    read_recovery_note,
    read_state,
    recover,
    remove_recovery_note,
    write_recovery_note,
)
from orbitlog.store.retention.deletion import Deleted, Retention
from orbitlog.store.store_notices import notices_of
from orbitlog.store.store_numbers import StoreNumbers
from orbitlog.storefiles.disk import Disk, MappedFile, RealDisk, disk_errors
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_contents import refuse_lost_log, refuse_writing

NowMs = Callable[[], int]
# An owner of dispatch outside ends a batch before it gives back; a few seconds are long for one.
_DISPATCH_PATIENCE_S = 10.0
# Such properties are not stored as they are: see `append_together`.
_find_special = re.compile(b"|".join(map(re.escape, (b"\0", CRC_PROPERTY_START, LIGHT_QUEUES_MARK)))).search
_PUT_OK = PutStatus.PUT_OK
_new_tuple = tuple.__new__  # a named tuple made in half the time of calling it


class MessageStore(StoreReads):
    """One store on one disk. Use `MessageStore.open`."""

    def __init__(self, root: Path, config: StoreConfig, disk: Disk, now_ms: NowMs, locks: ExitStack) -> None:
        self._root = root
        self._config = config
        self._disk = disk
        self._now_ms = now_ms
        self._locks = locks
        geometry = config.geometry
        allocate_bytes = min(config.segment_allocate_bytes, geometry.segment_bytes)
        paths = config.paths_of(root)
        self._log = CommitLog(open_log_segments(disk, paths, geometry.segment_bytes, allocate_bytes=allocate_bytes))
        self._queues = QueueSet(disk, root, geometry.queue_file_bytes)
        self._index = IndexFiles(disk, root, geometry.index_layout)
        self._retention = Retention(disk, self._log, self._queues, self._index, config.retention)
        self._put_rules = PutRules(config)
        self._encode_records: EncodeRecords = encode_records
        self._encode_run: EncodeRun = encode_run
        self._has_property_crc = False
        self._light_queues = LightQueues(config.light_queues, config.rules.compat)
        self._dispatch = BrokerDispatch(disk, root, config)
        self._derived_to = 0
        self._next_queue_offsets: dict[QueueKey, int] = {}
        self._confirmed: MappedFile | None = None
        self._messages_appended = self._bytes_appended = self._messages_refused = 0
        self._checkpoint = Checkpoint()
        self._last_append_ms = 0
        self._failure = ""
        self._marks = Lock()  # held while they move, and while they are read together
        self._is_closed = False
        # Held while queues and index are taken to the disk, and while files of theirs are removed.
        self._derived_files = Lock()

    @classmethod
    def open(
        cls,
        root: Path,
        config: StoreConfig,
        now_ms: NowMs,
        disk: Disk | None = None,
        *,
        progress: Progress | None = None,
    ) -> MessageStore:
        """Open a store for writing, recovering what a crash left; makes a new one where there is none.

        `progress` is told how many bytes of the log were gone through, of how many, while a long recovery runs.
        """
        disk = disk or RealDisk()
        paths = config.paths_of(root)
        refuse_writing(root, disk, log_directories=paths.log_directories)
        refuse_lost_log(paths, disk)
        disk.make_directory(root)
        with ExitStack() as locks, ExitStack() as undo:
            locks.callback(disk.lock_file(root / tree.LOCK, tree.LOCK_CONTENT).release)
            # The root's lock does not keep out a broker with another root and the same CommitLog directory.
            for directory in paths.log_directories:
                disk.make_directory(directory)
                locks.callback(disk.lock_directory(directory).release)
            store = cls(root, config, disk, now_ms, locks.pop_all())
            undo.callback(store._release)
            with disk_errors(f"opening {root}"):
                store._load(progress)
            undo.pop_all()
        return store

    def _load(self, progress: Progress | None) -> None:
        log, queues, index = self._log, self._queues, self._index
        self._dispatch.claim(_DISPATCH_PATIENCE_S)
        log.segments.load()
        log.written_to = log.flushed_to = log.min_physical_offset
        queues.load()
        index.load()
        self._dispatcher = Dispatcher(log, queues, index, self._config.rules)
        self._checkpoint = read_checkpoint(self._disk, self._root)
        self._notices = notices_of(self._disk, self._root)
        parts = StoreParts(log, queues, index, self._dispatcher)
        found = FoundStore(
            self._disk,
            self._root,
            self._config.rules,
            self._checkpoint,
            read_state(self._disk, self._root),
            was_closed=self._disk.read_file(self._root / tree.ABORT) is None,
            note=read_recovery_note(self._disk, self._root),
        )
        self._notices += recover(parts, found, RecoverySteps(self._begin_recovery, self._distrust_keys, progress))
        self._confirmed = open_confirmed(self._disk, self._root / CONFIRMED_FILE)
        for queue in queues:
            self._next_queue_offsets[queue.topic, queue.queue_id] = queue.max_offset
        self._last_append_ms = self._dispatcher.last_store_timestamp_ms
        self._choose_property_crc()
        self._publish(self.confirmed_to)
        self.flush_derived()
        remove_recovery_note(self._disk, self._root)  # the state file is valid from here on
        self._dispatch.settle(parts)
        if self._config.dispatch_engine != INLINE:
            self.hand_over_dispatch()

    def _begin_recovery(self, note: RecoveryNote | None) -> None:
        """Create the abort file before anything changes: a crash while recovering must not look like a clean close.

        The note first: after such a crash the next recovery reads it instead of what the files showed before.
        """
        if note is not None:
            write_recovery_note(self._disk, self._root, note)
        process_id = os.getpid() if self._config.rules.compat.abort_holds_process_id else None
        self._disk.replace_file(self._root / tree.ABORT, tree.encode_abort(process_id))

    def _choose_property_crc(self) -> None:
        """Append records with a property CRC if the settings ask for it, or if the last records of the log have one."""
        self._has_property_crc, notices = infer_mode(self._config.property_crc, self._log, self._queues)
        self._notices += notices
        if self._has_property_crc:
            self._encode_run = encode_sealed_run
            self._encode_records = encode_no_records  # batches take the slow path

    def _distrust_keys(self, state: StoreState) -> None:
        """Let the state on the disk vouch for queues alone, until the next flush of queues and index."""
        encoded = encode_state(replace(state, key_count=KEYS_UNKNOWN))
        self._disk.replace_file(self._root / STATE_FILE, encoded)

    # Marks

    @property
    def written_to(self) -> int:
        return self._log.written_to

    @property
    def messages_appended(self) -> int:
        """How many messages were taken since it was opened."""
        return self._messages_appended

    @property
    def flushed_to(self) -> int:
        return self._log.flushed_to

    @property
    def dispatched_to(self) -> int:
        return self._dispatcher.dispatched_to

    @property
    def confirmed_to(self) -> int:
        """How far readers may read."""
        return self._log.flushed_to if self._config.sync_flush else self._log.written_to

    @property
    def damage(self) -> list[DamagedLog]:
        """Parts of the log that could not be read since it was opened."""
        return list(self._dispatcher.damage)

    @property
    def notices(self) -> list[str]:
        """Sentences on what the store was found with and its owner should know."""
        return list(self._notices)

    def numbers(self) -> StoreNumbers:
        """Return how the store is doing now."""
        return StoreNumbers(
            at_ms=self._now_ms(),
            messages_appended=self._messages_appended,
            bytes_appended=self._bytes_appended,
            messages_refused=self._messages_refused,
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

    # Appending

    def append(self, message: Message) -> PutResult:
        """Take one message: its queue offset, physical offset and store time are assigned here."""
        if self._has_property_crc or _find_special(message.properties_raw):
            return self.append_batch((message,))[0]
        refusal = self._put_rules.refuse(message)
        if self._is_closed or self._failure or self._retention.refusal:
            refusal = self._refuse() or refusal
        if refusal is None:
            log, queue_key = self._log, (message.topic, message.queue_id)
            now_ms = max(self._now_ms(), self._last_append_ms)
            enters_queue = flags.enters_queue(message.sys_flag)
            queue_offset = self._next_queue_offsets.get(queue_key, 0) if enters_queue else 0
            try:
                measured = measure_record(message)
                size_bytes = measured.size_bytes
                log.reserve(size_bytes)
                physical_offset = log.written_to
                record = encode_placed(message, measured, queue_offset, physical_offset, now_ms)
            except (FormatError, StoreError) as error:
                refusal = refusal_of(error)
        if refusal is not None:
            self._messages_refused += 1
            return refusal
        log.write(record)
        if enters_queue:
            self._next_queue_offsets[queue_key] = queue_offset + 1
        self._last_append_ms = now_ms
        self._messages_appended += 1
        self._bytes_appended += size_bytes
        return _new_tuple(PutResult, (_PUT_OK, physical_offset, queue_offset, now_ms, size_bytes, ""))

    def append_run(self, rows: Sequence[Row]) -> list[tuple[int, int]]:
        """Take ordinary messages that came together; returns the physical and the queue offset of those taken.

        The first ones are taken, as many as have room where the last one went; all of them mostly. The others, and
        those about which anything is unusual, are for `append`. Rows must be such as `append` would take.
        """
        if self._is_closed or self._failure or self._retention.refusal:
            return []
        log = self._log
        now_ms = max(self._now_ms(), self._last_append_ms)
        raw, places = self._encode_run(rows, self._next_queue_offsets, log.written_to, now_ms, log.room_bytes)
        if places:
            log.write(raw)
            self._last_append_ms = now_ms
            self._messages_appended += len(places)
            self._bytes_appended += len(raw)
        return places

    def append_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """Take messages that were sent together: a segment has all of them or none."""
        refuse = self._put_rules.refuse_batch if len(messages) > 1 else self._put_rules.refuse_each
        refusal = self._refuse() or refuse(messages)
        if refusal is None and messages:
            try:
                return self._append_together(messages)
            except (FormatError, StoreError) as error:
                refusal = refusal_of(error)
        self._messages_refused += len(messages)
        return [refusal] * len(messages) if refusal else []

    def append_members(self, batch: Message, added: bytes) -> AppendedMembers | None:
        """Take an ordinary batch whole, its body the request's; None where it must be taken apart first.

        Nothing was taken then: `append_batch` says what is wrong, if something is.
        """
        queue_key, log = (batch.topic, batch.queue_id), self._log
        if self._refuse() or self._put_rules.refuse(batch):
            return None
        now_ms = max(self._now_ms(), self._last_append_ms)
        queue_offset = self._next_queue_offsets.get(queue_key, 0)
        records = self._encode_records(batch, added, queue_offset, log.written_to, now_ms)
        if records is None or self._put_rules.is_too_long(batch, added, len(records.physical_offsets)):
            return None
        try:
            log.reserve(len(records.raw))
        except (FormatError, StoreError):
            return None
        if records.physical_offsets[0] != log.written_to:  # they did not fit: the segment was ended
            records = self._encode_records(batch, added, queue_offset, log.written_to, now_ms)
            assert records is not None
        log.write(records.raw)
        count = len(records.physical_offsets)
        self._next_queue_offsets[queue_key] = queue_offset + count
        self._last_append_ms = now_ms
        self._messages_appended += count
        self._bytes_appended += len(records.raw)
        return AppendedMembers(records.physical_offsets, queue_offset, log.written_to, len(records.raw))

    def _append_together(self, messages: Sequence[Message]) -> list[PutResult]:
        """Encode all records before the first is copied: what is wrong with one of them keeps all out."""
        now_ms = max(self._now_ms(), self._last_append_ms)
        known, following, always_crc = self._next_queue_offsets, dict[QueueKey, int](), self._has_property_crc
        unplaced = measure_together(messages, self._light_queues, known, following, always_crc=always_crc)
        self._log.reserve(sum(each.measured.size_bytes for each in unplaced))
        records, results = place_together(unplaced, known, following, self._log.written_to, now_ms)
        for record in records:
            self._log.write(record)
            self._bytes_appended += len(record)
        self._next_queue_offsets.update(following)
        self._last_append_ms = now_ms
        self._messages_appended += len(messages)
        return results

    def _refuse(self) -> PutResult | None:
        """Return why no message at all is taken, or None."""
        if self._is_closed:
            raise StoreClosed(f"{self._root} is closed")
        if self._failure:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=self._failure)
        if self._retention.refusal and (reason := self._retention.recheck(self._now_ms())):
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        return None

    # Steps

    def dispatch_once(self, max_bytes: int = 4 * 1024 * 1024, *, each: bool = True) -> list[Arrival]:
        """Derive units and keys of messages that readers may see; returns those that can be read now.

        Whoever does not want to know `each` of them is told at least the last of each queue, which costs less.
        """
        confirmed_to = self.confirmed_to
        with self._failing_for_good():
            with self._marks:
                arrivals = self._dispatch.dispatch_once(confirmed_to, max_bytes, each=each)
        self._publish(confirmed_to)
        return arrivals

    def load_kernels(self) -> None:
        """Let large steps of dispatching be taken in machine code, and batches encoded in it.

        Call it once, in another thread if it must not wait: it takes half a second, and most of a minute where the
        kernels were never compiled on this machine.
        """
        from orbitlog.kernels.batch_encode import BatchEncoder

        self._dispatcher.load_kernels()
        encoder = BatchEncoder()
        encoder.load()
        if not self._has_property_crc:
            self._encode_records = encoder.encode_records

    @property
    def has_kernels(self) -> bool:
        """Tell whether large steps of dispatching are taken in machine code."""
        return self._dispatcher.has_kernels

    def hand_over_dispatch(self) -> None:
        """Let an engine outside this process own dispatch; `dispatch_once` then follows it (docs/durability.md)."""
        with disk_errors(f"handing over dispatch of {self._root}"):
            self._dispatch.hand_over()

    def take_back_dispatch(self) -> bool:
        """Want dispatch back from an engine outside; True once it is, before that each `dispatch_once` asks again."""
        with self._failing_for_good():
            return self._dispatch.take_back()

    @property
    def dispatch_lease(self) -> DispatchLease:
        """The owner of dispatch, as its lease names it."""
        return self._dispatch.lease

    @property
    def is_dispatch_inline(self) -> bool:
        """Tell whether this process dispatches."""
        return self._dispatch.is_inline

    @property
    def is_dispatch_orphaned(self) -> bool:
        """Tell whether dispatch was handed over and nobody does it now: not yet, no longer, or it died."""
        return self._dispatch.is_orphaned

    def _publish(self, confirmed_to: int) -> None:
        """Say how far those may read who read the files beside this process; nothing depends on it after a crash."""
        assert self._confirmed is not None
        self._confirmed.write(0, CONFIRMED.struct.pack(confirmed_to))

    def flush_log(self) -> int:
        """Put the log on the disk as far as it is written; returns how far that is.

        If the disk refuses, nothing that was not flushed can be trusted any more: the store takes no more messages.
        """
        if self._failure:
            raise StoreError(self._failure)
        log = self._log
        target = log.written_to
        try:
            log.flush(target)
        except OSError as error:
            raise self._fail_for_good(error) from error
        return target

    def _fail_for_good(self, error: OSError) -> StoreError:
        self._failure = f"the disk failed to keep what was written ({error}); nothing more is taken until a restart"
        return StoreError(self._failure)

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        """Let a failed sync be the last one: the next would succeed, for pages that the system has given up."""
        if self._failure:
            raise StoreError(self._failure)
        try:
            yield
        except OSError as error:
            raise self._fail_for_good(error) from error

    def flush_derived(self) -> None:
        """Put queues and index on the disk, and note in checkpoint and state how far they are."""
        with self._derived_files:
            self._flush_derived()

    def _flush_derived(self) -> None:
        # All marks before the first sync: what is dispatched meanwhile may not be on the disk after it. And between two
        # steps of dispatch: a state that counts units of half a step is one that no recovery trusts.
        with self._marks:
            checkpoint, state = self._marks_now()
        self.flush_log()
        with self._failing_for_good():
            self._queues.sync()
            self._index.sync()
        self._derived_to = state.dispatched_to
        self._checkpoint = checkpoint
        encoded = encode_checkpoint(checkpoint, self._config.rules.compat)
        self._disk.replace_file(self._root / tree.CHECKPOINT, encoded)
        self._disk.replace_file(self._root / STATE_FILE, encode_state(state))

    def _marks_now(self) -> tuple[Checkpoint, StoreState]:
        """Return how far everything is, for the checkpoint and for the state that goes with it."""
        dispatcher, queues = self._dispatcher, self._queues
        last_ms = dispatcher.last_store_timestamp_ms or self._checkpoint.logics_msg_timestamp_ms
        checkpoint = Checkpoint(
            physic_msg_timestamp_ms=last_ms,
            logics_msg_timestamp_ms=last_ms,
            index_msg_timestamp_ms=self._index.complete_timestamp_ms,
            logics_physical_offset=dispatcher.last_physical_offset or self._checkpoint.logics_physical_offset,
        )
        key_count = self._index.key_count if self._dispatch.knows_index else KEYS_UNKNOWN
        state = StoreState(dispatcher.dispatched_to, queues.unit_count, len(queues), key_count, last_ms, last_ms)
        return checkpoint, state

    def prepare_once(self) -> bool:
        """Make the next segment ahead of its need; True if one was made."""
        return self._log.prepare_next()

    def fetch_ahead(self, ahead_bytes: int) -> Callable[[], None] | None:
        """Return what has the log's next bytes in memory before they are written to; None where they are already.

        It may be called in any thread, and pays for a store under load: appends do not wait for the system then.
        """
        return self._log.fetch_ahead(ahead_bytes)

    def retain_once(self) -> Deleted:
        """Delete what has expired, or what a disk that fills up has no room for; returns what, and why.

        Also notes whether a disk is too full to take messages. Does nothing, and says so, while `flush_derived` runs
        in another thread: no file may be removed that is just being taken to the disk.
        """
        if self._is_closed:
            raise StoreClosed(f"{self._root} is closed")
        if not self._derived_files.acquire(blocking=False):
            return Deleted(problems=("queues and index are just being flushed; nothing was deleted in this step",))
        try:
            with disk_errors(f"deleting from {self._root}"):
                return self._retention.delete_once(self._now_ms(), self._derived_to)
        finally:
            self._derived_files.release()

    def delete_expired_now(self) -> None:
        """Let the next steps of `retain_once` delete what has expired, whatever the hour."""
        self._retention.ask()

    def clean_expired_queues(self) -> list[QueueKey]:
        """Remove queues whose messages have all expired; returns which. Their next message starts at 0, as in Java.

        Queues of system topics stay, and queues with messages that are not dispatched yet.
        """
        return self._drop_queues(lambda: self._queues.drop_expired(self.min_physical_offset))

    def delete_topics(self, is_deleted: Callable[[str], bool]) -> list[QueueKey]:
        """Remove the queues of topics that are no more; returns which. What is sent to such a topic again starts at 0.

        Their messages stay in the log until their segments expire, as in Java. Does nothing while messages are not
        dispatched, or while another engine dispatches.
        """
        return self._drop_queues(lambda: self._queues.drop_topics(is_deleted))

    def _drop_queues(self, drop: Callable[[], list[QueueKey]]) -> list[QueueKey]:
        if self._is_closed:
            raise StoreClosed(f"{self._root} is closed")
        if self.dispatched_to < self.written_to or not self.is_dispatch_inline:
            return []
        with self._derived_files, disk_errors(f"deleting from {self._root}"):
            gone = drop()
            for key in gone:
                self._next_queue_offsets.pop(key, None)
            if gone:
                self._flush_derived()  # the state file vouches for a number of units
        return gone

    def _note_damage(self, physical_offset: int, size_bytes: int, reason: str) -> None:
        self._dispatcher.note_damage(physical_offset, size_bytes, reason)

    def close(self) -> None:
        """Dispatch and flush everything, and leave a store that needs no recovery."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if not self._failure:
                with self._failing_for_good():
                    self._close_clean()
        finally:
            self._release()

    def _close_clean(self) -> None:
        self.flush_log()
        self._dispatch.bring_back(_DISPATCH_PATIENCE_S)
        while self.dispatched_to < self.confirmed_to:
            self.dispatch_once()
        self._log.segments.drop_unused(self._log.written_to, keep_first=True)  # the one that was prepared
        self.flush_derived()
        self._dispatch.leave_clean()
        self._disk.remove_file(self._root / tree.ABORT)
        self._disk.sync_directory(self._root)

    def _release(self) -> None:
        self._dispatch.release()
        if self._confirmed is not None:
            self._confirmed.close()
        self._log.segments.close()
        self._queues.close()
        self._index.close()
        self._locks.close()

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
