"""Short log: refuses a store whose log ends before messages that queues, index, checkpoint or state refer to.

After a crash queues may be ahead of the log by pages that never reached the disk; only evidence that a crash cannot
produce counts. A broker that was stopped cleanly had flushed its log first, so there everything counts: a log that ends
earlier was restored from an older copy, or its last part was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import Checkpoint
from orbitlog.formats.derived.store_state import STATE_FILE, StoreState
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, RECORD_START
from orbitlog.formats.records.message_scan import MAGIC_BLANK
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.store.derived.queue_set import QueueSet
from orbitlog.store.log.commitlog import CommitLog

# A bit error can make one unit refer to any offset, but not two of them.
ENOUGH_EVIDENCE = 2


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """What recovery knows when it has found the end of the log, before it changes anything."""

    root: Path
    log: CommitLog
    queues: QueueSet
    index: IndexFiles
    end: int
    last_store_timestamp_ms: int
    checkpoint: Checkpoint
    state: StoreState | None
    was_closed: bool


def refuse_short_log(opened: OpenedLog) -> None:
    """Raise `StoreLayoutError` if the log ends before messages that it must have had.

    Four cases: files are missing after the last segment; the log has no record at all, although records were flushed
    or the store was closed cleanly; queues continue at a record of an unknown version, which a newer broker wrote; or
    the last messages are missing although the store was closed cleanly or its state file covers them.
    """
    log, end = opened.log, opened.end
    files_end = log.segments.end
    if (evidence := _evidence(opened, files_end)) is not None:
        raise StoreLayoutError(
            f"store not opened: the last segment of {log.segments.directory} ends at physical offset {files_end}, but"
            f" {evidence}; restore the segments after it, or run `orbitlog doctor check`"
        )
    if end == log.min_physical_offset and (evidence := _evidence(opened, end)) is not None:
        raise StoreLayoutError(
            f"store not opened: {log.segments.directory} holds no message from physical offset {end} on, but"
            f" {evidence}; restore the log, or run `orbitlog doctor check`"
        )
    if _has_unknown_record(log, end) and (evidence := _evidence(opened, end)) is not None:
        raise StoreLayoutError(
            f"store not opened: the record at physical offset {end} of {log.segments.directory} has an unknown magic,"
            f" and {evidence}; open the store with the broker version that wrote it, or run `orbitlog doctor check`"
        )
    has_state = opened.state is not None and opened.state.dispatched_to > end
    if (opened.was_closed or has_state) and (evidence := _evidence(opened, end)) is not None:
        stopped = ", and the broker was stopped cleanly" if opened.was_closed else ""
        raise StoreLayoutError(
            f"store not opened: the log in {log.segments.directory} ends at physical offset {end}, but {evidence}"
            f"{stopped}; restore the log, or give up the messages after it with `orbitlog doctor repair {opened.root}"
            " --apply`"
        )
    flushed_ms = opened.checkpoint.physic_msg_timestamp_ms
    if (
        not opened.was_closed
        and flushed_ms > opened.last_store_timestamp_ms
        and (units := _units_from(opened.queues, end))
    ):
        raise StoreLayoutError(
            f"store not opened: the log in {log.segments.directory} ends at physical offset {end} with a message stored"
            f" at {opened.last_store_timestamp_ms}, but {tree.CHECKPOINT} records a flush of messages stored up to"
            f" {flushed_ms}, and {units[0]} refers to messages after it; restore the log, or give up these messages"
            f" with `orbitlog doctor repair {opened.root} --apply`"
        )


def _evidence(opened: OpenedLog, end: int) -> str | None:
    """Return a clause that names what refers to messages at or after `end`, or None if there is too little evidence."""
    found: list[str] = []
    weight = 0
    state, checkpoint = opened.state, opened.checkpoint
    if state is not None and state.dispatched_to > end:
        found.append(f"{STATE_FILE} records messages up to {state.dispatched_to}")
        weight += ENOUGH_EVIDENCE  # it has a checksum
    is_flushed = checkpoint.logics_physical_offset >= end and checkpoint.logics_physical_offset > 0
    if is_flushed or (end == 0 and checkpoint.physic_msg_timestamp_ms > 0):
        found.append(f"{tree.CHECKPOINT} records a flushed message after it")
        weight += ENOUGH_EVIDENCE if end == 0 else 1
    # After a crash a young log may be empty while queue pages are durable; but a segment's name is durable before its
    # first record, so a unit after the last segment always means that a file is missing.
    if opened.was_closed or end >= opened.log.segments.end:
        units = _units_from(opened.queues, end)
        if units:
            found.append(f"{units[0]} refers to messages after it")
            weight += len(units)
        if any(file.header.end_physical_offset >= end and file.header.end_timestamp_ms for file in opened.index):
            found.append("the index refers to messages after it")
            weight += 1
    return " and ".join(found) if weight >= ENOUGH_EVIDENCE else None


def _units_from(queues: QueueSet, physical_offset: int) -> list[str]:
    """Return the directory of a queue for each of its last units that refers to that offset or a later one."""
    found: list[str] = []
    for queue in queues:
        for entry in queue.last_entries(ENOUGH_EVIDENCE):
            if not entry.is_pre_blank and entry.physical_offset >= physical_offset:
                # No bit error makes a unit refer to just that offset: the log had a record there.
                weight = ENOUGH_EVIDENCE if entry.physical_offset == physical_offset else 1
                found += [str(queue.segments.directory)] * weight
        queues.used(queue)
        if len(found) >= ENOUGH_EVIDENCE:
            break
    return found


def _has_unknown_record(log: CommitLog, end: int) -> bool:
    """Return whether bytes at the end of the log look like a record with a magic that is not known here."""
    base = log.segments.base_of(end)
    if not log.segments.has(base):
        return False
    raw = log.segments.file(base).read(end - base, RECORD_START.size)
    if len(raw) < RECORD_START.size:
        return False
    size_bytes, magic, physical_offset = RECORD_START.unpack(raw)
    fits_in = RECORD_START.size < size_bytes <= base + log.segments.file_bytes - end
    return fits_in and physical_offset == end and magic not in (0, MAGIC_BLANK, MAGIC_V1, MAGIC_V2)
