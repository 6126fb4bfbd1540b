"""Recovery plan: which queues of a store without a valid state file are kept, and which records others get units of.

A queue whose files have exactly the units of its last life is kept byte for byte. The others are derived from the log,
from where their last life begins. Records of deleted topics and of earlier lives get no unit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from orbitlog.errors import FormatError
from orbitlog.formats.derived.queue_entry import decode_entry, first_after_fillers
from orbitlog.formats.java import LONG_MAX
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.derived.queue_set import QueueKey, QueueSet
from orbitlog.store.recovery.queue_lives import (
    DeletionEvidence,
    QueueLife,
    UnitRun,
    current_life,
    deleted_queues,
)
from orbitlog.store.recovery.queue_survey import QueueSurvey
from orbitlog.store.store_notices import NoticeSubject, StoreNotice

_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class ReusedOffsets:
    """Records of a run whose queue offsets from `queue_offset` on were assigned a second time."""

    begins_at: int
    ends_at: int
    queue_offset: int


@dataclass(slots=True)
class LeftOutUnits:
    """Records that get no unit while a store is recovered."""

    begins: dict[QueueKey, int] = field(default_factory=dict)
    """By queue: the physical offset of the first record that gets a unit, if earlier ones do not."""
    reused: dict[QueueKey, list[ReusedOffsets]] = field(default_factory=dict)
    all_before: int = 0
    """Physical offset before which no record gets a unit in any queue."""

    def first_taken(self, key: QueueKey) -> int:
        """Return the physical offset before which no record gets a unit in that queue."""
        return max(self.begins.get(key, 0), self.all_before)

    def takes(self, key: QueueKey, physical_offset: int, queue_offset: int) -> bool:
        """Return whether a record gets its unit in that queue."""
        if physical_offset < self.first_taken(key):
            return False
        return not any(
            run.begins_at <= physical_offset <= run.ends_at and queue_offset >= run.queue_offset
            for run in self.reused.get(key, ())
        )


@dataclass(slots=True)
class RecoveryPlan:
    """What to leave out, the physical offset from which units must be derived, and queues that get their first file."""

    left_out: LeftOutUnits
    derive_from: int
    created: list[QueueKey] = field(default_factory=list)
    notices: list[StoreNotice] = field(default_factory=list)


def find_lives(
    survey: QueueSurvey, queues: QueueSet, topics: Collection[str] | None, log_start: int
) -> dict[QueueKey, QueueLife]:
    """Return the last life of every queue that has records in the log; `topics` are those of topics.json."""
    lives = {}
    for key, runs in survey.runs.items():
        unit_zero = _unit_zero(queues, key) if len(runs) > 1 else None
        first_unit = partial(_first_after_fillers, queues, key)
        lives[key] = current_life(key[0], runs, topics, unit_zero=unit_zero, log_start=log_start, first_unit=first_unit)
    return lives


def _unit_zero(queues: QueueSet, key: QueueKey) -> int | None:
    queue = queues.find_key(key)
    if queue is None:
        return None
    raw = queue.stored_units(0, 1)
    queues.used(queue)
    try:
        entry = decode_entry(raw) if raw else None
    except FormatError:  # torn
        return None
    return None if entry is None or entry.is_pre_blank else entry.physical_offset


def _first_after_fillers(queues: QueueSet, key: QueueKey, life: QueueLife) -> tuple[int, int] | None:
    """Return queue offset and physical offset of the first unit, if the files have fillers from the life's start on."""
    queue, run = queues.find_key(key), life.runs[0]
    if queue is None or run.matched_count >= run.unit_count:
        return None
    units = queue.stored_units(run.first, run.unit_count)
    queues.used(queue)
    return first_after_fillers(units, run.first)


