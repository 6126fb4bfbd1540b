"""Remoting client: one connection per server address, shared by all callers and reopened after it is lost."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from orbitlog.errors import ConnectFailed, RemotingError, RequestTimeout
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.flow import Flow, RemotingLimits
from orbitlog.remoting.request_dispatch import not_supported
from orbitlog.wire.command import Command

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS = 3.0
SILENT_SECONDS = 10.0
MakeFrame = Callable[[int], bytes]
_ADDRESS_LENGTH_MAX = 300  # a host name has at most 253 characters
_LABEL_LENGTH_MAX = 63


def _refuse_requests(_: Connection, request: Command) -> Answer:
    return not_supported(request)


class RemotingClient:
    """Sends requests to servers by their address `host:port`; `handler` gets the servers' requests.

    `sign`, if given, adds credentials to each request before it is sent. With `tls`, connections are encrypted.
    """

    def __init__(
        self,
        handler: Handler = _refuse_requests,
        *,
        limits: RemotingLimits | None = None,
        sign: Callable[[Command], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._handler = handler
        self._sign = sign
        self._tls = tls
        self._flow = Flow(limits or RemotingLimits())
        self._connections: dict[str, asyncio.Task[Connection]] = {}
        self._is_closed = False

    async def invoke(self, address: str, command: Command, timeout: float = 3.0) -> Command:  # noqa: ASYNC109
        """Send a request and return its response, whatever the code; `timeout` includes connecting.

        Raise `ConnectFailed`, `RequestTimeout` or `ConnectionLost`.
        """
        if self._sign is not None:
            self._sign(command)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        connection = await self.connect(address, timeout)
        try:
            return await connection.request(command, max(deadline - loop.time(), 0.0))
        except RequestTimeout:
            _abort_if_silent(connection, loop.time())
            raise

    async def invoke_frame(self, address: str, code: int, make_frame: MakeFrame, timeout: float) -> Command:  # noqa: ASYNC109
        """Send an encoded request as `invoke` does; `make_frame` gets its opaque number. It is not signed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        connection = self.open_connection(address) or await self.connect(address, timeout)
        outgoing = connection.outgoing
        opaque = outgoing.reserve_opaque()
        try:
            return await outgoing.request_frame(opaque, code, make_frame(opaque), max(deadline - loop.time(), 0.0))
        except RequestTimeout:
            _abort_if_silent(connection, loop.time())
            raise

    async def invoke_oneway(self, address: str, command: Command) -> None:
        """Send a request without a response; wait if the peer reads too slowly."""
        if self._sign is not None:
            self._sign(command)
        connection = await self.connect(address)
        connection.request_oneway(command)
        if connection.is_slow:
            await connection.wait_until_drained(CONNECT_SECONDS)

    async def connect(self, address: str, timeout: float = CONNECT_SECONDS) -> Connection:  # noqa: ASYNC109
        """Return the open connection to `address`, opened if needed; raise `ConnectFailed` if that fails."""
        if self._is_closed:
            raise RemotingError("the client is closed")
        task = self._connections.get(address)
        if task is not None and task.done() and _is_usable(task):
            return task.result()
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(self._open(address))
            task.add_done_callback(partial(self._opened, address))
            self._connections[address] = task
        # `wait` does not cancel the task: other callers may be waiting for the same connection.
        done, _ = await asyncio.wait({task}, timeout=min(timeout, CONNECT_SECONDS))
        if not done:
            raise ConnectFailed(f"could not connect to {address} within {min(timeout, CONNECT_SECONDS):g} s")
        if task.cancelled():
            raise RemotingError("the client is closed")
        return task.result()

    def open_connection(self, address: str) -> Connection | None:
        """Return the connection to `address` if it is open."""
        task = self._connections.get(address)
        return task.result() if task is not None and task.done() and _is_usable(task) else None

    def drop_silent(self, address: str, seconds: float, reason: str) -> None:
        """Close the connection to an address if responses are due and nothing was read for `seconds`."""
        connection = self.open_connection(address)
        if connection is None or not connection.outgoing.is_waiting:
            return
        if connection.idle_seconds(asyncio.get_running_loop().time()) >= seconds:
            connection.end_reason = reason
            connection.abort()

    def _opened(self, address: str, task: asyncio.Task[Connection]) -> None:
        """Forget a connection that failed, or that ends later: name servers may state any number of addresses."""
        # The exception is retrieved here: without waiting callers asyncio would log it as never retrieved.
        if task.cancelled() or task.exception() is not None:
            self._forget(address, task)
        else:
            task.result().on_close(lambda _: self._forget(address, task))

    def _forget(self, address: str, task: asyncio.Task[Connection]) -> None:
        if self._connections.get(address) is task:
            del self._connections[address]

    async def close(self) -> None:
        """Close every connection; callers that wait for a response get `ConnectionLost`."""
        self._is_closed = True
        tasks, self._connections = list(self._connections.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._flow.cut_off()

    async def _open(self, address: str) -> Connection:
        host, port = split_address(address)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await self._dial(host, port)
        except TimeoutError:
            raise ConnectFailed(f"could not connect to {address} within {CONNECT_SECONDS:g} s") from None
        except OSError as error:
            raise ConnectFailed(f"could not connect to {address}: {_reason(error)}") from None

    async def _dial(self, host: str, port: int) -> Connection:
        loop, tls = asyncio.get_running_loop(), self._tls
        if tls is None:
            _, connection = await loop.create_connection(lambda: Connection(self._handler, self._flow), host, port)
            return connection
        from orbitlog.remoting.tls.tls_dialling import TlsDialling

        def protocol() -> TlsDialling:
            return TlsDialling(Connection(self._handler, self._flow), tls, host, port)

        _, dialling = await loop.create_connection(protocol, host, port)
        return await dialling.wait()


def _abort_if_silent(connection: Connection, now: float) -> None:
    """Abort a connection after a timeout if the peer may be gone without closing: the next request opens a new one."""
    if connection.idle_seconds(now) >= SILENT_SECONDS:
        connection.abort()


def _reason(error: OSError) -> str:
    """Return the operating system's text for an error: asyncio and uvloop add the address, each in its own form."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _is_usable(task: asyncio.Task[Connection]) -> bool:
    return not task.cancelled() and task.exception() is None and not task.result().is_closed


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` or `[v6]:port`; raise `ConnectFailed` for anything else.

    Name servers and brokers state addresses, so a host that no resolver can encode is refused here: they raise
    `UnicodeError` for an empty or overlong label, and for half a surrogate pair.
    """
    if len(address) > _ADDRESS_LENGTH_MAX:
        raise ConnectFailed(f"{address[:_ADDRESS_LENGTH_MAX]!r}... is not an address: it has {len(address)} characters")
    host, _, port = address.rpartition(":")
    if not (_is_encodable(host) and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ConnectFailed(f"{address!r} is not an address of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_encodable(host: str) -> bool:
    """Return whether a resolver can encode the name of a host, which may end with a dot."""
    if host.isascii():
        labels = host.removesuffix(".").split(".")
        return host.isprintable() and all(0 < len(label) <= _LABEL_LENGTH_MAX for label in labels)
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return host.isprintable()
