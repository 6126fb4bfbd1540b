"""Order repair: corrects queue offsets, queue ids and topics of single messages from the order of the log alone.

It works without queue files; `header_repair` uses those first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orbitlog.doctor.examination import Examination
from orbitlog.doctor.repair.header_repair import QueueJumps, message_at, plan_record, unit_at
from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.doctor.repair.queue_order import Line, Room, Run, gaps_of, read_runs, solve_order
from orbitlog.doctor.surveys.store_survey import QUEUES_MAX
from orbitlog.formats import names
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.jobs.split_derivation import QUEUE_OFFSET_MAX
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.storefiles.config_reading import known_topics
from orbitlog.storefiles.findings import FindingKind
from orbitlog.storefiles.store_files import StoreFiles

_DOUBTFUL_MAX = 3  # messages of a queue that only flipped bits created
_TOPIC_BITS_MAX = 2
Queue = tuple[str, int]


class QueueOrder:
    """The queues of a log whose offsets are not in order, and the order that they must have had."""

    def __init__(self, store: StoreFiles, found: Examination, geometry: StoreGeometry, rules: DeriveRules) -> None:
        self._store = store
        self.lines: dict[Queue, Line] = {}
        self._doubtful: dict[Queue, list[Run]] = {}
        log_start = store.segments[0].base if store.segments else 0
        queues = _troubled(found, log_start)
        if not queues:
            return
        runs = read_runs(store, geometry, rules, queues)
        self._doubtful = {queue: each for queue, each in runs.items() if self._is_doubtful(queue, each, log_start)}
        room = Room(found.ranges, tuple(sorted(place for place, _, _ in self._doubtful_messages())))
        for queue, each in runs.items():
            is_doubtful = queue in self._doubtful
            line = solve_order(each, room, log_start=log_start) if self._is_known(queue) or not is_doubtful else None
            # A queue that may not exist counts if its messages agree with each other.
            if line is not None and (line.moved or not is_doubtful):
                self.lines[queue] = line
                self._doubtful.pop(queue, None)

    def _is_doubtful(self, queue: Queue, runs: Sequence[Run], log_start: int) -> bool:
        """Return whether a queue may not exist: it has a few messages, and nothing else refers to it."""
        if sum(len(run.places) for run in runs) > _DOUBTFUL_MAX or self._has_unit(queue, runs):
            return False
        table = known_topics(self._store.root)
        is_unknown = table is not None and queue[0] not in table.topics
        return is_unknown or (log_start == 0 and bool(runs) and runs[0].first != 0)

    def _has_unit(self, queue: Queue, runs: Sequence[Run]) -> bool:
        """Return whether a unit of the queue points to one of these messages."""
        said = ((run.first + at, place) for run in runs for at, place in enumerate(run.places.tolist()))
        units = ((unit_at(self._store, queue, queue_offset), place) for queue_offset, place in said)
        return any(unit is not None and unit.physical_offset == place for unit, place in units)

    def _doubtful_messages(self) -> Iterator[tuple[int, Queue, int]]:
        for queue, runs in self._doubtful.items():
            for run in runs:
                for at, place in enumerate(run.places.tolist()):
                    yield place, queue, run.first + at

    def plan(self, journal: PlanJournal) -> None:
        """Plan to correct the queues and queue offsets of messages."""
        for (topic, queue_id), line in self.lines.items():
            for place, queue_offset in line.moved.items():
                message = message_at(self._store, place)
                if message is not None:
                    why = f"can only be message {queue_offset} of {topic} queue {queue_id}, because of its neighbours"
                    plan_record(journal, self._store, message._replace(queue_offset=queue_offset), why)
        for place, queue, queue_offset in self._doubtful_messages():
            homes = [home for home, gap in gaps_of(self.lines) if gap.after < place < gap.before]
            near = {home for home in homes if _is_near(queue, home) and self._leaves_out(home, queue_offset)}
            message = message_at(self._store, place)
            if len(near) == 1 and message is not None:
                topic, queue_id = near.pop()
                why = f"can only be message {queue_offset} of {topic} queue {queue_id}, which leaves it out"
                plan_record(journal, self._store, message._replace(topic=topic, queue_id=queue_id), why)
            elif message is not None and self._is_alone(queue, queue_offset):
                why = f"is the only message of {queue[0]} queue {queue[1]}, and its offset is out of range"
                plan_record(journal, self._store, message._replace(queue_offset=0), why)

    def _is_alone(self, queue: Queue, queue_offset: int) -> bool:
        """Return whether a message with an offset out of range is the only one of a known queue."""
        is_one = sum(len(run.places) for run in self._doubtful[queue]) == 1
        return is_one and self._is_known(queue) and not 0 <= queue_offset <= QUEUE_OFFSET_MAX

    def _is_known(self, queue: Queue) -> bool:
        """Return whether brokers have this queue, according to topics.json."""
        table = known_topics(self._store.root)
        if table is None:
            return True
        known = table.topics.get(queue[0])
        return known is not None and 0 <= queue[1] < max(known.read_queue_count, known.write_queue_count)

    def _leaves_out(self, queue: Queue, queue_offset: int) -> bool:
        return any(gap.first <= queue_offset < gap.stop for gap in self.lines[queue].gaps)


def _troubled(found: Examination, log_start: int) -> set[Queue]:
    """Return the queues whose offsets have gaps, fall back, are out of range, or do not start where the log does."""
    jumps = QueueJumps(found.check.findings)
    queues = set(jumps.jumps) | set(jumps.falls)
    for finding in found.check.findings:
        if finding.kind == FindingKind.QUEUE_ORDER and finding.topic is not None and finding.queue_id is not None:
            queues.add((finding.topic, finding.queue_id))
    if log_start == 0:
        queues |= {queue for queue, ends in found.check.ends.items() if ends.first != 0}
    # Light queues have no records of their own.
    return {queue for queue in queues if not queue[0].startswith(names.LMQ_PREFIX)}


def _is_near(queue: Queue, other: Queue) -> bool:
    """Return whether a few flipped bits turn one queue into another; an invalid queue id may have been any."""
    if queue[0] == other[0] and not 0 <= queue[1] < QUEUES_MAX:
        return True
    if queue[0] == other[0]:
        return (queue[1] ^ other[1]) & 0xFFFFFFFF != 0 and ((queue[1] ^ other[1]) & 0xFFFFFFFF).bit_count() == 1
    left, right = queue[0].encode(), other[0].encode()
    bits = sum((one ^ another).bit_count() for one, another in zip(left, right, strict=False))
    return queue[1] == other[1] and len(left) == len(right) and bits <= _TOPIC_BITS_MAX
