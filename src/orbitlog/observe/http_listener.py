"""HTTP listener: serves a few fixed pages to monitoring systems, one request for each connection.

It reads at most 8 KiB, accepts GET and HEAD, and answers paths of a table only. No part of a request appears in a
response or in a log line. Responses are streamed, so that a large page needs little memory. At a limit of connections
or streams, the oldest one of the address with most of them is closed: a peer cannot keep monitoring out.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from orbitlog.settings.limits import METRICS_CONNECTIONS, Limits

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8 * 1024
STREAMS_MAX = 4
"""Streamed responses at a time. One that its peer does not read keeps the rows of a family."""
_BACKLOG = 128
_REQUEST_SECONDS = 5.0
_RESPONSE_SECONDS = 60.0
_END = b"\r\n\r\n"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """A response: status, content type, and a body that is complete or streamed."""

    status: int
    content_type: str
    body: bytes | AsyncIterator[bytes]


PageMaker = Callable[[str], Page]
"""Returns a page; the argument is the `Accept` header of the request."""


def _error(status: int) -> Page:
    return Page(status, _PLAIN, f"{status} {_REASONS[status]}\n".encode())


class HttpListener:
    """Listens at one address and serves `pages` by path."""

    def __init__(self, pages: Mapping[str, PageMaker], host: str, port: int, limits: Limits | None = None) -> None:
        self.pages = pages
        self._limits = limits or Limits()
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self.open_requests: dict[HttpRequest, None] = {}  # the oldest first

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; the listener must have been started."""
        assert self._server is not None, "not started"
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def start(self) -> None:
        """Listen; raise an `OSError` if the address is taken."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HttpRequest(self), self._host, self._port, backlog=_BACKLOG, family=family
        )

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is None:
            return
        self._server.close()
        for request in list(self.open_requests):
            request.abort()
        await self._server.wait_closed()

    def opened(self, request: HttpRequest) -> None:
        """Add a connection."""
        self.open_requests[request] = None
        self._make_room(self.open_requests, self._limits[METRICS_CONNECTIONS])

    def streaming(self) -> None:
        """Note that a connection has begun to stream."""
        self._make_room((request for request in self.open_requests if request.is_streaming), STREAMS_MAX)

    def _make_room(self, requests: Iterable[HttpRequest], count_max: int) -> None:
        """Close one of `requests` if there are more than `count_max`."""
        present = list(requests)
        if len(present) > count_max:
            self._limits.reach(METRICS_CONNECTIONS)
            counts = Counter(request.peer_ip for request in present)
            max(present, key=lambda request: counts[request.peer_ip]).abort()  # the first of equals is the oldest


class HttpRequest(asyncio.Protocol):
    """One connection: reads one request, sends one response, closes."""

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._timeout: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None
        self.is_streaming = False
        self.peer_ip = ""
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self.peer_ip = str((transport.get_extra_info("peername") or ("",))[0])
        self._timeout = asyncio.get_running_loop().call_later(_REQUEST_SECONDS, self.abort)
        self._listener.opened(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._listener.open_requests.pop(self, None)
        self._may_write.set()
        self._transport = None
        if self._timeout is not None:
            self._timeout.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def abort(self) -> None:
        """Close the connection at once."""
        self._listener.open_requests.pop(self, None)  # now: the event loop reports the end later
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._answering is not None or self._transport is None:
            return  # a request has no body, and only the first one is answered
        self._received += data
        if _END in self._received[:REQUEST_BYTES_MAX]:
            self._begin(*self._parsed(self._received.partition(_END)[0]))
        elif len(self._received) >= REQUEST_BYTES_MAX:
            self._begin(_error(431), with_body=True)

    def _parsed(self, head: bytes) -> tuple[Page, bool]:
        """Return the page for a request, and whether its body is sent."""
        first, *fields = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
            return _error(400), True
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _error(405), True
        make = self._listener.pages.get(target.partition("?")[0])
        if make is None:
            return _error(404), method == "GET"
        accept = next((value for name, _, value in (f.partition(":") for f in fields) if name.lower() == "accept"), "")
        return make(accept), method == "GET"

    def _begin(self, page: Page, with_body: bool) -> None:
        self._received = b""
        loop = asyncio.get_running_loop()
        if self._timeout is not None:
            self._timeout.cancel()
        self._timeout = loop.call_later(_RESPONSE_SECONDS, self.abort)
        self._answering = loop.create_task(self._send(page, with_body))
        self._answering.add_done_callback(self._sent)

    def _sent(self, answering: asyncio.Task[None]) -> None:
        """Close the connection; without the end of the response if it failed, so that it does not look complete."""
        error = None if answering.cancelled() else answering.exception()
        if error is not None:
            log.error("could not build a page of metrics or health", exc_info=error)
            self.abort()
        elif self._transport is not None:
            self._transport.close()

    async def _send(self, page: Page, with_body: bool) -> None:
        head = f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
        if page.status == 405:
            head += "Allow: GET, HEAD\r\n"
        head += "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        if isinstance(page.body, bytes):
            head += f"Content-Length: {len(page.body)}\r\n\r\n"
            self._write(head.encode() + (page.body if with_body else b""))
            return
        self._write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        if not with_body:
            return
        self.is_streaming = True
        self._listener.streaming()
        async for piece in page.body:
            await self._may_write.wait()
            if self._transport is None:
                return
            self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self._write(b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
