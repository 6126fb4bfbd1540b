"""A server of RocketMQ's protocol: listens, gives each connection the handler, closes idle ones, stops in peace."""

from __future__ import annotations

import asyncio
import logging
import socket

from orbitlog.remoting.connection import Address, Connection, FastPath, Handler
from orbitlog.remoting.flow import Flow, RemotingLimits

log = logging.getLogger(__name__)

_BACKLOG = 1024


class RemotingServer:
    """Serves `handler` at one address. Port 0 picks a free one; `address` tells which.

    `fast_path` is called before the handler (see `Connection`).
    """

    def __init__(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: RemotingLimits | None = None,
        fast_path: FastPath | None = None,
    ) -> None:
        self.limits = limits or RemotingLimits()
        self._handler = handler
        self._fast_path = fast_path
        self._host = host
        self._port = port
        self._flow = Flow(self.limits)
        self._server: asyncio.Server | None = None
        self._address: Address | None = None
        self._idle_watch: asyncio.TimerHandle | None = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        assert self._address is not None, "not started"
        return self._address

    @property
    def connections(self) -> set[Connection]:
        """Those that are open now."""
        return self._flow.connections

    @property
    def working_bytes(self) -> int:
        """What the requests without an answer hold."""
        return self._flow.working_bytes

    async def start(self) -> None:
        """Listen; `OSError` if the address is taken."""
        loop = asyncio.get_running_loop()
        # TLS goes here: what the connection is given is a transport either way.
        # By address: given a bound socket, which costs no thread, uvloop hung when a loop with two servers was closed.
        self._server = await loop.create_server(
            self._accept, self._host, self._port, backlog=_BACKLOG, reuse_address=True, family=_family(self._host)
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        self._address = host, port
        self._watch_idle()

    async def stop(self, grace_seconds: float = 5.0) -> None:
        """Take no more connections and requests, answer what was taken, close. Ends after the grace at the latest."""
        if self._idle_watch is not None:
            self._idle_watch.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.drain()
        try:
            async with asyncio.timeout(grace_seconds):
                await self._flow.wait_quiet()
        except TimeoutError:
            unanswered = sum(connection.unanswered for connection in self.connections)
            log.warning("stopped with %d requests unanswered after %g s", unanswered, grace_seconds)
            await self._flow.cut_off()
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self) -> asyncio.Protocol:
        if len(self.connections) >= self.limits.connections:
            if self._flow.refused.is_worth_a_line():
                log.warning("%d connections refused: %d are open", self._flow.refused.count, len(self.connections))
            return _Refusal()
        return Connection(self._handler, self._flow, self._fast_path)

    def _watch_idle(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        idle_seconds = self.limits.idle_seconds
        for connection in list(self.connections):
            if connection.idle_seconds(now) > idle_seconds:
                log.info("%s was silent for %g s, so it is closed", connection.peer, idle_seconds)
                connection.abort()
        self._idle_watch = loop.call_later(min(idle_seconds / 4, 10.0), self._watch_idle)


class _Refusal(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
