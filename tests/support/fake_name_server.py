"""A name server without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from orbitlog.errors import ConnectFailed
from orbitlog.wire.bodies.body_json import encode_body
from orbitlog.wire.bodies.route_bodies import BrokerData, ClusterInfo, QueueData, TopicRoute
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command


class NameServer:
    """Answers route requests from `topics`: broker addresses by name, by topic. Fails while `is_down`."""

    name_servers = ("ns:9876",)

    def __init__(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        self.topics = dict(topics)
        self.is_down = False
        self.requested: list[str] = []
        self.dropped: list[str] = []

    def drop_silent(self, address: str, seconds: float, reason: str) -> None:
        self.dropped.append(address)

    async def invoke_name_server(self, code: RequestCode, header: Any, *, accept: object) -> Command:
        await asyncio.sleep(0)
        if self.is_down:
            raise ConnectFailed("name server is down")
        if code == RequestCode.GET_BROKER_CLUSTER_INFO:
            known = {name: address for brokers in self.topics.values() for name, address in brokers.items()}
            info = ClusterInfo({name: BrokerData(name, "c", {0: address}) for name, address in known.items()})
            return Command(ResponseCode.SUCCESS, body=encode_body(info))
        self.requested.append(header.topic)
        if header.topic not in self.topics:
            return Command(ResponseCode.TOPIC_NOT_EXIST)
        brokers = self.topics[header.topic]
        route = TopicRoute(
            queues=tuple(QueueData(name, 2, 2, 6) for name in brokers),
            brokers=tuple(BrokerData(name, "c", {0: address}) for name, address in brokers.items()),
        )
        return Command(ResponseCode.SUCCESS, body=encode_body(route))
