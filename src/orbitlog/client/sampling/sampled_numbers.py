"""Cluster samples: the numbers of one cluster at one time, as its brokers report them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from orbitlog.client.connection.running_info import ConsumeStatus
    from orbitlog.wire.bodies.client_bodies import ConsumerConnection


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """One broker: its runtime information, and its rates over a minute if it is a master."""

    cluster: str
    name: str
    broker_id: int
    address: str
    runtime: Mapping[str, str]
    put_tps: float | None = None
    get_tps: float | None = None

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0


class TopicKey(NamedTuple):
    """A topic at a master."""

    cluster: str
    broker: str
    topic: str


class GroupKey(NamedTuple):
    """A group and a topic at a master."""

    cluster: str
    broker: str
    topic: str
    group: str


class ClientKey(NamedTuple):
    """A member of a group."""

    group: str
    client_id: str


@dataclass(slots=True)
class Progress:
    """Offsets of a group in the queues of one topic at one master."""

    broker_offset: int = 0
    consumer_offset: int = 0
    consume_tps: float = 0.0
    waiting_since_ms: int = 0
    """Store timestamp of the last message consumed before the oldest lag; 0 without lag or if it is unknown."""

    @property
    def lag(self) -> int:
        return max(self.broker_offset - self.consumer_offset, 0)


@dataclass(frozen=True, slots=True)
class TopicSample:
    """Sum of the maximum offsets of a topic, and its rates over a minute; None if the broker has no data yet."""

    offset: int
    put_tps: float | None
    put_size: float | None


@dataclass(frozen=True, slots=True)
class GroupRates:
    """Rates of a group over a minute; None if the broker has no data yet."""

    get_tps: float | None
    get_size: float | None
    send_back: int | None


@dataclass(frozen=True, slots=True)
class ClientSample:
    """A member: its address, and its status by topic."""

    address: str
    statuses: Mapping[str, ConsumeStatus]


@dataclass(slots=True)
class ClusterSample:
    """Everything that one round learned; details that were postponed are those of an earlier round."""

    sampled_ms: int
    brokers: list[BrokerSample] = field(default_factory=list)
    progress: dict[GroupKey, Progress] = field(default_factory=dict)
    producers: dict[tuple[str, str, str], int] = field(default_factory=dict)
    topics: dict[TopicKey, TopicSample] = field(default_factory=dict)
    rates: dict[GroupKey, GroupRates] = field(default_factory=dict)
    members: dict[str, ConsumerConnection] = field(default_factory=dict)
    clients: dict[ClientKey, ClientSample] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)
    """Brokers that did not answer, by address, with the error."""
