"""A client of RocketMQ's protocol: one connection an address, shared by all who ask, opened anew when it is lost."""

from __future__ import annotations

import asyncio
import os
import socket

from orbitlog.errors import ConnectFailed, RemotingError, RequestTimeout
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.flow import Flow, RemotingLimits
from orbitlog.remoting.request_dispatch import not_supported
from orbitlog.wire.command import Command

CONNECT_SECONDS = 3.0
SILENT_SECONDS = 10.0


def _refuse_requests(_: Connection, request: Command) -> Answer:
    return not_supported(request)


class RemotingClient:
    """Asks servers by their address `host:port`. `handler` gets what servers ask on the same connections."""

    def __init__(self, handler: Handler = _refuse_requests, *, limits: RemotingLimits | None = None) -> None:
        self._handler = handler
        self._flow = Flow(limits or RemotingLimits())
        self._connections: dict[str, asyncio.Task[Connection]] = {}
        self._is_closed = False

    async def invoke(self, address: str, command: Command, timeout: float = 3.0) -> Command:  # noqa: ASYNC109
        """Ask; returns the answer, whatever its code. The time counts connecting, too."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        connection = await self.connect(address, timeout)
        try:
            return await connection.request(command, max(deadline - loop.time(), 0.0))
        except RequestTimeout:
            # Nothing at all came for long: the peer may be gone without a word, and the next one who asks dials anew.
            if connection.idle_seconds(loop.time()) >= SILENT_SECONDS:
                connection.abort()
            raise

    async def invoke_oneway(self, address: str, command: Command) -> None:
        """Tell; returns when the bytes are on their way, and waits for a peer that takes them too slowly."""
        connection = await self.connect(address)
        connection.request_oneway(command)
        if connection.is_slow:
            await connection.wait_until_drained(CONNECT_SECONDS)

    async def connect(self, address: str, timeout: float = CONNECT_SECONDS) -> Connection:  # noqa: ASYNC109
        """Return the open connection to `address`, opening it if need be."""
        if self._is_closed:
            raise RemotingError("the client is closed")
        task = self._connections.get(address)
        if task is not None and task.done() and _is_usable(task):
            return task.result()
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(self._open(address))
            task.add_done_callback(_look_at_failure)
            self._connections[address] = task
        # Shielded: whoever gives up waiting does not take the connection from the others.
        done, _ = await asyncio.wait({task}, timeout=min(timeout, CONNECT_SECONDS))
        if not done:
            raise ConnectFailed(f"{address} cannot be connected to within {min(timeout, CONNECT_SECONDS):g} s")
        if task.cancelled():
            raise RemotingError("the client is closed")
        return task.result()

    def open_connection(self, address: str) -> Connection | None:
        """Return the connection to `address` if it is open."""
        task = self._connections.get(address)
        return task.result() if task is not None and task.done() and _is_usable(task) else None

    async def close(self) -> None:
        """Close every connection; whoever waits for an answer gets `ConnectionLost`."""
        self._is_closed = True
        tasks, self._connections = list(self._connections.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._flow.cut_off()

    async def _open(self, address: str) -> Connection:
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(lambda: Connection(self._handler, self._flow), host, port)
        except TimeoutError:
            raise ConnectFailed(f"{address} cannot be connected to within {CONNECT_SECONDS:g} s") from None
        except OSError as error:
            raise ConnectFailed(f"{address} cannot be connected to: {_reason(error)}") from None
        return connection


def _reason(error: OSError) -> str:
    """Say why in the system's words: event loops put the address there instead, each in its own way."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _look_at_failure(task: asyncio.Task[Connection]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def _is_usable(task: asyncio.Task[Connection]) -> bool:
    return not task.cancelled() and task.exception() is None and not task.result().is_closed


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port`, also `[v6]:port`; `ConnectFailed` if it is neither."""
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ConnectFailed(f"{address!r} is not an address of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
