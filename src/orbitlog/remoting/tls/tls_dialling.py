"""TLS of a client's connections: the handshake after the TCP connection, with the host name verified."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, cast

from orbitlog.errors import HandshakeFailed
from orbitlog.remoting.tls.tls_failures import TlsFailure
from orbitlog.remoting.tls.tls_session import TlsSession
from orbitlog.remoting.tls.tls_transport import TlsTransport

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection


class TlsDialling(asyncio.Protocol):
    """The protocol of a new connection: starts TLS at once; `wait` returns the connection after the handshake."""

    def __init__(self, connection: Connection, context: ssl.SSLContext, host: str, port: int) -> None:
        self._connection = connection
        self._context = context
        self._host = host
        self._address = f"{host}:{port}"
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(transport)
        session = TlsSession(self._context, server_side=False, host=self._host)
        TlsTransport(
            cast(asyncio.Transport, transport),
            self._connection,
            session,
            established=self._established,
            failed=self._failed,
        ).start()

    async def wait(self) -> Connection:
        """Return the connection; raise `HandshakeFailed` if the handshake fails."""
        try:
            await self._ready
        except asyncio.CancelledError:
            self._connection.abort()
            raise
        return self._connection

    def _established(self, _: TlsSession) -> None:
        if not self._ready.done():
            self._ready.set_result(None)

    def _failed(self, failure: TlsFailure) -> None:
        if self._ready.done():
            self._connection.end_reason = failure.sentence
            return
        hint = "; the server may not serve TLS, or requires a client certificate" if failure.is_early_end else ""
        text = f"TLS handshake with {self._address} failed: {failure.sentence}{hint}"
        self._ready.set_exception(HandshakeFailed(text))
