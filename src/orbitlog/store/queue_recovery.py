"""Queue recovery without a valid state file: surveys the log and decides about every queue before a byte changes."""

from __future__ import annotations

from orbitlog.store.deletion_evidence import durable_before, has_queue_directory, known_topics
from orbitlog.store.dispatcher import Progress
from orbitlog.store.queue_lives import DeletionEvidence, is_complete
from orbitlog.store.queue_survey import survey_queues
from orbitlog.store.recovery_plan import RecoveryPlan, find_lives, plan_recovery
from orbitlog.store.store_recovery import FoundStore, StoreParts


def plan_queues(
    parts: StoreParts, found: FoundStore, log_end: int, covered_to: int, progress: Progress
) -> tuple[RecoveryPlan, int]:
    """Survey the whole log and decide about every queue; also return the offset for the recovery note.

    `covered_to` is the physical offset up to which a valid state file covers the log.
    """
    log, queues, dispatcher = parts.log, parts.queues, parts.dispatcher
    log_start = log.min_physical_offset
    survey = survey_queues(log, log_end, queues, found.rules, progress)
    lives = find_lives(survey, queues, log_start)
    topics = known_topics(found.disk, found.root)
    with_files = {(queue.topic, queue.queue_id) for queue in queues if not queue.segments.is_empty}
    before = found.noted_before
    if found.was_closed or before is None:
        before = 0
        if not lives.keys() <= with_files:
            durable_to = log_end if found.was_closed else durable_before(log, found.checkpoint, log_end)
            proven_to = max(durable_to, covered_to)
            if not has_queue_directory(found.disk, found.root) or not is_complete(lives, topics, with_files):
                proven_to = 0  # all queues were lost: the absence of one proves nothing
            before = proven_to
    evidence = DeletionEvidence(topics, with_files, before, log_start)
    plan = plan_recovery(lives, queues, evidence, log_start=log_start, log_end=log_end)
    if survey.is_damaged:
        plan.derive_from = log_start  # the dispatcher reports what it meets
    dispatcher.last_physical_offset = survey.last_physical_offset
    dispatcher.last_store_timestamp_ms = survey.last_store_timestamp_ms
    return plan, before
