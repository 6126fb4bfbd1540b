"""Requests that take much memory while they are handled: a few at a time, and long headers count as memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import orjson
import pytest

from orbitlog.errors import RequestRefused
from orbitlog.remoting import request_dispatch
from orbitlog.remoting.connection import Connection
from orbitlog.remoting.guarded_limits import guarded_limits
from orbitlog.remoting.request_dispatch import DELAYED_SECONDS, LongRequests
from orbitlog.remoting.server import RemotingServer
from orbitlog.settings.limits import Limits
from orbitlog.testing.running_broker import RunningBroker
from orbitlog.wire.command import Command, response_to
from tests.support.hot_path import FakeTransport
from tests.support.raw_peer import RawPeer, raw_frame

LONG = 208


class Peer:
    """What `LongRequests` needs of a connection."""

    def __init__(self, address: str) -> None:
        self.remote_address = (address, 1)
        self.closed: list[Callable[[Any], object]] = []

    def on_close(self, callback: Callable[[Any], object]) -> None:
        self.closed.append(callback)


class Desk:
    """Long requests that are handled until `finish`."""

    def __init__(self, **limits: int) -> None:
        self.limits = Limits(limits)
        self.now_s = 0.0
        self.long = LongRequests(self.limits, lambda: self.now_s)
        self.started: list[Command] = []
        self._finished: dict[int, asyncio.Event] = {}
        self._handler = self.long.table({LONG: self._handle})[LONG]

    async def _handle(self, _: Connection, request: Command) -> Command:
        self.started.append(request)
        finished = self._finished[request.opaque] = asyncio.Event()
        await finished.wait()
        return response_to(request, 0)

    def ask(self, peer: Peer, opaque: int) -> asyncio.Task[Any]:
        answer = self._handler(cast(Connection, peer), Command(LONG, opaque=opaque))
        return asyncio.ensure_future(cast(Any, answer))

    async def finish(self, opaque: int) -> None:
        self._finished[opaque].set()
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def opaques(self) -> list[int]:
        return [request.opaque for request in self.started]


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_addresses_take_turns_and_no_more_than_the_maximum_is_handled() -> None:
    async def run() -> None:
        desk = Desk(longRequestsMax=3, longRequestsPerAddressMax=2)
        flood, honest = Peer("6.6.6.6"), Peer("10.0.0.1")
        tasks = [desk.ask(flood, number) for number in range(1, 11)]
        await settled()
        tasks += [desk.ask(honest, number) for number in (101, 102)]
        await settled()
        assert desk.opaques == [1, 2, 101]
        desk.now_s += DELAYED_SECONDS
        await desk.finish(1)
        assert desk.opaques == [1, 2, 101, 3]
        await desk.finish(2)
        assert desk.opaques == [1, 2, 101, 3, 102]
        for opaque in (101, 102, *range(3, 11)):
            await desk.finish(opaque)
        assert len(await asyncio.gather(*tasks)) == 12
        assert desk.long.count_max == 3
        assert desk.limits.reached["longRequestsPerAddressMax"] == 8
        assert desk.limits.reached["longRequestsMax"] == 1
        assert desk.long._counts == {} and desk.long._waiting == {}

    asyncio.run(run())


def test_tool_that_asks_in_parallel_and_waits_for_milliseconds_raises_no_alarm() -> None:
    async def run() -> None:
        desk = Desk(longRequestsMax=3, longRequestsPerAddressMax=2)
        tasks = [desk.ask(Peer("10.0.0.1"), number) for number in range(1, 17)]
        await settled()
        for opaque in range(1, 17):
            desk.now_s += DELAYED_SECONDS / 20
            await desk.finish(opaque)
        await asyncio.gather(*tasks)
        assert not any(desk.limits.reached.values())

    asyncio.run(run())


def test_requests_of_a_closed_connection_stop_waiting() -> None:
    async def run() -> None:
        desk = Desk(longRequestsMax=1)
        leaving, staying = Peer("6.6.6.6"), Peer("6.6.6.6")
        running = desk.ask(leaving, 1)
        await settled()
        waiting = [desk.ask(leaving, 2), desk.ask(staying, 3), desk.ask(leaving, 4)]
        await settled()
        assert len(leaving.closed) == 1
        leaving.closed[0](leaving)
        refused = await asyncio.gather(waiting[0], waiting[2], return_exceptions=True)
        assert [type(error) for error in refused] == [RequestRefused] * 2
        await desk.finish(1)
        assert desk.opaques == [1, 3]
        await desk.finish(3)
        await asyncio.gather(running, waiting[1])

    asyncio.run(run())


def test_cancelled_request_gives_its_turn_back() -> None:
    async def run() -> None:
        desk = Desk(longRequestsMax=1)
        tasks = [desk.ask(Peer("1.1.1.1"), number) for number in (1, 2, 3)]
        await settled()
        tasks[1].cancel()
        await settled()
        await desk.finish(1)
        assert desk.opaques == [1, 3]
        tasks[2].cancel()
        await settled()
        assert desk.long._count == 0
        assert desk.ask(Peer("1.1.1.1"), 4) and await settled() is None
        assert desk.opaques == [1, 3, 4]
        await desk.finish(4)

    asyncio.run(run())


def test_long_lists_of_a_broker_wait_for_each_other(
    start_target: Callable[..., RunningBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_dispatch, "DELAYED_SECONDS", 0.0)  # every wait counts
    target = start_target(longRequestsMax="1")
    body = orjson.dumps({"topicConfigList": [{"topicName": f"T{number}"} for number in range(400)]})
    with RawPeer(target.broker_address) as peer:
        peer.send(b"".join(raw_frame(18, {}, body, opaque=number) for number in range(1, 9)))
        assert {peer.receive().code for _ in range(8)} == {0}
        assert int(orjson.loads(peer.ask(28).body)["table"]["limitReached_longRequestsMax"]) > 0


@pytest.mark.parametrize("is_one_way", [False, True])
def test_long_headers_of_requests_in_work_count_as_memory(is_one_way: bool) -> None:
    async def run() -> None:
        ends = asyncio.Event()

        async def slow(_: Connection, request: Command) -> Command:
            await ends.wait()
            return response_to(request, 0)

        limits = Limits()
        server = RemotingServer(slow, limits=guarded_limits(limits, connections=100), counters=limits)
        transport = FakeTransport(keeps=True)
        connection = transport.connection = cast(Connection, server._accept())
        connection.connection_made(cast(asyncio.Transport, transport))
        fields = {"topicList": "t" * 200_000}
        frame = raw_frame(LONG, fields, flag=2 * is_one_way)
        for _ in range(500):
            connection.data_received(frame)
            await asyncio.sleep(0)
        memory = connection.memory
        in_work = connection.incoming.in_flight_count
        assert 0 < in_work < 200, "the others wait as bytes, which are counted"
        assert memory.working_bytes >= 2 * 200_000 * in_work
        ends.set()
        for _ in range(2_000):
            await asyncio.sleep(0)
        assert connection.unanswered == 0 and memory.working_bytes == 0
        transport.close()

    asyncio.run(run())
