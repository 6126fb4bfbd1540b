"""What each task reads: ranges of queues, cut where they are long and put together where they are short.

Messages of a queue keep their order within a task. A queue is no unit of work: a store may have ten thousand of them
with three messages each, or one with a hundred million. Long queues are cut at the same shares of their lengths, and
the pieces of one share make a task: they lie near each other in the log, so that a task maps a part of it and not all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from orbitlog.pipeline.sources.named_stores import NamedStore
from orbitlog.pipeline.sources.topic_offsets import Offsets, QueueKey
from orbitlog.storefiles.store_paths import StorePaths

MESSAGES_TOGETHER = 200_000
MESSAGES_MAX = 1_000_000
_PIECE_MESSAGES_MIN = 4096  # a piece of its own costs as much as some hundred messages
# Five tasks take two cores as long as six, thirteen as long as fourteen: more than a few come in fours.
_FEW, _IN_FOURS = 2, 4


@dataclass(frozen=True, slots=True)
class StoreShape:
    """Where a store lies and how large its files are: what a task needs to know of it."""

    broker_name: str
    root: str
    segment_bytes: int
    queue_file_bytes: int
    log_settings: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        # Lists when they come from JSON.
        object.__setattr__(self, "log_settings", tuple((key, text) for key, text in self.log_settings))

    @property
    def paths(self) -> StorePaths:
        return NamedStore(self.broker_name, self.root, self.log_settings).paths


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Messages of one queue from `start` to before `stop`."""

    shape: StoreShape
    topic: str
    queue_id: int
    start: int
    stop: int

    @property
    def message_count(self) -> int:
        return self.stop - self.start


def plan_ranges(start: Mapping[QueueKey, int], end: Offsets, shapes: Mapping[str, StoreShape]) -> list[QueueRange]:
    """Return what lies between two positions; a queue that is only in the end began after the start, at 0."""
    ranges = (
        QueueRange(shapes[key.broker_name], key.topic, key.queue_id, start.get(key, 0), stop)
        for key, stop in sorted(end.items())
    )
    return [found for found in ranges if found.message_count > 0]


def plan_tasks(ranges: Sequence[QueueRange], partitions_min: int | None = None) -> list[tuple[QueueRange, ...]]:
    """Put ranges into tasks; `partitions_min` asks for at least about so many."""
    total = sum(found.message_count for found in ranges)
    together, largest = MESSAGES_TOGETHER, MESSAGES_MAX
    if partitions_min:
        together = largest = max(min(total // partitions_min, MESSAGES_MAX), 1)
    count = _task_count(total, together)
    is_long = [found.message_count >= count * _PIECE_MESSAGES_MIN for found in ranges]
    long = [found for found, is_one in zip(ranges, is_long, strict=True) if is_one]
    short = [found for found, is_one in zip(ranges, is_long, strict=True) if not is_one]
    return _side_by_side(long, together) + _one_by_one(short, together, largest)


def _task_count(messages: int, together: int) -> int:
    count = -(-messages // together)
    return count if count <= _FEW else -(-count // _IN_FOURS) * _IN_FOURS


def _side_by_side(ranges: Sequence[QueueRange], together: int) -> list[tuple[QueueRange, ...]]:
    """Give each task the same share of every range."""
    count = _task_count(sum(found.message_count for found in ranges), together)
    pieces = [_pieces(found, count) for found in ranges]
    return list(zip(*pieces, strict=True))


def _one_by_one(ranges: Sequence[QueueRange], together: int, largest: int) -> list[tuple[QueueRange, ...]]:
    """Fill tasks with range after range; one that is too long for a task is cut."""
    tasks: list[tuple[QueueRange, ...]] = []
    waiting: list[QueueRange] = []
    for found in ranges:
        for piece in _pieces(found, -(-found.message_count // largest)):
            if waiting and sum(each.message_count for each in waiting) + piece.message_count > together:
                tasks.append(tuple(waiting))
                waiting = []
            waiting.append(piece)
    return [*tasks, tuple(waiting)] if waiting else tasks


def _pieces(found: QueueRange, count: int) -> list[QueueRange]:
    marks = [found.start + found.message_count * number // count for number in range(count + 1)]
    return [replace(found, start=start, stop=stop) for start, stop in pairwise(marks)]


def shape_of(store: NamedStore, segment_bytes: int, queue_file_bytes: int) -> StoreShape:
    return StoreShape(store.broker_name, store.root, segment_bytes, queue_file_bytes, store.log_settings)
