"""Where topics live, as the name servers say: kept, refreshed, and turned into queues to write to and read from.

Mirrors Java `MQClientInstance.updateTopicRouteInfoFromNameServer`, `topicRouteData2TopicPublishInfo`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.errors import BrokerRefused, NoBroker, NoRoute, RemotingError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.route_bodies import TopicRoute
from orbitlog.wire.codes import RequestCode, ResponseCode

AUTO_CREATE_TOPIC = "TBW102"
AUTO_CREATE_QUEUES = 4
REFRESH_SECONDS = 30.0

_READ, _WRITE = 4, 2
MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class Route:
    """One topic: its queues, sorted as all members of a group must sort them, and its brokers."""

    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    brokers: dict[str, dict[int, str]]  # address by broker name and id
    is_borrowed: bool = False  # of the topic from which brokers copy new ones


def make_route(topic: str, told: TopicRoute, *, borrowed: bool = False) -> Route:
    """Derive queues from what a name server told; a borrowed route gives a new topic's queues."""
    brokers = {broker.broker_name: dict(broker.addresses) for broker in told.brokers}
    write, read = [], []
    for data in sorted(told.queues, key=lambda each: each.broker_name):
        writable, readable = data.write_queue_count, data.read_queue_count
        if borrowed:
            writable = readable = min(AUTO_CREATE_QUEUES, data.read_queue_count)
        if data.permission & _WRITE and MASTER_ID in brokers.get(data.broker_name, {}):
            write += [MessageQueue(topic, data.broker_name, number) for number in range(writable)]
        if data.permission & _READ:
            read += [MessageQueue(topic, data.broker_name, number) for number in range(readable)]
    if told.order_topic_conf and not borrowed:
        write = list(_ordered_queues(topic, told.order_topic_conf))
    return Route(tuple(write), tuple(read), brokers, is_borrowed=borrowed)


def _ordered_queues(topic: str, conf: str) -> Iterable[MessageQueue]:
    """`broker-a:8;broker-b:8`: an order of queues that stays when a broker is gone."""
    for part in conf.split(";"):
        broker_name, _, count = part.partition(":")
        if broker_name and count.isdecimal() and len(count) < 6:
            yield from (MessageQueue(topic, broker_name, number) for number in range(int(count)))


class Routes:
    """The routes of every topic in use."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link
        self._known: dict[str, Route] = {}
        self._addresses: dict[str, dict[int, str]] = {}  # by broker name: what was told last, of whatever topic
        self._asking: dict[tuple[str, bool], asyncio.Task[Route]] = {}

    @property
    def topics(self) -> list[str]:
        return list(self._known)

    async def of(self, topic: str, *, create: bool = False) -> Route:
        """Return the route; with `create`, one that a broker would make the topic by. Raises `NoRoute`."""
        known = self._known.get(topic)
        if known is not None and (create or not known.is_borrowed):
            return known
        return await self.refresh(topic, create=create)

    async def refresh(self, topic: str, *, create: bool = False) -> Route:
        """Ask again; many who ask at once share one request."""
        key = (topic, create)
        task = self._asking.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(topic, create))
            self._asking[key] = task
            task.add_done_callback(lambda done: self._asked(key, done))
        return await asyncio.shield(task)

    def _asked(self, key: tuple[str, bool], done: asyncio.Task[Route]) -> None:
        self._asking.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever asked may have gone away

    async def freshest(self, topic: str, *, create: bool = False) -> Route:
        """Ask again; while no name server answers, or none is ready, what is known goes on counting."""
        try:
            return await self.refresh(topic, create=create)
        except (RemotingError, BrokerRefused):
            known = self._known.get(topic)
            if known is None:
                raise
            return known

    async def refresh_all(self) -> None:
        """Ask again for every topic; one that is gone is kept as it was known, as official clients do."""
        for topic in self.topics:
            try:
                await self.refresh(topic, create=self._known[topic].is_borrowed)
            except (NoRoute, BrokerRefused):
                continue

    async def _ask(self, topic: str, create: bool) -> Route:
        told = await self._told(topic)
        borrowed = told is None and create
        if borrowed:
            told = await self._told(AUTO_CREATE_TOPIC)
        if told is None and create and not await self._has_brokers():
            raise NoBroker(f"no broker has registered with {', '.join(self._link.name_servers)}")
        if told is None:
            hint = " and brokers do not create topics by themselves" if create else "; has anybody sent to it?"
            raise NoRoute(f"no broker serves topic {topic}{hint}; asked {', '.join(self._link.name_servers)}")
        route = self._known[topic] = make_route(topic, told, borrowed=borrowed)
        self._addresses.update(route.brokers)
        return route

    async def _has_brokers(self) -> bool:
        from orbitlog.wire.bodies.route_bodies import ClusterInfo

        accept = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
        answer = await self._link.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, None, accept=accept)
        return answer.code != ResponseCode.SUCCESS or bool(decode_body(ClusterInfo, answer.body).brokers)

    async def _told(self, topic: str) -> TopicRoute | None:
        from orbitlog.wire.nameserver_headers import GetRouteInfoRequest

        header = GetRouteInfoRequest(topic=topic)
        accept = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
        answer = await self._link.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, accept=accept)
        return decode_body(TopicRoute, answer.body) if answer.code == ResponseCode.SUCCESS else None

    def known(self, topic: str) -> Route | None:
        """The route as it was told last; None if nobody asked."""
        return self._known.get(topic)

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """The address of a broker: the wanted one, else any of that name."""
        addresses = self._addresses.get(broker_name)
        return (addresses.get(broker_id) or next(iter(addresses.values()))) if addresses else None

    def address_of(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        """The address of the broker that has a queue; raises `NoRoute`."""
        address = self.address(queue.broker_name, broker_id)
        if address is None:
            raise NoRoute(f"broker {queue.broker_name} of topic {queue.topic} is not known any more")
        return address

    def all_addresses(self, *, masters_only: bool) -> list[str]:
        """Every broker that serves a topic in use, once."""
        in_use = {name for route in self._known.values() for name in route.brokers}
        return [
            address
            for name in in_use
            for broker_id, address in self._addresses[name].items()
            if broker_id == MASTER_ID or not masters_only
        ]
