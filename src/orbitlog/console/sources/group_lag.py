"""Lag of consumer groups: committed offsets against the ends of queues, both from a sample; no request is sent.

A group counts from offset 0 in a queue without a commit, as `mqadmin consumerProgress` does. An end that was not read
makes the sum unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample
from orbitlog.formats.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueLag:
    """Progress of a group in one queue; None stands for an unknown number."""

    queue: MessageQueue
    committed: int | None
    end: int | None
    as_of_ms: int | None

    @property
    def lag(self) -> int | None:
        return None if self.end is None else max(0, self.end - (self.committed or 0))


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The sum over all queues, or None with the reason."""

    lag: int | None
    reason: str | None
    topics: tuple[str, ...]


def queue_lags(sample: ClusterSample, group: str) -> Iterator[QueueLag]:
    """Yield the progress in every queue of the topics that the group has committed offsets for."""
    for broker in sample.masters:
        for topic, offsets in broker.offsets_of_groups.get(group, ()):
            yield from _queues(sample, broker, topic, offsets)


def _queues(
    sample: ClusterSample, broker: BrokerSample, topic: str, committed: Mapping[int, int]
) -> Iterator[QueueLag]:
    part = sample.ends.get((broker.name, topic))
    if part is None or part.value is None:
        for queue_id, offset in sorted(committed.items()):
            yield QueueLag(MessageQueue(topic, broker.name, queue_id), offset, None, None)
        return
    for queue, bounds in part.value.offsets.items():
        yield QueueLag(queue, committed.get(queue.queue_id), bounds.max_queue_offset, part.as_of_ms)


def group_lag(sample: ClusterSample, group: str) -> GroupLag:
    """Return the lag of a group over all brokers."""
    total = 0
    topics: set[str] = set()
    unread: set[str] = set()
    for queue in queue_lags(sample, group):
        topics.add(queue.queue.topic)
        if queue.lag is None:
            unread.add(queue.queue.topic)
        else:
            total += queue.lag
    shown = tuple(sorted(topics))
    if unread:
        return GroupLag(None, f"the ends of {_named(unread)} were not read yet", shown)
    silent = [broker.name for broker in sample.masters if broker.offsets.value is None]
    if silent:
        return GroupLag(None, f"{_named(silent)} did not return committed offsets", shown)
    if not topics:
        return GroupLag(None, "the group has committed no offset", shown)
    return GroupLag(total, None, shown)


def _named(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
