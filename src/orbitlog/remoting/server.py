"""Remoting server: listens, gives each connection the handler, closes idle connections, and drains at shutdown."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from typing import TYPE_CHECKING

from orbitlog.remoting.connection import Address, Connection, FastPath, Handler
from orbitlog.remoting.flow import Flow, RemotingLimits
from orbitlog.remoting.memory_budget import MemoryBudget
from orbitlog.settings.limits import FIRST_FRAME_SECONDS, Limits

if TYPE_CHECKING:
    from orbitlog.remoting.tls.server_tls import ServerTls

log = logging.getLogger(__name__)

_BACKLOG = 1024
_BUFFER_WATCH_SECONDS = 1.0


class RemotingServer:
    """Serves `handler` at one address; with port 0 at a free one, which `address` returns.

    `fast_path` is called before the handler (see `Connection`). `counters` gets each limit that is reached. Servers
    that are given the same `memory` share one budget. With `tls`, the first byte of a connection decides whether it is
    encrypted.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: RemotingLimits | None = None,
        fast_path: FastPath | None = None,
        counters: Limits | None = None,
        memory: MemoryBudget | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.limits = limits or RemotingLimits()
        self._handler = handler
        self._fast_path = fast_path
        self._tls = tls
        self._host = host
        self._port = port
        self._flow = Flow(self.limits, counters, memory)
        self._server: asyncio.Server | None = None
        self._address: Address | None = None
        self._idle_watch: asyncio.TimerHandle | None = None
        self._buffer_watch: asyncio.TimerHandle | None = None

    @property
    def address(self) -> Address:
        """Host and port that the server listens on; it must have been started."""
        assert self._address is not None, "not started"
        return self._address

    @property
    def connections(self) -> set[Connection]:
        """The open connections."""
        return self._flow.connections

    @property
    def working_bytes(self) -> int:
        """Bytes of requests in work."""
        return self._flow.memory.working_bytes

    async def start(self) -> None:
        """Listen; raise an `OSError` if the address is taken."""
        loop = asyncio.get_running_loop()
        # By address, not by a bound socket, though that needs no thread for resolving: with one uvloop hung when a loop
        # with two servers was closed.
        self._server = await loop.create_server(
            self._accept, self._host, self._port, backlog=_BACKLOG, reuse_address=True, family=_family(self._host)
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        self._address = host, port
        self._watch_idle()
        self._watch_buffers()

    async def stop(self, grace_seconds: float = 5.0) -> None:
        """Refuse connections and requests, answer the requests read so far, and close; take at most the grace time."""
        for watch in (self._idle_watch, self._buffer_watch):
            if watch is not None:
                watch.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.drain()
        try:
            async with asyncio.timeout(grace_seconds):
                await self._flow.wait_quiet()
        except TimeoutError:
            unanswered = sum(connection.unanswered for connection in self.connections)
            log.warning("shutdown with %d requests unanswered after %g s", unanswered, grace_seconds)
            await self._flow.cut_off()
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self) -> asyncio.Protocol:
        if len(self.connections) >= self.limits.connections:
            if self._flow.refused.is_worth_a_line():
                refused, is_open = self._flow.refused.count, len(self.connections)
                log.warning("connections refused: %d so far, %d are open", refused, is_open)
            return _Refusal()
        connection = Connection(self._handler, self._flow, self._fast_path)
        return connection if self._tls is None else self._tls.gate(connection, self._flow.counters)

    def _watch_idle(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        idle_seconds = self.limits.idle_seconds
        first_seconds = self.limits.first_frame_seconds
        for connection in list(self.connections):
            if not connection.is_waiting_for_peer:
                connection.note_busy(now)
            if connection.idle_seconds(now) > idle_seconds:
                log.info("closing %s: idle for %g s", connection.peer, idle_seconds)
                connection.abort()
            elif not connection.has_sent_a_frame and connection.age_seconds(now) > first_seconds:
                self._flow.counters.reach(FIRST_FRAME_SECONDS)
                connection.abort()
        self._idle_watch = loop.call_later(min(idle_seconds / 4, first_seconds / 4, 10.0), self._watch_idle)

    def _watch_buffers(self) -> None:
        """Look at the buffers of all connections, and for the end of those that are not read from."""
        self._flow.count_unsent()
        self._flow.memory.shed()
        paused = {connection.descriptor: connection for connection in self._flow.paused_connections}
        paused.pop(-1, None)
        if paused:
            poll = select.poll()
            for descriptor in paused:
                poll.register(descriptor, select.POLLRDHUP)
            for descriptor, _ in poll.poll(0):
                paused[descriptor].peer_ended()
        loop = asyncio.get_running_loop()
        self._buffer_watch = loop.call_later(_BUFFER_WATCH_SECONDS, self._watch_buffers)


class _Refusal(asyncio.Protocol):
    """A connection past the limit: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
