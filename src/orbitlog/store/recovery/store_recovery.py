"""Store recovery: makes queues and index consistent with the log when a store is opened.

The log decides. Units and keys that Orbitlog's state file covers are kept, later ones are derived from the log into the
same positions; only then are units without a record removed. Without a valid state file, as after a Java broker, the
whole log is surveyed first: queues that are consistent with it are kept byte for byte, the others are rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.errors import FormatError, StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import Checkpoint, decode_checkpoint
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.store_state import (
    RECOVERY_FILE,
    STATE_FILE,
    LastRecord,
    RecoveryNote,
    StoreState,
    decode_recovery_note,
    decode_state,
    encode_recovery_note,
)
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, RECORD_START, Message, decode_message, encode_message
from orbitlog.formats.records.message_scan import BLANK, MAGIC_BLANK, Damage, LogEnd, SegmentEnd, read_at
from orbitlog.store.derived.index_files import IndexBoundary, IndexFile, IndexFiles
from orbitlog.store.derived.queue_set import QueueSet
from orbitlog.store.dispatch.arrival import Progress
from orbitlog.store.dispatch.dispatcher import Dispatcher
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.log.log_end import FoundEnd, KnownLog, find_log_end, is_torn
from orbitlog.store.store_notices import NoticeSubject, StoreNotice
from orbitlog.storefiles.disk import Disk

if TYPE_CHECKING:
    from orbitlog.store.recovery.recovery_plan import LeftOutUnits, RecoveryPlan

_RECORD_TAIL_BYTES = 64
_MAGICS_AFTER_A_RECORD = frozenset((0, MAGIC_BLANK, MAGIC_V1, MAGIC_V2))


@dataclass(frozen=True, slots=True)
class StoreParts:
    log: CommitLog
    queues: QueueSet
    index: IndexFiles
    dispatcher: Dispatcher


@dataclass(frozen=True, slots=True)
class FoundStore:
    """The state of a store before its recovery.

    `was_closed` if there is no abort file. `note` is that of a recovery that did not end. With `is_foreign` another
    broker may have written the last records, although Orbitlog wrote the checkpoint: a slave had the store.
    """

    disk: Disk
    root: Path
    rules: DeriveRules
    checkpoint: Checkpoint
    state: StoreState | None
    was_closed: bool
    note: RecoveryNote | None = None
    is_foreign: bool = False
    dispatch_limit: int = LONG_MAX
    """Dispatch no further: later messages of a replica group are not confirmed, and a failover may remove them."""


@dataclass(frozen=True, slots=True)
class RecoverySteps:
    """Callbacks of a recovery.

    `begin` is called before the first byte of the store changes, with the recovery note if the state file is not valid.
    `distrust_keys` is called before index files are created that the state does not cover: after a power cut the next
    recovery would take them for those that it does.
    """

    begin: Callable[[RecoveryNote | None], None]
    distrust_keys: Callable[[StoreState], None]
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class RecoveryDecision:
    """What recovery will do, decided before the first byte changes.

    `state` is the state file if it is valid. Without a `plan`, everything up to `trusted_to` is kept.
    """

    state: StoreState | None
    end: FoundEnd
    trusted_to: int
    plan: RecoveryPlan | None
    note: RecoveryNote | None
    passes: _Passes


def decide(parts: StoreParts, found: FoundStore, progress: Progress | None = None) -> RecoveryDecision:
    """Find the end of the log and decide about every queue; raise `StoreLayoutError` for a store to be refused.

    Reads only.
    """
    log, queues = parts.log, parts.queues
    check_whole(log)
    known = known_log(found.checkpoint, found.state, was_closed=found.was_closed)
    if found.is_foreign:
        known = replace(known, is_own=False)
    state = found.state if _is_state_valid(log, found.checkpoint, found.state) else None
    if state is None and known.is_own:
        _refuse_zeroed_record(parts.log, found)
    trusted_to = state.dispatched_to if state else log.min_physical_offset
    passes = _Passes(progress, is_surveyed=state is None)
    end = find_log_end(log, trusted_to, known, passes.followed)
    if state is None and not log.segments.is_empty:
        _refuse_short_log(parts, found, end)
    plan, note = None, None
    is_covered = state is not None or end.physical_offset == log.min_physical_offset
    if is_covered:
        _begin_queues(queues, trusted_to)
        is_covered = state is None or queues.unit_count == state.unit_count  # else a queue lost files
        if is_covered and state is not None and not log.segments.is_empty:
            from orbitlog.store.recovery.foreign_queues import SAMPLED, refuse_foreign_queues  # not for a new store

            refuse_foreign_queues(parts, found, end.physical_offset, end.damage, queues_max=SAMPLED)
    if not is_covered:
        from orbitlog.store.recovery.queue_recovery import (
            plan_queues,  # only a store without a valid state file needs it
        )

        plan, note = plan_queues(parts, found, end, trusted_to, passes.surveyed)
        trusted_to = plan.derive_from
    return RecoveryDecision(state, end, trusted_to, plan, note, passes)


def recover(parts: StoreParts, found: FoundStore, steps: RecoverySteps) -> list[StoreNotice]:
    """Find the end of the log, and make queues and index consistent with it; return notices for the operator."""
    log, queues, index, dispatcher = parts.log, parts.queues, parts.index, parts.dispatcher
    decision = decide(parts, found, steps.progress)
    state, end, trusted_to, plan = decision.state, decision.end, decision.trusted_to, decision.plan
    passes = decision.passes
    notices = [*(plan.notices if plan is not None else []), *index_notice(index)]
    steps.begin(decision.note)
    log.recover_to(end.physical_offset, flushed_to=state.dispatched_to if state else log.min_physical_offset)
    for damaged in end.damage:
        dispatcher.note_damage(damaged.physical_offset, damaged.size_bytes, damaged.reason)
    if state is not None and _keep_known_keys(log, index, state, was_closed=found.was_closed):
        boundary = IndexBoundary(state.dispatched_to, 0)
    else:
        if state is not None:
            steps.distrust_keys(state)
        boundary = _rename_doubtful(log, index, keep_full=state is not None, keep_last=found.was_closed)
    if state is not None and state.last_record is not None:
        # The next state file records it again, though a checkpoint of 4.9 does not have its offset.
        dispatcher.last_physical_offset = state.last_record.physical_offset
    dispatcher.start(_dispatch_from(log, trusted_to, boundary.physical_offset), boundary)
    dispatcher.leave_out(plan.left_out if plan is not None else _left_out_before(trusted_to))
    dispatcher.catch_up(min(log.written_to, found.dispatch_limit), passes.derived)
    if plan is not None:
        passes.derived(0, 0)
    dispatcher.leave_out(None)
    for queue in queues:
        queue.end_recovery()
        queue.correct_min_offset(log.min_physical_offset)
        queues.used(queue)  # of ten thousand queues only some can be open at a time
    queues.forget_empty()
    index.discard_aside()
    return notices


def index_notice(index: IndexFiles) -> list[StoreNotice]:
    """Return a notice if index files are rebuilt because of their size or header."""
    if not index.odd_sized_count:
        return []
    sentence = (
        f"{index.odd_sized_count} index files are damaged or have another size than maxHashSlotNum and maxIndexNum"
        " give: they and later ones were rebuilt from the CommitLog"
    )
    return [StoreNotice(NoticeSubject.RECOVERY, sentence)]


def _left_out_before(trusted_to: int) -> LeftOutUnits:
    """Leave out every unit of records before `trusted_to`, which a valid state file covers.

    Dispatch starts earlier if index files are rebuilt. Records of deleted topics would get their queues back.
    """
    from orbitlog.store.recovery.recovery_plan import LeftOutUnits

    return LeftOutUnits(all_before=trusted_to)


def _refuse_short_log(parts: StoreParts, found: FoundStore, end: FoundEnd) -> None:
    """Raise `StoreLayoutError` if the log lacks messages that it must have had."""
    from orbitlog.store.recovery.short_log import OpenedLog, refuse_short_log  # only without a valid state file

    state = found.state if found.state is not None and goes_with(found.checkpoint, found.state) else None
    refuse_short_log(
        OpenedLog(
            found.root,
            parts.log,
            parts.queues,
            parts.index,
            end.physical_offset,
            end.last_store_timestamp_ms,
            found.checkpoint,
            state,
            was_closed=found.was_closed,
        )
    )


class _Passes:
    """Makes one progress of several passes over the log: following it to its end, surveying it, deriving from it."""

    def __init__(self, progress: Progress | None, *, is_surveyed: bool) -> None:
        self._progress = progress
        self._count = 3 if is_surveyed else 2
        self._followed_bytes = 0

    def followed(self, done_bytes: int, total_bytes: int) -> None:
        self._followed_bytes = done_bytes
        if self._progress is not None:
            self._progress(done_bytes // self._count, total_bytes)

    def surveyed(self, done_bytes: int, total_bytes: int) -> None:
        self._count = 3
        if self._progress is not None:
            self._progress((total_bytes + done_bytes) // 3, total_bytes)

    def derived(self, done_bytes: int, total_bytes: int) -> None:
        if self._progress is None:
            return
        followed_bytes = self._followed_bytes
        if self._count == 3:  # from anywhere on: only queues that are not complete need it
            share = done_bytes * followed_bytes // total_bytes if total_bytes else followed_bytes
            self._progress((2 * followed_bytes + share) // 3, followed_bytes)
        else:
            self._progress((followed_bytes + done_bytes) // 2, (followed_bytes + total_bytes) // 2)


def check_whole(log: CommitLog) -> None:
    """Raise `StoreLayoutError` if a segment is missing: no crash does that, and the rest would be lost."""
    bases, segment_bytes = log.segments.bases, log.segments.file_bytes
    for base, following in pairwise(bases):
        if following != base + segment_bytes:
            raise StoreLayoutError(
                f"{log.segments.directory} lacks the segment that starts at {base + segment_bytes}; restore it,"
                " or move all segments before it, or all after it, to another directory"
            )


def known_log(checkpoint: Checkpoint, state: StoreState | None, *, was_closed: bool) -> KnownLog:
    """Combine checkpoint and state file: a state that no longer covers queues still records what was durable.

    The end of the log is by Orbitlog if Orbitlog wrote the checkpoint: the one that belongs to the state or, if a crash
    came between the two writes, one whose timestamps are equal, as Orbitlog's are. Else another broker may have used
    the store since.
    """
    timestamp_ms, physical_offset = checkpoint.physic_msg_timestamp_ms, checkpoint.logics_physical_offset
    if state is None:
        return KnownLog(False, timestamp_ms, physical_offset)
    is_like_ours = not was_closed and timestamp_ms == checkpoint.logics_msg_timestamp_ms
    return KnownLog(
        is_like_ours or goes_with(checkpoint, state),
        max(timestamp_ms, state.physic_msg_timestamp_ms),
        max(physical_offset, state.dispatched_to - 1),
    )


def goes_with(checkpoint: Checkpoint, state: StoreState) -> bool:
    """Return whether a state file was written with that checkpoint."""
    stamps = checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms
    return stamps == (state.physic_msg_timestamp_ms, state.logics_msg_timestamp_ms)


def _is_state_valid(log: CommitLog, checkpoint: Checkpoint, state: StoreState | None) -> bool:
    """Return whether the state file matches the store: with another checkpoint, another broker has written to it."""
    if state is None or not log.min_physical_offset <= state.dispatched_to <= log.segments.end:
        return False
    if not goes_with(checkpoint, state):
        return False
    if state.last_record is not None:
        found = _read_at(log, state.last_record.physical_offset)
        return isinstance(found, Message) and state.last_record.is_in(encode_message(found))
    return _has_record(log, checkpoint.logics_physical_offset, state.dispatched_to)


def _has_record(log: CommitLog, physical_offset: int, dispatched_to: int) -> bool:
    """Return whether the log has the last dispatched record; without it the state belongs to another log.

    The state file is of an earlier version of Orbitlog, and has no checksum of that record.
    """
    if not log.min_physical_offset < physical_offset < dispatched_to:
        # There was none, or an older checkpoint version does not record it.
        return _may_be_boundary(log, dispatched_to)
    found = _read_at(log, physical_offset)
    return isinstance(found, Message) and not is_torn(found)


def _read_at(log: CommitLog, physical_offset: int) -> Message | SegmentEnd | LogEnd | Damage | None:
    """Return what the log has at an offset; None if the segment is not there."""
    base = log.segments.base_of(physical_offset)
    if not log.segments.has(base):
        return None
    view = log.segments.file(base).view()
    try:
        return read_at(view, physical_offset - base, base_physical_offset=base)
    finally:
        view.release()


def _refuse_zeroed_record(log: CommitLog, found: FoundStore) -> None:
    """Raise `StoreLayoutError` if the last record that the state file covers has lost properties to zeros.

    It was durable, so no crash did that; the checksums inside the record do not show it.
    """
    state = found.state
    if state is None or not goes_with(found.checkpoint, state):
        return
    last = state.last_record
    record = _read_at(log, last.physical_offset if last is not None else found.checkpoint.logics_physical_offset)
    if isinstance(record, Message) and is_zeroed(record, last):
        raise StoreLayoutError(
            f"store not opened: {STATE_FILE} records messages up to {state.dispatched_to}, but the last of them, at"
            f" physical offset {record.physical_offset} of {log.segments.directory}, has zeros in place of properties;"
            f" restore the log, or give up that message with `orbitlog doctor repair {found.root} --apply`"
        )


def is_zeroed(record: Message, last: LastRecord | None) -> bool:
    """Return whether a record that the state file covers has zeros in place of its properties.

    `last` is the record as the state file has it. Without it no broker but Orbitlog may have written the record.
    """
    return is_torn(record) and (last is None or not last.is_in(encode_message(record)))


def _may_be_boundary(log: CommitLog, physical_offset: int) -> bool:
    """Return whether a record can end at that offset: one in another log, or one that was lost, rarely ends there."""
    segments = log.segments
    base = segments.base_of(physical_offset)
    if segments.is_empty or not segments.has(base) or physical_offset == base:
        return True
    file, position = segments.file(base), physical_offset - base
    tail_bytes = min(position, _RECORD_TAIL_BYTES)
    if not any(file.read(position - tail_bytes, tail_bytes)):
        return False  # no record ends with 64 zeros
    if segments.file_bytes - position < BLANK.size_bytes:
        return True
    _, magic = BLANK.struct.unpack(file.read(position, BLANK.size_bytes))
    return magic in _MAGICS_AFTER_A_RECORD  # zeros also begin a record that a crash has torn


def _keep_known_keys(log: CommitLog, index: IndexFiles, state: StoreState, *, was_closed: bool) -> bool:
    """Cut the index to the keys that the state covers; return False if it does not have them all."""
    if index.odd_sized_count:
        return False
    if was_closed:
        return index.key_count == state.key_count and index.files_before(log.written_to) == index.file_count
    if state.key_count == 0 and index.file_count <= 1:
        index.set_aside(0)
        return True
    number, key_count = index.find_key(state.key_count)
    if number is None or index.files_before(log.written_to) < number:
        return False
    if not _cut_index(log, index.file(number), key_count, state.dispatched_to):
        return False
    index.set_aside(number + 1)
    return True


def _cut_index(log: CommitLog, file: IndexFile, key_count: int, dispatched_to: int) -> bool:
    """Cut an index file to keys known to be durable: deriving all of them again would take long."""
    newest = file.entry_offset(key_count)
    record = log.read_record(newest) if newest < dispatched_to else None
    try:
        message = decode_message(record, physical_offset=newest) if record else None
    except FormatError:
        return False
    header = file.header_with(key_count, message.store_timestamp_ms) if message else None
    if header is None:
        return False
    file.cut_to(header)
    return True


def _rename_doubtful(log: CommitLog, index: IndexFiles, *, keep_full: bool, keep_last: bool) -> IndexBoundary:
    """Rename index files that may be invalid after a crash or do not match the log; return the end of the others."""
    index.set_aside_odd_sized()
    index.set_aside(min(index.files_before(log.written_to), _files_of_log(log, index)))
    if not keep_last:
        # The last file may be torn; without a valid state file all others may be as well.
        index.set_aside(index.file_count - 1 if keep_full else 0)
    return index.boundary()


def _files_of_log(log: CommitLog, index: IndexFiles) -> int:
    """Count the index files before the first one whose last key belongs to no record of the log."""
    for number, file in enumerate(index):
        last = file.header.end_physical_offset
        if not file.header.key_count or last < log.min_physical_offset:
            continue
        record = log.read_record(last)
        if record is None or RECORD_START.unpack_from(record)[2] != last:
            return number
    return index.file_count


def _begin_queues(queues: QueueSet, trusted_to: int) -> None:
    for queue in queues:
        queue.begin_recovery(trusted_to)
        queues.used(queue)


def _dispatch_from(log: CommitLog, trusted_to: int, indexed_to: int) -> int:
    """Return the record to start at: the earlier of the two, or the log's start if the index is older than the log."""
    if indexed_to < log.min_physical_offset:
        return log.min_physical_offset
    return min(trusted_to, indexed_to)


def read_checkpoint(disk: Disk, root: Path) -> Checkpoint:
    """Return the checkpoint; zeros if it is missing or unreadable, which means that everything must be read."""
    raw = disk.read_file(root / tree.CHECKPOINT)
    try:
        return decode_checkpoint(raw) if raw else Checkpoint()
    except FormatError:
        return Checkpoint()


def read_state(disk: Disk, root: Path) -> StoreState | None:
    raw = disk.read_file(root / STATE_FILE)
    try:
        return decode_state(raw) if raw else None
    except FormatError:
        return None


def read_recovery_note(disk: Disk, root: Path) -> RecoveryNote | None:
    """Return the note of a recovery that did not end; None if there was none."""
    raw = disk.read_file(root / RECOVERY_FILE)
    try:
        return decode_recovery_note(raw) if raw else None
    except FormatError:
        return None


def write_recovery_note(disk: Disk, root: Path, note: RecoveryNote) -> None:
    disk.replace_file(root / RECOVERY_FILE, encode_recovery_note(note))


def remove_recovery_note(disk: Disk, root: Path) -> None:
    """Remove the note of a recovery that has ended; if a power cut brings it back, the valid state file is used."""
    disk.remove_file(root / RECOVERY_FILE)
