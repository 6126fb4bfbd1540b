"""Port gate: decides by the first byte of a connection whether it is TLS or plain. Mirrors Java `TlsModeHandler`.

A plain frame starts with 0x00, because it is shorter than 16 MiB, a TLS handshake with 0x16. After the decision the
gate does nothing more: a plain connection costs what it costs without TLS.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from orbitlog.remoting.tls.tls_session import TlsSession
from orbitlog.remoting.tls.tls_transport import TlsTransport

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection
    from orbitlog.remoting.tls.handshake_turns import HandshakeTurns
    from orbitlog.remoting.tls.server_tls import ServerTls

log = logging.getLogger(__name__)

_HANDSHAKE = 0x16


class PortGate(asyncio.Protocol):
    """The protocol of a connection until its first byte. The connection counts in every limit from the start."""

    def __init__(self, connection: Connection, tls: ServerTls, turns: HandshakeTurns) -> None:
        self._connection = connection
        self._tls = tls
        self._turns = turns
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        transport, connection, tls = self._transport, self._connection, self._tls
        assert transport is not None
        if data[0] == _HANDSHAKE:
            if not self._turns.begin(connection.remote_address[0]):
                transport.abort()
                return
            session = TlsSession(tls.context, server_side=True)
            secured = TlsTransport(
                transport,
                connection,
                session,
                established=lambda done: tls.note_client(connection, done),
                failed=lambda failure: tls.note_failure(connection, failure.sentence),
                turns=self._turns,
            )
            secured.data_received(data)
        elif tls.is_enforcing:
            tls.note_failure(connection, "plain connection to a port that serves TLS only (tls.server.mode=enforcing)")
            transport.close()
        else:
            transport.set_protocol(connection)
            connection.data_received(data)

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)
