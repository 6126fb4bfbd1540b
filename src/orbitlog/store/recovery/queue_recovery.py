"""Queue recovery without a valid state file: surveys the log and decides about every queue before a byte changes."""

from __future__ import annotations

from dataclasses import replace

from orbitlog.formats.derived.store_state import RecoveryNote
from orbitlog.store.dispatch.arrival import Progress
from orbitlog.store.log.log_end import FoundEnd
from orbitlog.store.recovery.deletion_evidence import (
    has_queue_directory,
    known_topics,
    stored_after,
    were_removed_by_broker,
)
from orbitlog.store.recovery.foreign_queues import refuse_foreign_queues
from orbitlog.store.recovery.queue_lives import DeletionEvidence, is_complete
from orbitlog.store.recovery.queue_survey import survey_queues
from orbitlog.store.recovery.recovery_plan import RecoveryPlan, find_lives, plan_recovery
from orbitlog.store.recovery.store_recovery import FoundStore, StoreParts


def plan_queues(
    parts: StoreParts, found: FoundStore, end: FoundEnd, covered_to: int, progress: Progress
) -> tuple[RecoveryPlan, RecoveryNote]:
    """Survey the whole log and decide about every queue; also return the recovery note.

    `covered_to` is the physical offset up to which a valid state file covers the log. Raise `StoreLayoutError` if the
    queues are those of another log.
    """
    log, queues, dispatcher, log_end = parts.log, parts.queues, parts.dispatcher, end.physical_offset
    refuse_foreign_queues(parts, found, log_end, end.damage)
    log_start = log.min_physical_offset
    survey = survey_queues(log, log_end, queues, found.rules, progress)
    with_files = {(queue.topic, queue.queue_id) for queue in queues if not queue.segments.is_empty}
    table = known_topics(found.disk, found.root)
    topics = set(table.topics) if table is not None else None
    lives = find_lives(survey, queues, topics, log_start)
    note = found.note if not found.was_closed else None
    if note is not None:
        with_files -= set(note.created)  # by the recovery that did not end
    else:
        note = RecoveryNote(0, 0)
        missing = {topic for topic, _ in lives.keys() - with_files}
        is_lost = not has_queue_directory(found.disk, found.root) or not is_complete(lives, topics, with_files)
        if missing and not is_lost:  # of a store that lost all queues, the absence of one proves nothing
            safe_ms = found.checkpoint.min_timestamp_ms
            durable_to = log_end if found.was_closed else stored_after(log, safe_ms, log_end)
            note = RecoveryNote(max(durable_to, covered_to), 0)
            if table is not None and found.was_closed and were_removed_by_broker(found.disk, found.root, missing):
                note = replace(note, recreated_before=stored_after(log, table.data_version.timestamp_ms, log_end))
    evidence = DeletionEvidence(topics, with_files, note.dispatched_before, note.recreated_before, log_start)
    plan = plan_recovery(lives, queues, evidence, log_start=log_start, log_end=log_end)
    note = replace(note, created=tuple(dict.fromkeys((*note.created, *plan.created))))
    if survey.is_damaged:
        plan.derive_from = log_start  # the dispatcher reports what it meets
    dispatcher.last_physical_offset = survey.last_physical_offset
    dispatcher.last_store_timestamp_ms = survey.last_store_timestamp_ms
    return plan, note
