"""Samples of a cluster: what name servers and brokers returned last, each part with its time and its problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from orbitlog.formats.tables.group_config import GroupConfig
from orbitlog.formats.tables.offset_tables import QueueOffsets
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.wire.bodies.queue_bodies import TopicStats

T = TypeVar("T")


@dataclass(frozen=True)
class Part(Generic[T]):
    """One answer of a server: the last value, when it was read, and the problem of the latest attempt."""

    value: T | None = None
    as_of_ms: int | None = None
    problem: str | None = None

    def failed(self, problem: str) -> Part[T]:
        """Return the last value with the problem of a later attempt."""
        return Part(self.value, self.as_of_ms, problem)


def message_count(stats: TopicStats) -> int:
    """Return the number of messages that the queues contain; the minimum offset of an empty queue may be -1."""
    return sum(max(0, bounds.max_queue_offset - max(bounds.min_queue_offset, 0)) for bounds in stats.offsets.values())


@dataclass(frozen=True)
class NameServerSample:
    """Brokers that one name server knows, by name: addresses by broker id."""

    address: str
    brokers: Part[Mapping[str, Mapping[int, str]]]
    clusters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BrokerSample:
    """One broker process: its run-time numbers, and, from a master, its tables."""

    name: str
    cluster: str
    broker_id: int
    address: str
    runtime: Part[Mapping[str, str]]
    topics: Part[Mapping[str, TopicConfig]] = Part()
    groups: Part[Mapping[str, GroupConfig]] = Part()
    offsets: Part[QueueOffsets] = Part()

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @cached_property
    def offsets_of_groups(self) -> Mapping[str, list[tuple[str, Mapping[int, int]]]]:
        """Committed offsets by group: topic, and offset by queue id."""
        by_group: dict[str, list[tuple[str, Mapping[int, int]]]] = {}
        for (topic, group), offsets in (self.offsets.value or {}).items():
            by_group.setdefault(group, []).append((topic, offsets))
        return by_group

    @property
    def problems(self) -> Iterator[tuple[str, str]]:
        """Missing parts: the name of the part, and the reason."""
        problems = {
            "run-time numbers": self.runtime.problem,
            "topics": self.topics.problem,
            "groups": self.groups.problem,
            "committed offsets": self.offsets.problem,
        }
        for name, problem in problems.items():
            if problem is not None:
                yield name, problem


@dataclass(frozen=True)
class ClusterSample:
    """The state of a cluster as it was read last. `ends` is by broker name and topic."""

    as_of_ms: int
    name_servers: tuple[NameServerSample, ...]
    brokers: tuple[BrokerSample, ...]
    ends: Mapping[tuple[str, str], Part[TopicStats]]

    @property
    def masters(self) -> Iterator[BrokerSample]:
        return (broker for broker in self.brokers if broker.is_master)

    @cached_property
    def topic_names(self) -> frozenset[str]:
        return frozenset(topic for broker in self.brokers for topic in broker.topics.value or ())

    @cached_property
    def group_names(self) -> frozenset[str]:
        configured = (group for broker in self.brokers for group in broker.groups.value or ())
        committed = (group for broker in self.brokers for group in broker.offsets_of_groups if "@" not in group)
        return frozenset((*configured, *committed)) - {""}
