"""Fast path of a send: the same request and errors as the slow path, which takes over on failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import Routes
from orbitlog.client.producer import fast_producer as quick_sending
from orbitlog.client.producer.message_producer import Producer
from orbitlog.client.producer.outgoing import make_outgoing
from orbitlog.errors import BrokerRefused, RequestTimeout
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.remoting.request_dispatch import not_supported
from orbitlog.remoting.server import RemotingServer
from orbitlog.wire.bodies.body_json import encode_body
from orbitlog.wire.bodies.route_bodies import BrokerData, QueueData, TopicRoute
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.send_headers import SendMessageResponse, SendMessageV2Request
from tests.support.loops import until

ID = "A" * 32
Behave = Callable[[Connection, Command], Answer]


def stored(request: Command, code: int = ResponseCode.SUCCESS) -> Command:
    header = SendMessageResponse("7F00000100002A9F0000000000000000", 0, 5)
    return response_to(request, code, "told so", header.to_ext_fields())


class Place:
    """A server that is name server and broker at once, and writes down what is sent to it."""

    def __init__(self, *others: Place) -> None:
        self.others = others
        self.sent: list[Command] = []
        self.behave: list[Behave] = []
        self.master: Place = self
        self.server = RemotingServer(self.take, host="127.0.0.1", port=0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.address[1]}"

    def take(self, connection: Connection, request: Command) -> Answer:
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            places = dict(zip("abc", (self.master, *self.others), strict=False))
            brokers = tuple(BrokerData(name, "c", {0: place.address}) for name, place in places.items())
            route = TopicRoute(queues=tuple(QueueData(name, 1, 1, 6, 0) for name in places), brokers=brokers)
            return response_to(request, ResponseCode.SUCCESS, body=encode_body(route))
        if request.code != RequestCode.SEND_MESSAGE_V2:
            return not_supported(request)
        self.sent.append(request)
        return self.behave.pop(0)(connection, request) if self.behave else stored(request)


@asynccontextmanager
async def producer_to(place: Place) -> AsyncIterator[Producer]:
    await place.server.start()
    link = ClusterLink([place.address], lambda _, request: not_supported(request))
    producer = Producer(link, Routes(link), "group")
    try:
        await producer.send(make_outgoing("Orders", "opens the connection", ID), seconds=3.0)
        place.sent.clear()
        yield producer
    finally:
        await producer.finish(1.0)
        await link.close()
        await place.server.stop()


def header_of(request: Command) -> dict[str, Any]:
    header = SendMessageV2Request.from_ext_fields(request.ext_fields)
    header.born_timestamp_ms = 0
    return {"code": request.code, "version": request.version, "body": request.body, "header": header}


@pytest.mark.parametrize(
    "more",
    [{}, {"tags": "t", "keys": ["k1", "k2"]}, {"user_properties": {"a": 'quoted "x" \\ and Übung', "b": "\t"}}],
)
def test_fast_and_slow_path_send_the_same_request(more: dict[str, Any]) -> None:
    async def scenario() -> None:
        place = Place()
        async with producer_to(place) as producer:
            message = make_outgoing("Orders", "body", ID, **more)
            long = await producer.send(message, seconds=2.9)
            short = await (producer.send(message, seconds=3.0) if more else producer.send_plain("Orders", b"body", ID))
            assert short == long and short.message_id == ID and short.queue_offset == 5
            first, second = map(header_of, place.sent)
            assert first == second
            assert place.sent[1].opaque == place.sent[0].opaque + 1

    asyncio.run(scenario())


def test_error_code_is_raised_or_retried() -> None:
    async def scenario() -> None:
        place = Place()
        async with producer_to(place) as producer:
            place.behave = [lambda _, request: stored(request, ResponseCode.MESSAGE_ILLEGAL)]
            with pytest.raises(BrokerRefused, match="told so"):
                await producer.send_plain("Orders", b"body", ID)
            assert len(place.sent) == 1
            place.behave = [lambda _, request: stored(request, ResponseCode.SYSTEM_BUSY)]
            assert (await producer.send_plain("Orders", b"body", ID)).queue_offset == 5
            assert len(place.sent) == 3

    asyncio.run(scenario())


def test_lost_connection_is_reopened() -> None:
    def cut(connection: Connection, _: Command) -> Answer:
        connection.abort()
        return None

    async def scenario() -> None:
        place = Place()
        async with producer_to(place) as producer:
            place.behave = [cut]
            assert (await producer.send_plain("Orders", b"body", ID)).queue_offset == 5
            assert producer.in_flight == 0

    asyncio.run(scenario())


def test_missing_response_times_out_and_leaves_nothing_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_sending, "SEND_SECONDS", 0.05)

    async def scenario() -> None:
        place = Place()
        async with producer_to(place) as producer:
            place.behave = [lambda *_: None, lambda _, request: stored(request), lambda *_: None]
            sends = [producer.send_plain("Orders", b"body", ID) for _ in range(3)]
            first, second, third = await asyncio.gather(*sends, return_exceptions=True)
            assert isinstance(first, RequestTimeout) and isinstance(third, RequestTimeout)
            assert not isinstance(second, BaseException)
            assert not producer._fast._pending and producer.in_flight == 0
            assert (await producer.send_plain("Orders", b"body", ID)).queue_offset == 5

    asyncio.run(scenario())


def test_send_to_a_silent_master_is_retried_at_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout of one send has the route fetched until there is another master; others need not time out."""
    monkeypatch.setattr("orbitlog.client.connection.routes._REPLACED_SECONDS", 0.0)
    monkeypatch.setattr(quick_sending, "SEND_SECONDS", 0.05)

    async def scenario() -> None:
        silent, successor = Place(), Place()
        await successor.server.start()
        try:
            async with producer_to(silent) as producer:
                silent.behave = [lambda *_: None, lambda *_: None]
                with pytest.raises(RequestTimeout):
                    await producer.send_plain("Orders", b"body", ID)
                second = asyncio.create_task(producer.send(make_outgoing("Orders", "body", ID), seconds=30.0))
                await until(lambda: len(silent.sent) == 2)
                silent.master = successor
                assert (await second).queue_offset == 5
                assert len(successor.sent) == 1
        finally:
            await successor.server.stop()

    asyncio.run(scenario())


def test_large_body_takes_the_slow_path_and_is_compressed() -> None:
    async def scenario() -> None:
        place = Place()
        async with producer_to(place) as producer:
            await producer.send_plain("Orders", b"x" * 10_000, ID)
            assert len(place.sent[0].body) < 1_000

    asyncio.run(scenario())


def test_fast_path_gives_every_broker_its_turn() -> None:
    """The fast path uses open connections only; brokers without one must still get their turn."""

    async def scenario() -> None:
        other = Place()
        await other.server.start()
        place = Place(other)
        async with producer_to(place) as producer:
            for _ in range(20):
                await producer.send_plain("Orders", b"body", ID)
                await producer.send(make_outgoing("Orders", "body", ID), seconds=3.0)
            assert len(place.sent) + len(other.sent) == 40
            assert abs(len(place.sent) - len(other.sent)) <= 2
        await other.server.stop()

    asyncio.run(scenario())
