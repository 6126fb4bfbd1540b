"""Read plan: divides queue ranges into tasks, cutting long ranges and combining short ones.

Messages of a queue keep their order within a task. A queue is not a unit of work: a store may have ten thousand queues
with three messages each, or one with a hundred million. Long queues are cut at the same fractions of their lengths, and
the pieces of one fraction form a task: they are close together in the log, so a task maps only a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.pipeline.sources.broker_stores import BrokerStore, OptionError
from orbitlog.pipeline.sources.topic_offsets import Offsets, QueueKey
from orbitlog.storefiles.store_paths import StorePaths

if TYPE_CHECKING:
    from orbitlog.pipeline.sources.store_snapshot import StoreSnapshot

TASK_MESSAGES = 200_000
TASK_MESSAGES_MAX = 1_000_000
MESSAGES_MAX = 20_000_000_000
"""Messages of one plan, 100,000 tasks: a server or store that states senseless offsets must not fill the memory."""
_PIECE_MESSAGES_MIN = 4096  # the overhead of a piece equals some hundred messages
# On two cores, five tasks take as long as six, and thirteen as long as fourteen: larger counts are multiples of four.
_FEW, _IN_FOURS = 2, 4


@dataclass(frozen=True, slots=True)
class StoreShape:
    """Location and file sizes of a store: everything that a task needs to read it."""

    broker_name: str
    root: str
    segment_bytes: int
    queue_file_bytes: int
    log_settings: tuple[tuple[str, str], ...] = ()
    dledger: str = ""
    """The directory of data files if DLedger replicates the log."""

    def __post_init__(self) -> None:
        # JSON turns the tuples into lists, which cannot be hashed (`_paths_of` caches by shape).
        object.__setattr__(self, "log_settings", tuple((key, text) for key, text in self.log_settings))

    @property
    def paths(self) -> StorePaths:
        paths = BrokerStore(self.broker_name, self.root, self.log_settings).paths
        return replace(paths, dledger=Path(self.dledger)) if self.dledger else paths


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """A broker that is read over the network; plans may be saved, so it holds neither addresses nor credentials."""

    broker_name: str


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Messages of one queue from `start` to before `stop`."""

    shape: StoreShape | ClusterShape
    topic: str
    queue_id: int
    start: int
    stop: int

    @property
    def message_count(self) -> int:
        return self.stop - self.start

    @property
    def store(self) -> StoreShape:
        """The store of a range that is read from files."""
        assert isinstance(self.shape, StoreShape), "a range of a cluster is read over the network"
        return self.shape


def plan_ranges(
    start: Mapping[QueueKey, int], end: Offsets, shapes: Mapping[str, StoreShape] | Mapping[str, ClusterShape]
) -> list[QueueRange]:
    """Return the ranges between two positions; a queue that only `end` contains was created later, and starts at 0."""
    ranges = (
        QueueRange(shapes[key.broker_name], key.topic, key.queue_id, start.get(key, 0), stop)
        for key, stop in sorted(end.items())
        if start.get(key, 0) < stop
    )
    return list(ranges)


def plan_tasks(ranges: Sequence[QueueRange], partitions_min: int | None = None) -> list[tuple[QueueRange, ...]]:
    """Divide ranges into tasks, at least about `partitions_min` of them."""
    total = sum(queue_range.message_count for queue_range in ranges)
    if total > MESSAGES_MAX:
        longest = max(ranges, key=lambda queue_range: queue_range.message_count)
        raise OptionError(
            f"the query covers {total} messages, at most {MESSAGES_MAX} are planned at once; the longest range is"
            f" {longest.start} to {longest.stop} of queue {longest.queue_id} of {longest.topic} at"
            f" {longest.shape.broker_name}: check these offsets, or set startingOffsets and endingOffsets"
        )
    task_messages, piece_max = TASK_MESSAGES, TASK_MESSAGES_MAX
    if partitions_min:
        task_messages = piece_max = max(min(total // partitions_min, TASK_MESSAGES_MAX), 1)
    count = _task_count(total, task_messages)
    is_long = [queue_range.message_count >= count * _PIECE_MESSAGES_MIN for queue_range in ranges]
    long = list(compress(ranges, is_long))
    short = [queue_range for queue_range, cut in zip(ranges, is_long, strict=True) if not cut]
    return _cut_all(long, task_messages) + _combine(short, task_messages, piece_max)


def _task_count(messages: int, task_messages: int) -> int:
    count = -(-messages // task_messages)
    return count if count <= _FEW else -(-count // _IN_FOURS) * _IN_FOURS


def _cut_all(ranges: Sequence[QueueRange], task_messages: int) -> list[tuple[QueueRange, ...]]:
    """Give each task the same fraction of every range."""
    count = _task_count(sum(queue_range.message_count for queue_range in ranges), task_messages)
    pieces = [_pieces(queue_range, count) for queue_range in ranges]
    return list(zip(*pieces, strict=True))


def _combine(ranges: Sequence[QueueRange], task_messages: int, piece_max: int) -> list[tuple[QueueRange, ...]]:
    """Fill tasks with one range after another; cut a range that is longer than a task."""
    tasks: list[tuple[QueueRange, ...]] = []
    pending: list[QueueRange] = []
    for queue_range in ranges:
        for piece in _pieces(queue_range, -(-queue_range.message_count // piece_max)):
            if pending and sum(added.message_count for added in pending) + piece.message_count > task_messages:
                tasks.append(tuple(pending))
                pending = []
            pending.append(piece)
    return [*tasks, tuple(pending)] if pending else tasks


def _pieces(queue_range: QueueRange, count: int) -> list[QueueRange]:
    edges = [queue_range.start + queue_range.message_count * number // count for number in range(count + 1)]
    return [replace(queue_range, start=start, stop=stop) for start, stop in pairwise(edges)]


def shape_of(snapshot: StoreSnapshot) -> StoreShape:
    """Return what tasks need to read the store of a snapshot."""
    store, dledger = snapshot.store, snapshot.files.paths.dledger
    return StoreShape(
        store.broker_name,
        store.root,
        snapshot.segment_bytes,
        snapshot.queue_file_bytes,
        store.log_settings,
        "" if dledger is None else str(dledger.absolute()),
    )
