"""Bounded connections: closes those of peers that neither send a whole request nor read a response.

uvicorn limits requests in work, but not connections, and waits without a limit for the first request, for the rest of a
request, and for peers that do not read. It limits the bytes of a request head, but neither its header lines nor the
chunks of a body. Each costs tens of microseconds, before any check of the request, and all that arrive in one read are
parsed in one turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 256
REQUEST_SECONDS = 20.0
"""Time for a whole request to arrive, from the opening of the connection or the last response."""
UNREAD_SECONDS = 60.0
HEAD_BYTES_MAX = 32 * 1024
HEAD_LINES_MAX = 100
CHUNKS_MAX = 1024
"""Chunks of one body: they have 1 KiB on average if the body is as large as the console takes."""
_CHECK_SECONDS = 2.0
_PARSED_BYTES = 16 * 1024
_HEAD_END = re.compile(rb"\n\r?\n")


class OpenConnections:
    """The connections of one console; `factory` returns the protocol of a new one."""

    def __init__(self) -> None:
        self._open: dict[BoundedProtocol, None] = {}  # the oldest first
        self._next_check: asyncio.TimerHandle | None = None
        self.closed_count = 0

    def __len__(self) -> int:
        return len(self._open)

    def factory(self, *args: Any, **options: Any) -> BoundedProtocol:
        """Return a protocol; the arguments are uvicorn's."""
        return BoundedProtocol(self, *args, **options)

    def opened(self, connection: BoundedProtocol) -> None:
        """Add a connection; if there are too many, close one that waits for its peer: the oldest of its address.

        Of the addresses, it is the one with most connections.
        """
        self._open[connection] = None
        if self._next_check is None:
            self._plan_check()
        if len(self._open) <= CONNECTIONS_MAX:
            return
        waiting = [each for each in self._open if each.is_idle or each.unread_bytes]
        counts = Counter(each.peer_ip for each in self._open)
        self.close(max(waiting, key=lambda each: counts[each.peer_ip]), "too many connections are open")

    def lost(self, connection: BoundedProtocol) -> None:
        """Remove a connection that has ended."""
        self._open.pop(connection, None)

    def close(self, connection: BoundedProtocol, reason: str) -> None:
        """Close a connection at once."""
        self._open.pop(connection, None)  # now: the event loop reports the end later
        self.closed_count += 1
        log.info("closing a connection of %s: %s (%d so far)", connection.peer_ip, reason, self.closed_count)
        connection.transport.abort()

    def _plan_check(self) -> None:
        self._next_check = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        self._next_check = None
        now_s = asyncio.get_running_loop().time()
        for connection in list(self._open):
            if reason := connection.overdue(now_s):
                self.close(connection, reason)
        if self._open:
            self._plan_check()


class _TooManyParts(Exception):
    """A request has more header lines or chunks than it may have."""


class BoundedProtocol(H11Protocol):
    """One connection to the console, with the times at which its peer sent or read something."""

    def __init__(self, connections: OpenConnections, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connections = connections
        self._waits_since_s = 0.0  # for a request or the rest of one
        self._unread = (0, 0.0)  # bytes in the send buffer, and since when there are not fewer
        self.peer_ip = ""
        self._chunk_count = 0
        self._next_event = self.conn.next_event
        self.conn.next_event = self._counted_event  # type: ignore[method-assign]

    def data_received(self, data: bytes) -> None:
        """Parse a read in parts: h11 limits the bytes of a head or trailer only while it is incomplete."""
        for start in range(0, len(data), _PARSED_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + _PARSED_BYTES])

    def handle_events(self) -> None:
        """Parse what was received; close the connection if that is too many parts."""
        try:
            super().handle_events()
        except _TooManyParts as error:
            self._connections.close(self, str(error))

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request; close the connection if the malformed bytes follow the start of its response."""
        if self.conn.our_state.__name__ in ("IDLE", "SEND_RESPONSE"):
            super().send_400_response(msg)
        else:
            self._connections.close(self, "malformed bytes after the start of a response")

    def _counted_event(self) -> Any:
        """Return the next event of h11; raise `_TooManyParts` before it parses a head of many lines."""
        if self.conn.their_state.__name__ == "IDLE":
            self._chunk_count = 0
            received = self.conn.trailing_data[0]
            if received.count(b"\n", 0, _head_end(received)) > HEAD_LINES_MAX:
                raise _TooManyParts(f"more than {HEAD_LINES_MAX} header lines")
        event = self._next_event()
        if getattr(event, "chunk_start", False):
            self._chunk_count += 1
            if self._chunk_count > CHUNKS_MAX:
                raise _TooManyParts(f"more than {CHUNKS_MAX} chunks in a request")
        return event

    @property
    def is_idle(self) -> bool:
        """Return whether no whole request is in work."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    @property
    def unread_bytes(self) -> int:
        """Bytes of responses that the peer has not read."""
        return self.transport.get_write_buffer_size()

    def overdue(self, now_s: float) -> str:
        """Return why the connection should be closed; empty if it should not."""
        unread = self.unread_bytes
        if not unread or unread < self._unread[0]:
            self._unread = unread, now_s
        elif unread > self._unread[0]:
            self._unread = unread, self._unread[1]
        if not self.is_idle:
            self._waits_since_s = now_s
        elif now_s - self._waits_since_s > REQUEST_SECONDS:
            return f"no whole request within {REQUEST_SECONDS:g} s"
        return f"nothing was read for {UNREAD_SECONDS:g} s" if now_s - self._unread[1] > UNREAD_SECONDS else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self.peer_ip = self.client[0] if self.client else ""
        self._waits_since_s = self.loop.time()
        self._unread = 0, self._waits_since_s
        self._connections.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.lost(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._waits_since_s = self.loop.time()
        super().on_response_complete()


def _head_end(received: bytes) -> int:
    """Return the end of the first request head; that of all bytes if it is incomplete."""
    end = _HEAD_END.search(received)
    return end.end() if end else len(received)
