"""HTTP listener over real sockets: bounded requests, fixed pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from orbitlog.observe import http_listener
from orbitlog.observe.http_listener import REQUEST_BYTES_MAX, HttpListener, Page
from orbitlog.settings.limits import METRICS_CONNECTIONS


async def pieces() -> AsyncIterator[bytes]:
    yield b"one\n"
    yield b"two\n"


async def failing() -> AsyncIterator[bytes]:
    yield b"one\n"
    raise ValueError("a reader is broken")


PAGES: dict[str, Callable[[str], Page]] = {
    "/plain": lambda accept: Page(200, "text/plain", accept.strip().encode()),
    "/stream": lambda _: Page(200, "text/plain", pieces()),
    "/broken": lambda _: Page(200, "text/plain", failing()),
}


def served(work: Callable[[HttpListener], Awaitable[None]]) -> None:
    async def run() -> None:
        listener = HttpListener(PAGES, "127.0.0.1", 0)
        await listener.start()
        try:
            await work(listener)
        finally:
            await listener.stop()
        assert not listener.open_requests

    asyncio.run(run())


async def asked(listener: HttpListener, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*listener.address)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_bytes", "start", "end"),
    [
        (b"GET /plain HTTP/1.1\r\nHost: x\r\nAccept: a/b\r\n\r\n", b"HTTP/1.1 200 OK", b"\r\n\r\na/b"),
        (b"GET /plain?x=1 HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK", b"\r\n\r\n"),
        (b"HEAD /plain HTTP/1.1\r\nAccept: a/b\r\n\r\n", b"HTTP/1.1 200 OK", b"Content-Length: 3\r\n\r\n"),
        (b"GET /stream HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK", b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n"),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", b"HTTP/1.1 404", b"404 Not Found\n"),
        (b"GET /<script> HTTP/1.1\r\n\r\n", b"HTTP/1.1 404", b"404 Not Found\n"),
        (b"POST /plain HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", b"HTTP/1.1 405", b"405 Method Not Allowed\n"),
        (b"GET /plain\r\n\r\n", b"HTTP/1.1 400", b"400 Bad Request\n"),
        (b"\x16\x03\x01\r\n\r\n", b"HTTP/1.1 400", b"400 Bad Request\n"),
    ],
)
def test_request_gets_its_page_or_an_error(request_bytes: bytes, start: bytes, end: bytes) -> None:
    async def work(listener: HttpListener) -> None:
        answer = await asked(listener, request_bytes)
        assert answer.startswith(start) and answer.endswith(end)
        assert b"script" not in answer and b"passwd" not in answer

    served(work)


def test_long_request_refused() -> None:
    async def work(listener: HttpListener) -> None:
        answer = await asked(listener, b"GET /plain HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES_MAX)
        assert answer.startswith(b"HTTP/1.1 431")

    served(work)


def test_page_that_fails_ends_without_its_last_chunk(caplog: pytest.LogCaptureFixture) -> None:
    async def work(listener: HttpListener) -> None:
        with caplog.at_level(logging.ERROR):
            answer = await asked(listener, b"GET /broken HTTP/1.1\r\n\r\n")
        assert not answer.endswith(b"0\r\n\r\n")
        assert "could not build a page" in caplog.text

    served(work)


def test_idle_connections_limited_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "_REQUEST_SECONDS", 0.05)

    async def work(listener: HttpListener) -> None:
        idle = [await asyncio.open_connection(*listener.address) for _ in range(METRICS_CONNECTIONS.default + 4)]
        await asyncio.sleep(0)
        assert len(listener.open_requests) <= METRICS_CONNECTIONS.default
        for reader, writer in idle:  # closed by the listener, at once or after the timeout
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
            writer.close()

    served(work)
