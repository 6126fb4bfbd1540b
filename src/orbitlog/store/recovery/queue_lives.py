"""Lives of queues: decides from the log which records belong to a queue now and which to a deleted topic.

A topic that is deleted and created again counts its queue offsets from 0 again, while its earlier records stay in the
CommitLog until their segments expire. Only the records of the last life belong into the queue. A topic that was
deleted and not created again has no queue at all. Pure functions: recovery and the doctor decide with the same rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from orbitlog.formats import names

Queue = tuple[str, int]

# Topics whose queues a broker creates itself and no request deletes: a missing queue was lost.
_NEVER_DELETED = (names.LMQ_PREFIX, names.SYSTEM_TOPIC_PREFIX)


@dataclass(slots=True)
class UnitRun:
    """Records of one queue whose queue offsets follow each other, in the order of the log.

    `begins_at` and `ends_at` are the physical offsets of the first and the last record. `matched_count` of their units
    are in the queue's files already.
    """

    first: int
    unit_count: int
    begins_at: int
    ends_at: int
    matched_count: int = 0

    @property
    def next_offset(self) -> int:
        return self.first + self.unit_count


@dataclass(frozen=True, slots=True)
class QueueLife:
    """The last life of a queue: its runs, and where the life before it ended if the log still has that one."""

    runs: Sequence[UnitRun]
    replaced_at: int | None = None
    """Physical offset at or after the last record that no longer belongs to the queue, before this life begins."""

    @property
    def begins_at(self) -> int:
        return self.runs[0].begins_at

    @property
    def ends_at(self) -> int:
        return self.runs[-1].ends_at

    @property
    def first(self) -> int:
        return self.runs[0].first


def last_life(runs: Sequence[UnitRun], *, unit_zero: int | None, log_start: int) -> QueueLife:
    """Return the last life among all runs of a queue; there is at least one run.

    `unit_zero` is the physical offset that the first unit of the queue's files refers to, None without units. It
    decides about a single record with queue offset 0, which may also be one whose queue offset or queue is damaged.
    """
    begin = 0
    for number in range(1, len(runs)):
        if runs[number].first == 0 and _is_beginning(runs, begin, number, unit_zero, log_start):
            begin = number
    return QueueLife(runs[begin:], runs[begin - 1].ends_at if begin else None)


def _is_beginning(runs: Sequence[UnitRun], begin: int, number: int, unit_zero: int | None, log_start: int) -> bool:
    """Return whether a life begins with a run that starts at queue offset 0."""
    if runs[number].unit_count > 1:
        return True
    expected = max(run.next_offset for run in runs[begin:number])
    if number + 1 < len(runs) and runs[number + 1].first >= expected:
        return False  # the life before continues after this record
    if unit_zero is None or unit_zero == runs[number].begins_at:
        return True
    is_of_life_before = unit_zero == runs[begin].begins_at if runs[begin].first == 0 else unit_zero < log_start
    return not is_of_life_before


def current_life(
    topic: str,
    runs: Sequence[UnitRun],
    topics: Collection[str] | None,
    *,
    unit_zero: int | None,
    log_start: int,
    first_unit: Callable[[QueueLife], tuple[int, int] | None],
) -> QueueLife:
    """Return the last life of a queue, begun after the deletion of its topic if that is not in topics.json.

    `first_unit` reads the queue's files, as `begun_after_deletion` needs them; it is called for such a topic only.
    """
    life = last_life(runs, unit_zero=unit_zero, log_start=log_start)
    if topics is None or topic in topics:
        return life
    return begun_after_deletion(life, topic, topics, first_unit(life))


def begun_after_deletion(
    life: QueueLife, topic: str, topics: Collection[str] | None, first_unit: tuple[int, int] | None
) -> QueueLife:
    """Return a life without the records of a deleted topic for which the queue's files have only fillers.

    A Java broker that deletes a topic dispatches messages sent just before it afterwards. That creates the queue again,
    with fillers in the place of the deleted units. `first_unit` is the queue offset and the physical offset of the
    first unit after the fillers at the beginning of the files, None if the files begin with something else.
    """
    if first_unit is None or _must_exist(topic, topics):
        return life
    queue_offset, physical_offset = first_unit
    run = life.runs[0]
    if not run.first < queue_offset < run.next_offset or not run.begins_at < physical_offset <= run.ends_at:
        return life
    rest = replace(run, first=queue_offset, unit_count=run.next_offset - queue_offset, begins_at=physical_offset)
    return QueueLife([rest, *life.runs[1:]], physical_offset - 1)


@dataclass(frozen=True, slots=True)
class DeletionEvidence:
    """What besides the log shows that a topic was deleted.

    Without `topics`, topics.json is missing or unreadable. Every record before `dispatched_before` had its unit at
    some time, so that a missing queue was removed; 0 if missing queues prove nothing. Topics that exist may have been
    created again after the records before `recreated_before`; 0 if that is not known or their queues were lost.
    """

    topics: Collection[str] | None
    queues_with_files: Collection[Queue]
    dispatched_before: int
    recreated_before: int = 0
    log_start: int = 0


def is_complete(
    lives: Mapping[Queue, QueueLife], topics: Collection[str] | None, queues_with_files: Collection[Queue]
) -> bool:
    """Return whether the queues look like all that a broker left; False if their files are all lost.

    No file at all is right only if the log has no message of a topic that exists.
    """
    if queues_with_files:
        return True
    return topics is not None and not any(_must_exist(topic, topics) for topic, _ in lives)


def deleted_queues(lives: Mapping[Queue, QueueLife], evidence: DeletionEvidence) -> set[Queue]:
    """Return the queues without files whose messages were deleted with their topic.

    A queue that has files is never one of them, whatever else is known.
    """
    with_files = set(evidence.queues_with_files)
    topics_with_files = {topic for topic, _ in with_files}
    siblings: dict[str, list[Queue]] = defaultdict(list)
    for queue, life in lives.items():
        if life.replaced_at is not None:
            siblings[queue[0]].append(queue)
    deleted = set()
    for queue, life in lives.items():
        topic = queue[0]
        if queue in with_files or _is_never_deleted(topic):
            continue
        # The messages of a deleted topic begin at 0; one whose topic is damaged has the offset of another queue.
        has_beginning = life.first == 0 or evidence.log_start > 0
        is_proven = has_beginning and life.ends_at < evidence.dispatched_before
        is_recreated = life.ends_at < evidence.recreated_before
        is_removed = topic not in topics_with_files and not _must_exist(topic, evidence.topics)
        if is_proven and (is_removed or is_recreated):
            deleted.add(queue)
        elif any(
            life.ends_at < lives[other].begins_at
            and (life.begins_at < (lives[other].replaced_at or 0) or (is_proven and other in with_files))
            for other in siblings[topic]
        ):
            # Another queue shows that the topic was deleted after these messages, and created again.
            deleted.add(queue)
    return deleted


def _must_exist(topic: str, topics: Collection[str] | None) -> bool:
    return not topics or topic in topics or _is_never_deleted(topic)


def _is_never_deleted(topic: str) -> bool:
    return topic.startswith(_NEVER_DELETED) or names.is_system_topic(topic)