def plan_recovery(
    lives: dict[QueueKey, QueueLife], queues: QueueSet, evidence: DeletionEvidence, *, log_start: int, log_end: int
) -> RecoveryPlan:
    """Decide about every queue, and set those that have files to the unit at which recovery continues."""
    deleted = deleted_queues(lives, evidence)
    plan = RecoveryPlan(LeftOutUnits(), log_end)
    for key, life in lives.items():
        queue = queues.find_key(key)
        runs, reused = _without_reused(life.runs)
        if key in deleted:
            plan.left_out.begins[key] = LONG_MAX
        elif queue is not None and _keep_whole(queue, runs, log_start, log_end):
            plan.left_out.begins[key] = LONG_MAX
            queues.used(queue)
        else:
            if life.replaced_at is not None:
                plan.left_out.begins[key] = life.begins_at
            if reused:
                plan.left_out.reused[key] = reused
            plan.derive_from = min(plan.derive_from, life.begins_at)
            if queue is None or queue.segments.is_empty:
                plan.created.append(key)
    for queue in queues:
        key = queue.topic, queue.queue_id
        if plan.left_out.begins.get(key) != LONG_MAX:
            _begin_queue(queue, lives.get(key), log_start)
        queues.used(queue)
    plan.notices += _deleted_notice(lives, deleted)
    if evidence.dispatched_before and evidence.queues_with_files:
        plan.notices += _created_notice(plan.created)
    return plan


def _without_reused(runs: Sequence[UnitRun]) -> tuple[list[UnitRun], list[ReusedOffsets]]:
    """Take out records whose queue offsets were assigned again, if the queue's files have the later ones.

    A Java broker that lost the last units of a queue continues at the offset after those that it has.
    """
    kept: list[UnitRun] = []
    reused: list[ReusedOffsets] = []
    for run in runs:
        first = run.first
        while kept and run.matched_count and kept[-1].first <= first < kept[-1].next_offset:
            before = kept[-1]
            if before.matched_count > first - before.first:
                break  # the files have the earlier ones
            reused.append(ReusedOffsets(before.begins_at, before.ends_at, first))
            kept.pop()
            if first > before.first:
                kept.append(replace(before, unit_count=first - before.first))
        kept.append(run)
    return kept, reused


def _keep_whole(queue: ConsumeQueue, runs: Sequence[UnitRun], log_start: int, log_end: int) -> bool:
    """Keep a queue as it is if its files have the units of these runs and no others; return whether they do."""
    expected = first = runs[0].first
    for run in runs:
        if run.first != expected or run.matched_count != run.unit_count:
            return False
        expected = run.next_offset
    if first > queue.first_stored_offset and not queue.has_expired_unit(first - 1, log_start):
        return False
    queue.begin_recovery(log_end)
    return queue.max_offset == expected


def _begin_queue(queue: ConsumeQueue, life: QueueLife | None, log_start: int) -> None:
    queue.begin_recovery(log_start)
    if life is not None and life.first < queue.max_offset:
        queue.restart_at(life.first)


def _deleted_notice(lives: dict[QueueKey, QueueLife], deleted: set[QueueKey]) -> list[StoreNotice]:
    if not deleted:
        return []
    count = sum(run.unit_count for key in deleted for run in lives[key].runs)
    sentence = (
        f"{count} messages in the CommitLog belong to topics that were deleted ({_names(deleted)}) and are in no queue:"
        " their topics or queues have neither queue files nor later messages"
    )
    return [StoreNotice(NoticeSubject.RECOVERY, sentence)]


def _created_notice(created: list[QueueKey]) -> list[StoreNotice]:
    if not created:
        return []
    sentence = (
        f"{len(created)} queues of the topics {_names(created)} had no files and were rebuilt from the CommitLog; if a"
        " topic was deleted and created again since its last message, delete it again to remove these messages"
    )
    return [StoreNotice(NoticeSubject.RECOVERY, sentence)]


def _names(keys: Iterable[QueueKey]) -> str:
    topics = sorted({topic for topic, _ in keys})
    more = f" and {len(topics) - _NAMED_MAX} more" if len(topics) > _NAMED_MAX else ""
    return ", ".join(topics[:_NAMED_MAX]) + more
