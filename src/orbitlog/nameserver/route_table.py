"""Route table of a name server: which brokers serve which topic. Pure: callers pass the time and connections.

A broker registers with its topics, periodically. It is removed when it unregisters, when the connections over which it
registered are closed, or when it is silent for too long. Topics are replaced when the broker is new or its data version
changed: until then permissions wiped by an operator stay wiped, and a topic that a broker omits stays. Every change
increments `revision`. Mirrors Java 5.x `RouteInfoManager`, with the same responses.

Unlike in Java, a name is protected while its broker is connected: another address cannot register under the same name
and id, only the connections of a broker can unregister it, and its cluster does not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from orbitlog.errors import RequestRefused
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
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.nameserver_headers import RegisterBrokerRequest, RegisterBrokerResponse

SILENCE_MAX_MS = 120_000
HEARTBEAT_TIMEOUT_MS_MAX = 600_000
STEP_TOPICS = 200

_Change = Callable[[int], int]

UNIT_FLAG = 1
UNIT_SUBSCRIPTION_FLAG = 2
_NO_QUEUES: dict[str, QueueData] = {}


class BrokerKey(NamedTuple):
    """A broker process: its address is unique within its cluster."""

    cluster: str
    address: str


@dataclass(slots=True)
class _Live:
    """When a broker registered last or sent a heartbeat, over which connections, and under which names."""

    seen_ms: int
    silence_max_ms: int
    data_version: DataVersion
    ha_address: str
    owners: dict[Hashable, str] = field(default_factory=dict)  # connection: host of its client
    names: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _BrokerGroup:
    """The brokers of one name: a master and its slaves."""

    name: str
    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting_master: bool = False
    zone: str | None = None
    is_read_only: bool = False  # its master left and a slave acts for it

    def as_data(self) -> BrokerData:
        return BrokerData(self.name, self.cluster, dict(sorted(self.addresses.items())), self.acting_master, self.zone)


class RouteTable:
    """The routes of one name server."""

    def __init__(
        self,
        *,
        support_acting_master: bool = False,
        delete_topics_left_out: bool = False,
        protects_names: bool = True,
        silence_max_ms: int = HEARTBEAT_TIMEOUT_MS_MAX,
    ) -> None:
        self._support_acting_master = support_acting_master
        self._delete_topics_left_out = delete_topics_left_out
        self._protects_names = protects_names
        self._silence_max_ms = silence_max_ms
        self._topics_of: dict[str, dict[str, QueueData]] = {}  # by broker name and topic
        # By topic. Names may be stale until `sweep`: a broker serves a topic only if `_topics_of` contains it.
        self._names_of: dict[str, set[str]] = {}
        self._stale: deque[tuple[str, dict[str, QueueData]]] = deque()
        self._groups: dict[str, _BrokerGroup] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerKey, _Live] = {}
        self._keys_of: dict[Hashable, set[BrokerKey]] = {}  # by connection
        self._mappings: dict[str, dict[str, TopicQueueMapping]] = {}
        self.entry_count = 0
        """Topics of all brokers, also those of brokers that left and are not swept yet."""
        self.revision = 0

    # Brokers

    @property
    def broker_count(self) -> int:
        return len(self._live)

    @property
    def topic_count(self) -> int:
        """Topics with a route; shortly after a broker left, also those that only it served."""
        return len(self._names_of)

    def knows(self, cluster: str, address: str) -> bool:
        return BrokerKey(cluster, address) in self._live

    def brokers_of(self, connection: Hashable) -> int:
        """Return the number of brokers that registered over a connection."""
        return len(self._keys_of.get(connection, ()))

    def entries_of(self, connection: Hashable) -> int:
        """Return the number of topics of the brokers that registered over a connection."""
        names = {name for key in self._keys_of.get(connection, ()) for name in self._live[key].names}
        return sum(len(self._topics_of.get(name, ())) for name in names)

    def new_entries(self, broker_name: str, topics: Collection[str]) -> int:
        """Return how many of these topics a broker does not have yet."""
        return len(set(topics).difference(self._topics_of.get(broker_name, ())))

    def register(
        self,
        request: RegisterBrokerRequest,
        registration: Registration,
        *,
        now_ms: int,
        connection: Hashable,
        host: str = "",
    ) -> RegisterBrokerResponse | None:
        """Register a broker and its topics; return None if an unknown broker registers only one topic."""
        steps = self.register_steps(request, registration, now_ms=now_ms, connection=connection, host=host)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                response: RegisterBrokerResponse | None = end.value
                return response

    def register_steps(
        self,
        request: RegisterBrokerRequest,
        registration: Registration,
        *,
        now_ms: int,
        connection: Hashable,
        host: str = "",
    ) -> Generator[int, None, RegisterBrokerResponse | None]:
        """Register a broker and its topics in steps; yield the number of topics after each, return the response.

        One topic of an unknown broker is a change by a broker that this name server has removed: it must register all
        of them, and the response is None. Raise `RequestRefused` if the name belongs to another broker that is
        connected. `host` is the host of the connection's client.
        """
        wrapper = registration.wrapper
        group = self._groups.get(request.broker_name)
        known_address = None if group is None else group.addresses.get(request.broker_id)
        key = BrokerKey(request.cluster, request.broker_address)
        if group is not None and known_address not in (None, request.broker_address):
            live = self._live.get(BrokerKey(group.cluster, str(known_address)))
            if live is not None and live.data_version.state_version > wrapper.data_version.state_version:
                self._leave(key, request.broker_name)
                return RegisterBrokerResponse()
        if group is None or not self._is_elected(request, group, known_address, wrapper.data_version, connection):
            self._check_owner(request, group, known_address, connection, host)
        if known_address is None and len(wrapper.topics) == 1:
            return None
        is_first = known_address is None
        is_changed = is_first or self.has_changed(request.cluster, request.broker_address, wrapper.data_version)
        group = self._join(request, group)
        live = self._note_live(request, wrapper.data_version, now_ms)
        live.owners[connection] = host
        self._keys_of.setdefault(connection, set()).add(key)
        yield from self._take_topics(group, request, wrapper, live, is_changed=is_changed)
        return self._master_for(request.cluster, group, request.broker_id)

    def _is_elected(
        self,
        request: RegisterBrokerRequest,
        group: _BrokerGroup,
        known_address: str | None,
        version: DataVersion,
        connection: Hashable,
    ) -> bool:
        """Return whether a slave of a group with failover registers as the master of a later epoch.

        The old master may be paused or cut off, and still connected. Only a member that is registered over the same
        connection may take its id, and only from a master that stated an epoch itself.
        """
        if known_address is None or group.cluster != request.cluster:
            return False
        key = BrokerKey(request.cluster, request.broker_address)
        live = self._live.get(BrokerKey(group.cluster, known_address))
        return (
            live is not None
            and 0 < live.data_version.state_version < version.state_version
            and request.broker_address in group.addresses.values()
            and key in self._keys_of.get(connection, ())
        )

    def _check_owner(
        self,
        request: RegisterBrokerRequest,
        group: _BrokerGroup | None,
        known_address: str | None,
        connection: Hashable,
        host: str,
    ) -> None:
        """Raise `RequestRefused` if a name, an id or an address belongs to a broker that is connected."""
        if not self._protects_names:
            return
        if group is not None and known_address not in (None, request.broker_address):
            if BrokerKey(group.cluster, str(known_address)) in self._live:
                raise _taken(f"broker {group.name} with id {request.broker_id} is connected as {known_address}")
        if group is not None and group.cluster != request.cluster and group.addresses:
            raise _taken(f"broker {group.name} is connected as a member of cluster {group.cluster}")
        live = self._live.get(BrokerKey(request.cluster, request.broker_address))
        if live is not None and connection not in live.owners and host not in live.owners.values():
            raise _taken(f"{request.broker_address} is connected from another host")

    def _join(self, request: RegisterBrokerRequest, group: _BrokerGroup | None) -> _BrokerGroup:
        """Add a broker to the group of its name; return the group."""
        if group is None:
            group = self._groups[request.broker_name] = _BrokerGroup(request.broker_name, request.cluster)
        self._clusters.setdefault(request.cluster, set()).add(request.broker_name)
        before = group.addresses, group.acting_master, group.zone, group.is_read_only
        # The same broker with a new id is a slave that became master.
        addresses = {
            number: address for number, address in group.addresses.items() if address != request.broker_address
        }
        group.addresses = {**addresses, request.broker_id: request.broker_address}
        group.acting_master = bool(request.enable_acting_master)
        group.zone = request.zone
        if request.broker_id == MASTER_ID:
            group.is_read_only = False
        if before != (group.addresses, group.acting_master, group.zone, group.is_read_only):
            self.revision += 1
        return group

    def _note_live(self, request: RegisterBrokerRequest, data_version: DataVersion, now_ms: int) -> _Live:
        key = BrokerKey(request.cluster, request.broker_address)
        timeout_ms = min(request.heartbeat_timeout_ms or SILENCE_MAX_MS, self._silence_max_ms)
        live = self._live.get(key)
        if live is None:
            live = self._live[key] = _Live(now_ms, timeout_ms, data_version, request.ha_address)
        live.seen_ms, live.silence_max_ms = now_ms, timeout_ms
        live.data_version, live.ha_address = data_version, request.ha_address
        live.names.add(request.broker_name)
        return live

    def _take_topics(
        self,
        group: _BrokerGroup,
        request: RegisterBrokerRequest,
        wrapper: TopicWrapper,
        live: _Live,
        *,
        is_changed: bool,
    ) -> Generator[int, None, None]:
        is_prime_slave = (
            request.enable_acting_master is not None
            and request.broker_id != MASTER_ID
            and request.broker_id == min(group.addresses)
        )
        if request.broker_id != MASTER_ID and not is_prime_slave:
            return
        if self._delete_topics_left_out and not wrapper.mappings:
            for name in [name for name in self._topics_of.get(group.name, ()) if name not in wrapper.topics]:
                self._drop_queue(name, group.name)
        wipes_write = is_prime_slave and group.acting_master
        key = BrokerKey(request.cluster, request.broker_address)
        topics = iter(wrapper.topics.values())
        while part := list(islice(topics, STEP_TOPICS)):
            if self._live.get(key) is not live or live.data_version is not wrapper.data_version:
                return  # it left between two steps, or a later registration is under way
            for topic in part:
                if is_changed or topic.topic not in self._topics_of.get(group.name, _NO_QUEUES):
                    self._put_queue(topic.topic, _queue_data(group.name, topic, wipes_write))
            yield len(part)
        if is_changed:
            for name, mapping in wrapper.mappings.items():
                self._mappings.setdefault(name, {})[mapping.broker_name or group.name] = mapping

    def _master_for(self, cluster: str, group: _BrokerGroup, broker_id: int) -> RegisterBrokerResponse:
        master = group.addresses.get(MASTER_ID)
        if broker_id == MASTER_ID or master is None or (live := self._live.get(BrokerKey(cluster, master))) is None:
            return RegisterBrokerResponse()
        return RegisterBrokerResponse(ha_address=live.ha_address, master_address=master)

    def owns(self, cluster: str, address: str, connection: Hashable) -> bool:
        """Return whether a broker registered over this connection; true for one that is not registered."""
        live = self._live.get(BrokerKey(cluster, address))
        return live is None or connection in live.owners or not self._protects_names

    def owns_name(self, broker_name: str, connection: Hashable) -> bool:
        """Return whether a broker of this name registered over this connection."""
        if not self._protects_names:
            return True
        keys = self._keys_of.get(connection, ())
        return any(broker_name in self._live[key].names for key in keys)

    def unregister(self, cluster: str, address: str, broker_name: str) -> None:
        """Remove a broker, and the topics that only it served."""
        self.revision += 1
        self._leave(BrokerKey(cluster, address), broker_name)
        group = self._groups.get(broker_name)
        if group is None:
            return
        group.addresses = {number: other for number, other in group.addresses.items() if other != address}
        if group.addresses:
            group.is_read_only = group.acting_master and min(group.addresses) != MASTER_ID
            return
        del self._groups[broker_name]
        names = self._clusters.get(group.cluster, set())
        names.discard(broker_name)
        if not names:
            self._clusters.pop(group.cluster, None)
        self._drop_broker(broker_name)

    def _leave(self, key: BrokerKey, broker_name: str) -> None:
        """Remove a name of a broker, and its entry if it has no name left."""
        live = self._live.get(key)
        if live is None:
            return
        live.names.discard(broker_name)
        if live.names:
            return
        del self._live[key]
        for connection in live.owners:
            keys = self._keys_of[connection]
            keys.discard(key)
            if not keys:
                del self._keys_of[connection]

    def connection_closed(self, connection: Hashable) -> list[BrokerKey]:
        """Remove the brokers that no other open connection registered; return them."""
        gone = []
        for key in list(self._keys_of.get(connection, ())):
            if len(self._live[key].owners) == 1:
                self._forget(key)
                gone.append(key)
            else:
                del self._live[key].owners[connection]
        self._keys_of.pop(connection, None)
        return gone

    def expire(self, now_ms: int) -> list[tuple[BrokerKey, Hashable]]:
        """Remove brokers that were silent for too long; return them with their connections, which must be closed."""
        silent = [key for key, live in self._live.items() if live.seen_ms + live.silence_max_ms < now_ms]
        expired = [(key, connection) for key in silent for connection in self._live[key].owners]
        for key in silent:
            self._forget(key)
        return expired

    def _forget(self, key: BrokerKey) -> None:
        for name in list(self._live[key].names):
            self.unregister(key.cluster, key.address, name)

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
        queues = self._queues(topic)
        if not queues:
            return None
        brokers = [self._groups[name].as_data() for name in queues if name in self._groups]
        if not brokers:
            return None
        if self._support_acting_master:
            brokers = [_with_acting_master(broker, queues[broker.broker_name]) for broker in brokers]
        return TopicRoute(brokers=tuple(brokers), queues=tuple(queues.values()), mappings=self._mappings.get(topic))

    def _queues(self, topic: str) -> dict[str, QueueData]:
        """Return the queues of a topic by broker name."""
        queues: dict[str, QueueData] = {}
        for name in sorted(self._names_of.get(topic, ())):
            queue = self._topics_of.get(name, _NO_QUEUES).get(topic)
            if queue is None:
                continue
            group = self._groups.get(name)
            if group is not None and group.is_read_only:
                queue = replace(queue, permission=queue.permission & ~PERMISSION_WRITE)
            queues[name] = queue
        return queues

    def _all_topics(self) -> Iterable[str]:
        if not self._stale:
            return self._names_of
        return set().union(*self._topics_of.values())

    def topics(self) -> Callable[[], TopicList]:
        """Copy the names of all topics; return a function that sorts them, which may run in a thread."""
        names = list(self._all_topics())
        return lambda: TopicList(tuple(sorted(names)))

    def topics_of_cluster(self, cluster: str) -> Callable[[], TopicList]:
        """Copy the names of a cluster's topics; return a function that sorts them, which may run in a thread."""
        copies = [list(self._topics_of.get(name, ())) for name in self._clusters.get(cluster, set())]
        return lambda: TopicList(tuple(sorted(set().union(*copies))))

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
        for topic in self._all_topics():
            flags = next(iter(self._queues(topic).values())).sys_flag
            if flags & has == has and not flags & lacks:
                yield topic

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Register queues of one topic; none of them if one is at an unknown broker."""
        queues = list(queues)
        if not queues or any(queue.broker_name not in self._groups for queue in queues):
            return
        for queue in queues:
            self._put_queue(topic, queue)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, or the part that the brokers of one cluster serve."""
        names = self._names_of.get(topic, set())
        for name in list(names) if not cluster else names & self._clusters.get(cluster, set()):
            self._drop_queue(topic, name)

    def wipe_write_permission(self, broker_name: str) -> int:
        """Remove the write permission of every topic of a broker; return their number."""
        return self._change_permissions(broker_name, lambda permission: permission & ~PERMISSION_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Set read and write permission of every topic of a broker; return their number."""
        return self._change_permissions(broker_name, lambda _: PERMISSION_READ | PERMISSION_WRITE)

    def _change_permissions(self, broker_name: str, change: _Change) -> int:
        self.revision += 1
        queues = self._topics_of.get(broker_name, {})
        for topic, queue in queues.items():
            queues[topic] = replace(queue, permission=change(queue.permission))
        return len(queues)

    # Queues by broker, and the index of their topics

    def _put_queue(self, topic: str, queue: QueueData) -> None:
        queues = self._topics_of.setdefault(queue.broker_name, {})
        before = queues.get(topic)
        if before == queue:
            return
        self.revision += 1
        self.entry_count += before is None
        queues[topic] = queue
        self._names_of.setdefault(topic, set()).add(queue.broker_name)

    def _drop_queue(self, topic: str, broker_name: str) -> None:
        if self._topics_of.get(broker_name, {}).pop(topic, None) is not None:
            self.revision += 1
            self.entry_count -= 1
            self._drop_name(topic, broker_name)

    def _drop_name(self, topic: str, broker_name: str) -> None:
        names = self._names_of.get(topic, set())
        names.discard(broker_name)
        if not names:
            self._names_of.pop(topic, None)
            self._mappings.pop(topic, None)

    def _drop_broker(self, broker_name: str) -> None:
        """Remove all topics of a broker in constant time; `sweep` cleans the index later."""
        queues = self._topics_of.pop(broker_name, None)
        if queues:
            self._stale.append((broker_name, queues))

    @property
    def needs_sweep(self) -> bool:
        return bool(self._stale)

    def sweep(self, limit: int = STEP_TOPICS) -> int:
        """Remove index entries of brokers that left, at most `limit`; return their number."""
        count = 0
        while self._stale and count < limit:
            broker_name, queues = self._stale[0]
            if not queues:
                self._stale.popleft()
                continue
            topic, _ = queues.popitem()
            count += 1
            self.entry_count -= 1
            if topic not in self._topics_of.get(broker_name, ()):  # it may have returned meanwhile
                self._drop_name(topic, broker_name)
        if self._stale and not self._stale[0][1]:
            self._stale.popleft()
        return count


def _taken(problem: str) -> RequestRefused:
    return RequestRefused(
        ResponseCode.SYSTEM_ERROR, f"{problem}; it must unregister, disconnect or be silent first (protectBrokerNames)"
    )


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
