"""Topic routes: cached, refreshed from the name servers, and turned into queues to write and read.

Mirrors Java `MQClientInstance.updateTopicRouteInfoFromNameServer`, `topicRouteData2TopicPublishInfo`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.errors import BrokerRefused, ClientClosed, FormatError, NoBroker, NoRoute, RemotingError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.route_bodies import ROUTE_BROKERS_MAX, TopicRoute, require_listable
from orbitlog.wire.codes import RequestCode, ResponseCode

AUTO_CREATE_TOPIC = "TBW102"
AUTO_CREATE_QUEUES = 4
REFRESH_SECONDS = 30.0
_SUSPECT_SECONDS = 0.3
_SUSPECT_REFRESHES_MAX = 100
# A broker that stops without closing its connections stays registered until another one has its name.
_SILENT_SECONDS = 10.0
# Silence after which a connection to a replaced master is closed, if responses are due.
_REPLACED_SECONDS = 1.0

_READ, _WRITE = 4, 2
MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class Route:
    """Route of one topic: its brokers, and its queues in the order that all members of a group must use."""

    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    brokers: dict[str, dict[int, str]]  # address by broker name and id
    is_borrowed: bool = False  # of the template topic from which brokers create new topics


def make_route(topic: str, data: TopicRoute, *, borrowed: bool = False) -> Route:
    """Derive queues from the data of a name server; `borrowed`: the route of the template topic, for a new topic."""
    brokers = {broker.broker_name: dict(broker.addresses) for broker in data.brokers}
    write, read = [], []
    for queue_data in sorted(data.queues, key=lambda entry: entry.broker_name):
        broker_name, permission = queue_data.broker_name, queue_data.permission
        writable, readable = queue_data.write_queue_count, queue_data.read_queue_count
        if borrowed:
            writable = readable = min(AUTO_CREATE_QUEUES, queue_data.read_queue_count)
        if permission & _WRITE and MASTER_ID in brokers.get(broker_name, {}):
            write += [MessageQueue(topic, broker_name, number) for number in range(writable)]
        if permission & _READ:
            read += [MessageQueue(topic, broker_name, number) for number in range(readable)]
    if data.order_topic_conf and not borrowed:
        write = list(_ordered_queues(topic, data.order_topic_conf))
    return Route(tuple(write), tuple(read), brokers, is_borrowed=borrowed)


def _ordered_queues(topic: str, conf: str) -> Iterable[MessageQueue]:
    """Yield the queues of `broker-a:8;broker-b:8`, an order that stays the same when a broker is down."""
    for part in conf.split(";"):
        broker_name, _, count = part.partition(":")
        if broker_name and count.isdecimal() and len(count) < 6:
            yield from (MessageQueue(topic, broker_name, number) for number in range(int(count)))


class Routes:
    """Route cache for every topic in use."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link
        self._known: dict[str, Route] = {}
        self._addresses: dict[str, dict[int, str]] = {}  # by broker name, from the latest route of any topic
        self._addresses_max = ROUTE_BROKERS_MAX
        self._refreshing: dict[tuple[str, bool], asyncio.Task[Route]] = {}
        self._suspected: dict[str, asyncio.Task[None]] = {}
        self._silent_until: dict[str, float] = {}
        self.moved = asyncio.Event()
        """Set when a known broker has another address, such as the next master of a replica group."""
        self.on_new_master: list[Callable[[str], None]] = []
        """Called with the name of a known broker whose master has another address than the last one."""

    @property
    def topics(self) -> list[str]:
        return list(self._known)

    async def of(self, topic: str, *, create: bool = False) -> Route:
        """Return the route; with `create`, fall back to the template topic for new topics. Raise `NoRoute`."""
        known = self._known.get(topic)
        if known is not None and (create or not known.is_borrowed):
            return known
        return await self.refresh(topic, create=create)

    async def refresh(self, topic: str, *, create: bool = False) -> Route:
        """Fetch the route from a name server; concurrent callers share one request."""
        key = (topic, create)
        task = self._refreshing.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetch(topic, create))
            self._refreshing[key] = task
            task.add_done_callback(lambda done: self._refreshed(key, done))
        return await asyncio.shield(task)

    def _refreshed(self, key: tuple[str, bool], done: asyncio.Task[Route]) -> None:
        self._refreshing.pop(key, None)
        if not done.cancelled():
            done.exception()  # mark as retrieved: all callers may have been cancelled

    async def freshest(self, topic: str, *, create: bool = False) -> Route:
        """Fetch the route; return the cached one if no name server can answer."""
        try:
            return await self.refresh(topic, create=create)
        except (RemotingError, BrokerRefused, FormatError):
            known = self._known.get(topic)
            if known is None:
                raise
            return known

    def suspect(self, topic: str, *, silent: str | None = None) -> None:
        """Fetch the route in the background, because a broker did not answer, until each broker has a master.

        The next master of a replica group registers some time after the last one has failed. `silent` is the name of a
        broker whose connection is open: its master may have failed although it is registered.
        """
        loop = asyncio.get_running_loop()
        if silent is not None:
            self._silent_until[silent] = loop.time() + _SILENT_SECONDS
        if topic not in self._suspected:
            task = loop.create_task(self._refresh_suspected(topic))
            self._suspected[topic] = task
            task.add_done_callback(lambda _: self._suspected.pop(topic, None))

    async def _refresh_suspected(self, topic: str) -> None:
        for _ in range(_SUSPECT_REFRESHES_MAX):
            known = self._known.get(topic)
            try:
                route = await self.refresh(topic, create=known is not None and known.is_borrowed)
            except ClientClosed:
                return
            except (RemotingError, BrokerRefused, NoRoute, FormatError):
                route = None
            await asyncio.sleep(_SUSPECT_SECONDS)  # also if it is complete: a dead master may still be registered
            if route is not None and route.brokers and all(MASTER_ID in ids for ids in route.brokers.values()):
                if not self._has_silent(route):
                    return

    def _has_silent(self, route: Route) -> bool:
        """Return whether a broker of a route was silent a while ago, and has no other master yet."""
        now = asyncio.get_running_loop().time()
        self._silent_until = {name: until for name, until in self._silent_until.items() if until > now}
        return not self._silent_until.keys().isdisjoint(route.brokers)

    async def close(self) -> None:
        """Stop to fetch routes in the background."""
        suspected = list(self._suspected.values())
        for task in suspected:
            task.cancel()
        await asyncio.gather(*suspected, return_exceptions=True)

    async def refresh_all(self) -> None:
        """Fetch the routes of every topic; keep a cached route if its topic is deleted, as official clients do.

        It is also kept if the new one is malformed: the routes of other topics may be valid.
        """
        for topic in self.topics:
            try:
                await self.refresh(topic, create=self._known[topic].is_borrowed)
            except (NoRoute, BrokerRefused, FormatError):
                continue

    async def _fetch(self, topic: str, create: bool) -> Route:
        data = await self._query(topic)
        borrowed = data is None and create
        if borrowed:
            data = await self._query(AUTO_CREATE_TOPIC)
        if data is None and create and not await self._has_brokers():
            raise NoBroker(f"no broker has registered with {', '.join(self._link.name_servers)}")
        if data is None:
            hint = " and automatic topic creation is disabled" if create else ""
            raise NoRoute(f"no broker serves topic {topic}{hint}; name servers: {', '.join(self._link.name_servers)}")
        route = self._known[topic] = make_route(topic, data, borrowed=borrowed)
        for name, addresses in route.brokers.items():
            self._take_addresses(name, addresses)
        if len(self._addresses) > self._addresses_max:
            self._forget_addresses()
        return route

    def _forget_addresses(self) -> None:
        """Forget brokers without a route: a name server may state new names without end."""
        in_use = {name for route in self._known.values() for name in route.brokers}
        self._addresses = {name: addresses for name, addresses in self._addresses.items() if name in in_use}
        self._addresses_max = max(2 * len(in_use), ROUTE_BROKERS_MAX)

    def _take_addresses(self, name: str, addresses: dict[int, str]) -> None:
        before = self._addresses.get(name, addresses)
        self._addresses[name] = addresses
        if before != addresses:
            self.moved.set()
            if addresses.get(MASTER_ID, before.get(MASTER_ID)) != before.get(MASTER_ID):
                self._replaced(name, before.get(MASTER_ID))

    def _replaced(self, name: str, address: str | None) -> None:
        """Note that a broker has another master: requests at the last one need not wait for their timeouts."""
        self._silent_until.pop(name, None)
        if address is not None:
            self._link.drop_silent(address, _REPLACED_SECONDS, f"another server is the master of {name} now")
        for notify in self.on_new_master:
            notify(name)

    async def _has_brokers(self) -> bool:
        from orbitlog.wire.bodies.route_bodies import ClusterInfo

        accept = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
        answer = await self._link.invoke_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, None, accept=accept)
        return answer.code != ResponseCode.SUCCESS or bool(decode_body(ClusterInfo, answer.body).brokers)

    async def _query(self, topic: str) -> TopicRoute | None:
        from orbitlog.wire.nameserver_headers import GetRouteInfoRequest

        header = GetRouteInfoRequest(topic=topic)
        accept = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
        answer = await self._link.invoke_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, accept=accept)
        if answer.code != ResponseCode.SUCCESS:
            return None
        route = decode_body(TopicRoute, answer.body)
        require_listable(route)
        return route

    def known(self, topic: str) -> Route | None:
        """Return the cached route, or None."""
        return self._known.get(topic)

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """Return the address of the broker with this name and id, else of any broker with this name, else None."""
        addresses = self._addresses.get(broker_name)
        return (addresses.get(broker_id) or next(iter(addresses.values()))) if addresses else None

    def address_of(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        """Return the address of the broker of a queue; raise `NoRoute` if it is unknown."""
        address = self.address(queue.broker_name, broker_id)
        if address is None:
            raise NoRoute(f"no address of broker {queue.broker_name} of topic {queue.topic}")
        return address

    def all_addresses(self, *, masters_only: bool) -> list[str]:
        """Return the address of every broker that serves a topic in use."""
        in_use = {name for route in self._known.values() for name in route.brokers}
        return [
            address
            for name in in_use
            for broker_id, address in self._addresses[name].items()
            if broker_id == MASTER_ID or not masters_only
        ]
