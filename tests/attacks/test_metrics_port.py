"""The port of metrics and health: peers that hold connections or do not read cannot keep monitoring out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import uvloop

from orbitlog.observe import http_listener
from orbitlog.observe.conditions import Conditions
from orbitlog.observe.exposition import PROMETHEUS, Exposition
from orbitlog.observe.http_listener import STREAMS_MAX, HttpListener, Page
from orbitlog.observe.metric import GAUGE, Family, Metric, Row
from orbitlog.observe.pages import metrics_and_health
from orbitlog.settings.limits import METRICS_CONNECTIONS, Limits
from orbitlog.testing.running_broker import RunningBroker

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
SERIES = 60_000
METRIC = Metric("attack_rows", GAUGE, "rows", ("name",))
Start = Callable[..., RunningBroker]


def many_rows(_: int) -> Iterator[Family]:
    yield Family(METRIC, [Row(METRIC.text(f"{'x' * 100}{number}"), number) for number in range(SERIES)])


async def ask(listener: HttpListener, request: bytes = GET, source: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(*listener.address, local_addr=(source, 0))
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def deaf_peer(listener: HttpListener, source: str) -> socket.socket:
    """Ask for the metrics, and never read them."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.bind((source, 0))
    peer.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(peer, listener.address)
    await loop.sock_sendall(peer, GET)
    return peer


def served(work: Callable[[HttpListener, Limits], Awaitable[None]]) -> None:
    async def run() -> None:
        limits = Limits()
        exposition = Exposition([many_rows], "", SERIES)
        listener = HttpListener(metrics_and_health(exposition, list, Conditions()), "127.0.0.1", 0, limits)
        await listener.start()
        try:
            await asyncio.wait_for(work(listener, limits), 60)
        finally:
            await listener.stop()

    uvloop.run(run())


def test_peer_that_holds_all_connections_does_not_keep_monitoring_out() -> None:
    async def work(listener: HttpListener, limits: Limits) -> None:
        count = METRICS_CONNECTIONS.default + 8
        idle = [await asyncio.open_connection(*listener.address, local_addr=("127.0.0.2", 0)) for _ in range(count)]
        assert (await ask(listener, b"GET /livez HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert len(listener.open_requests) <= METRICS_CONNECTIONS.default
        assert limits.reached[METRICS_CONNECTIONS.key] >= 8
        for _, writer in idle:
            writer.close()

    served(work)


def test_peers_that_do_not_read_do_not_stop_other_scrapes() -> None:
    async def work(listener: HttpListener, limits: Limits) -> None:
        deaf = [await deaf_peer(listener, "127.0.0.2") for _ in range(3 * STREAMS_MAX)]
        page = await ask(listener)
        assert page.count(b"attack_rows{") == SERIES and page.endswith(b"0\r\n\r\n")
        assert sum(request.is_streaming for request in listener.open_requests) <= STREAMS_MAX
        assert limits.reached[METRICS_CONNECTIONS.key] > 0
        for peer in deaf:
            peer.close()

    served(work)


def test_several_scrapes_do_not_do_more_work_in_a_turn_of_the_loop() -> None:
    turn, pieces = 0, list[int]()

    def reader(_: int) -> Iterator[Family]:
        for _ in range(10):
            pieces.append(turn)
            yield Family(METRIC, [Row(METRIC.text("one"), 1)])

    async def collect(text: AsyncIterator[bytes]) -> None:
        async for _ in text:
            pass

    async def run() -> None:
        exposition = Exposition([reader], "", 10)

        def count() -> None:
            nonlocal turn
            turn += 1
            asyncio.get_running_loop().call_soon(count)

        count()
        await asyncio.gather(*(collect(exposition.pieces(PROMETHEUS)) for _ in range(4)))

    asyncio.run(run())
    assert len(pieces) == 40 and len(set(pieces)) == 40


def test_pipelined_requests_get_one_response() -> None:
    async def work(listener: HttpListener, _: Limits) -> None:
        answer = await ask(listener, b"GET /livez HTTP/1.1\r\n\r\n" * 1_000)
        assert answer.count(b"HTTP/1.1 200") <= 1

    served(work)


def test_request_that_comes_in_single_bytes_ends_in_time(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(http_listener, "_REQUEST_SECONDS", 0.1)

    async def work(listener: HttpListener, _: Limits) -> None:
        reader, writer = await asyncio.open_connection(*listener.address)
        while not reader.at_eof():
            try:
                writer.write(b"G")
                await asyncio.wait_for(reader.read(1), 0.01)
            except TimeoutError:
                continue
            except ConnectionError:
                break
        writer.close()
        assert not listener.open_requests

    served(work)


def test_page_that_is_built_from_a_request_contains_none_of_it() -> None:
    async def work(listener: HttpListener, _: Limits) -> None:
        for request in (b"GET /\x1b[31m HTTP/1.1\r\n\r\n", b"BREW /metrics HTTP/1.1\r\n\r\n", b"\x00" * 9_000):
            answer = await ask(listener, request)
            assert b"\x1b" not in answer and b"BREW" not in answer

    served(work)


def test_metrics_listen_on_loopback_unless_told_otherwise(start_target: Start) -> None:
    target = start_target(metricsExporterType="PROM", metricsPromExporterPort="0")
    meters = target._broker._listeners.meters  # type: ignore[union-attr]
    assert meters is not None and meters.address is not None
    assert meters.address[0] == "127.0.0.1"


def test_page_type_is_not_guessed() -> None:
    """A name in a label must not become a script in a browser."""
    assert Page(200, PROMETHEUS.content_type, b"").content_type.startswith("text/plain")

    async def work(listener: HttpListener, _: Limits) -> None:
        assert b"X-Content-Type-Options: nosniff" in await ask(listener, b"GET /livez HTTP/1.1\r\n\r\n")

    served(work)
