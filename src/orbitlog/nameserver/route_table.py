"""Route table of a name server: which brokers serve which topic. Pure: callers pass the time and connections.

A broker registers with its topics, periodically. It is removed when it unregisters, when the connection of its last
registration closes, or when it is silent for too long. Topics are replaced when the broker is new or its data version
changed: until then permissions wiped by an operator stay wiped, and a topic that a broker omits stays. Every change
increments `revision`. Mirrors Java 5.x `RouteInfoManager`, with the same responses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from orbitlog.formats.tables.topic_config import (
    PERMISSION_READ,
    PERMISSION_WRITE,
    DataVersion,
    TopicConfig,
    TopicQueueMapping,
)
from orbitlog.wire.bodies.list_bodies import TopicList
from orbitlog.wire.bodies.registration_body import Registration, TopicWrapper
from orbitlog.wire.bodies.route_bodies import MASTER_ID, BrokerData, BrokerMembers, ClusterInfo, QueueData, TopicRoute
from orbitlog.wire.nameserver_headers import RegisterBrokerRequest, RegisterBrokerResponse

SILENCE_MAX_MS = 120_000

_Change = Callable[[int], int]

UNIT_FLAG = 1
UNIT_SUBSCRIPTION_FLAG = 2


class BrokerKey(NamedTuple):
    """A broker process: its address is unique within its cluster."""

    cluster: str
    address: str


@dataclass(slots=True)
class _Live:
    """When a broker registered last or sent a heartbeat, and over which connection."""

    seen_ms: int
    silence_max_ms: int
    data_version: DataVersion
    connection: Hashable
    ha_address: str


@dataclass(slots=True)
class _BrokerGroup:
    """The brokers of one name: a master and its slaves."""

    name: str
    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting_master: bool = False
    zone: str | None = None

    def as_data(self) -> BrokerData:
        return BrokerData(self.name, self.cluster, dict(sorted(self.addresses.items())), self.acting_master, self.zone)


class RouteTable:
    """The routes of one name server."""

    def __init__(self, *, support_acting_master: bool = False, delete_topics_left_out: bool = False) -> None:
        self._support_acting_master = support_acting_master
        self._delete_topics_left_out = delete_topics_left_out
        self._queues: dict[str, dict[str, QueueData]] = {}  # by topic and broker name
        self._groups: dict[str, _BrokerGroup] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerKey, _Live] = {}
        self._mappings: dict[str, dict[str, TopicQueueMapping]] = {}
        self.revision = 0

    # Brokers

    @property
    def broker_count(self) -> int:
        return len(self._live)

    def knows(self, cluster: str, address: str) -> bool:
        return BrokerKey(cluster, address) in self._live

    def register(
        self, request: RegisterBrokerRequest, registration: Registration, *, now_ms: int, connection: Hashable
    ) -> RegisterBrokerResponse | None:
        """Register a broker and its topics; return None if an unknown broker registers only one topic.

        One topic is a change by a broker that this name server has removed: it must register all of them.
        """
        wrapper = registration.wrapper
        group = self._groups.get(request.broker_name)
        known_address = None if group is None else group.addresses.get(request.broker_id)
        key = BrokerKey(request.cluster, request.broker_address)
        if group is not None and known_address not in (None, request.broker_address):
            live = self._live.get(BrokerKey(request.cluster, str(known_address)))
            if live is not None and live.data_version.state_version > wrapper.data_version.state_version:
                self._live.pop(key, None)
                return RegisterBrokerResponse()
        if known_address is None and len(wrapper.topics) == 1:
            return None
        self.revision += 1
        if group is None:
            group = self._groups[request.broker_name] = _BrokerGroup(request.broker_name, request.cluster)
        self._clusters.setdefault(request.cluster, set()).add(request.broker_name)
        group.acting_master = bool(request.enable_acting_master)
        group.zone = request.zone
        for broker_id, address in list(group.addresses.items()):
            if address == request.broker_address and broker_id != request.broker_id:
                del group.addresses[broker_id]  # the same broker with a new id: a slave that became master
        group.addresses[request.broker_id] = request.broker_address
        self._take_topics(group, request, wrapper, is_first=known_address is None)
        self._live[key] = _Live(
            now_ms,
            request.heartbeat_timeout_ms or SILENCE_MAX_MS,
            wrapper.data_version,
            connection,
            request.ha_address,
        )
        return self._master_for(request.cluster, group, request.broker_id)

    def _take_topics(
        self, group: _BrokerGroup, request: RegisterBrokerRequest, wrapper: TopicWrapper, *, is_first: bool
    ) -> None:
        is_prime_slave = (
            request.enable_acting_master is not None
            and request.broker_id != MASTER_ID
            and request.broker_id == min(group.addresses)
        )
        if request.broker_id != MASTER_ID and not is_prime_slave:
            return
        if self._delete_topics_left_out and not wrapper.mappings:
            served = [name for name, queues in self._queues.items() if group.name in queues]
            for name in served:
                if name not in wrapper.topics:
                    self._drop_queues(name, [group.name])
        changed = is_first or self.has_changed(request.cluster, request.broker_address, wrapper.data_version)
        for topic in wrapper.topics.values():
            if changed or group.name not in self._queues.get(topic.topic, ()):
                wipes_write = is_prime_slave and group.acting_master
                self._queues.setdefault(topic.topic, {})[group.name] = _queue_data(group.name, topic, wipes_write)
        if changed:
            for name, mapping in wrapper.mappings.items():
                self._mappings.setdefault(name, {})[mapping.broker_name or group.name] = mapping

    def _master_for(self, cluster: str, group: _BrokerGroup, broker_id: int) -> RegisterBrokerResponse:
        master = group.addresses.get(MASTER_ID)
        if broker_id == MASTER_ID or master is None or (live := self._live.get(BrokerKey(cluster, master))) is None:
            return RegisterBrokerResponse()
        return RegisterBrokerResponse(ha_address=live.ha_address, master_address=master)

    def unregister(self, cluster: str, address: str, broker_name: str) -> None:
        """Remove a broker, and the topics that only it served."""
        self.revision += 1
        self._live.pop(BrokerKey(cluster, address), None)
        group = self._groups.get(broker_name)
        if group is None:
            return
        group.addresses = {number: other for number, other in group.addresses.items() if other != address}
        if group.addresses:
            if group.acting_master and min(group.addresses) != MASTER_ID:
                self._change_permissions(broker_name, lambda permission: permission & ~PERMISSION_WRITE)
            return
        del self._groups[broker_name]
        names = self._clusters.get(cluster, set())
        names.discard(broker_name)
        if not names:
            self._clusters.pop(cluster, None)
        for topic in list(self._queues):
            self._drop_queues(topic, [broker_name])

    def connection_closed(self, connection: Hashable) -> list[BrokerKey]:
        """Remove the brokers that registered last over this connection; return them."""
        gone = [key for key, live in self._live.items() if live.connection is connection]
        for key in gone:
            self._forget(key)
        return gone

    def expire(self, now_ms: int) -> list[tuple[BrokerKey, Hashable]]:
        """Remove brokers that were silent for too long; return them with their connections, which must be closed."""
        silent = [
            (key, live.connection) for key, live in self._live.items() if live.seen_ms + live.silence_max_ms < now_ms
        ]
        for key, _ in silent:
            self._forget(key)
        return silent

    def _forget(self, key: BrokerKey) -> None:
        self._live.pop(key, None)
        for group in list(self._groups.values()):
            if group.cluster == key.cluster and key.address in group.addresses.values():
                self.unregister(key.cluster, key.address, group.name)

    def touch(self, cluster: str, address: str, now_ms: int) -> None:
        """Record a sign of life of a broker."""
        live = self._live.get(BrokerKey(cluster, address))
        if live is not None:
            live.seen_ms = now_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """Return the data version of the topics that a broker registered last."""
        live = self._live.get(BrokerKey(cluster, address))
        return None if live is None else live.data_version

    def has_changed(self, cluster: str, address: str, data_version: DataVersion) -> bool:
        """Return whether a broker with this data version must register."""
        registered = self.data_version(cluster, address)
        return registered is None or _version(registered) != _version(data_version)

    def members(self, cluster: str, broker_name: str) -> BrokerMembers:
        group = self._groups.get(broker_name)
        addresses = {} if group is None else dict(sorted(group.addresses.items()))
        return BrokerMembers(cluster, broker_name, addresses)

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            brokers={name: group.as_data() for name, group in sorted(self._groups.items())},
            clusters={name: tuple(sorted(names)) for name, names in sorted(self._clusters.items())},
        )

    # Topics

    def route(self, topic: str) -> TopicRoute | None:
        """Return the brokers and queues of a topic; None if no broker serves it."""
        queues = self._queues.get(topic)
        if not queues:
            return None
        brokers = [self._groups[name].as_data() for name in sorted(queues) if name in self._groups]
        if not brokers:
            return None
        if self._support_acting_master:
            brokers = [_with_acting_master(broker, queues[broker.broker_name]) for broker in brokers]
        return TopicRoute(
            brokers=tuple(brokers),
            queues=tuple(queues[name] for name in sorted(queues)),
            mappings=self._mappings.get(topic),
        )

    def topics(self) -> TopicList:
        return TopicList(tuple(sorted(self._queues)))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        names = self._clusters.get(cluster, set())
        return TopicList(tuple(sorted(topic for topic, queues in self._queues.items() if names & queues.keys())))

    def system_topics(self) -> TopicList:
        """Return the names of clusters and brokers, which are topics; the broker at the address knows the others."""
        topics: list[str] = []
        for cluster, names in sorted(self._clusters.items()):
            topics += (cluster, *sorted(names))
        address = next((address for group in self._groups.values() for address in group.addresses.values()), None)
        return TopicList(tuple(topics), address)

    def unit_topics(self, *, has: int, lacks: int = 0) -> TopicList:
        """Return the topics whose unit flags have all bits of `has` and none of `lacks`."""
        return TopicList(tuple(sorted(self._topics_with_flags(has, lacks))))

    def _topics_with_flags(self, has: int, lacks: int) -> Iterator[str]:
        for topic, queues in self._queues.items():
            flags = next(iter(queues.values())).sys_flag
            if flags & has == has and not flags & lacks:
                yield topic

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Register queues of one topic; none of them if one is at an unknown broker."""
        queues = list(queues)
        if not queues or any(queue.broker_name not in self._groups for queue in queues):
            return
        self.revision += 1
        self._queues.setdefault(topic, {}).update({queue.broker_name: queue for queue in queues})

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, or the part that the brokers of one cluster serve."""
        self.revision += 1
        self._drop_queues(topic, self._queues.get(topic, {}) if not cluster else self._clusters.get(cluster, ()))

    def wipe_write_permission(self, broker_name: str) -> int:
        """Remove the write permission of every topic of a broker; return their number."""
        return self._change_permissions(broker_name, lambda permission: permission & ~PERMISSION_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Set read and write permission of every topic of a broker; return their number."""
        return self._change_permissions(broker_name, lambda _: PERMISSION_READ | PERMISSION_WRITE)

    def _change_permissions(self, broker_name: str, change: _Change) -> int:
        self.revision += 1
        count = 0
        for queues in self._queues.values():
            if (queue := queues.get(broker_name)) is not None:
                queues[broker_name] = replace(queue, permission=change(queue.permission))
                count += 1
        return count

    def _drop_queues(self, topic: str, broker_names: Iterable[str]) -> None:
        queues = self._queues.get(topic, {})
        for name in list(broker_names):
            queues.pop(name, None)
        if not queues:
            self._queues.pop(topic, None)
            self._mappings.pop(topic, None)


def _version(data_version: DataVersion) -> tuple[int, int, int]:
    return data_version.timestamp_ms, data_version.counter, data_version.state_version


def _queue_data(broker_name: str, topic: TopicConfig, wipes_write: bool) -> QueueData:
    permission = topic.permission & ~PERMISSION_WRITE if wipes_write else topic.permission
    return QueueData(broker_name, topic.read_queue_count, topic.write_queue_count, permission, topic.sys_flag)


def _with_acting_master(broker: BrokerData, queue: QueueData) -> BrokerData:
    """Let the slave with the smallest id act as master if the master is offline and nothing can be written."""
    if not broker.enable_acting_master or not broker.addresses or MASTER_ID in broker.addresses:
        return broker
    if queue.permission & PERMISSION_WRITE:
        return broker
    addresses = dict(broker.addresses)
    addresses[MASTER_ID] = addresses.pop(min(addresses))
    return replace(broker, addresses=dict(sorted(addresses.items())))
