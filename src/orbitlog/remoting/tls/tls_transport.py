"""TLS transport: stands between the event loop's transport and a `Connection`, and looks to each like the other.

`Connection` uses few methods of a transport; these are passed on, with bytes encrypted on the way. Backpressure is that
of the transport below: nothing is kept here but an incomplete record, or a handshake that waits for its turn.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from orbitlog.remoting.tls.record_lengths import RecordLengths
from orbitlog.remoting.tls.tls_failures import ENDED_EARLY, TINY_RECORDS, TOO_LONG, TlsFailure, describe_failure
from orbitlog.remoting.tls.tls_session import TlsSession

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection
    from orbitlog.remoting.tls.handshake_turns import HandshakeTurns

log = logging.getLogger(__name__)

Established = Callable[[TlsSession], object]
Failed = Callable[[TlsFailure], object]


HANDSHAKE_BYTES_MAX = 512 * 1024
"""More than OpenSSL accepts of one handshake, and a read of requests that follow it."""


class TlsTransport(asyncio.Protocol):
    """One TLS connection: `established` is called after the handshake, `failed` with the reason if TLS fails.

    The handshake of a server's connection has begun in `turns`, and continues in its turns.
    """

    def __init__(
        self,
        below: asyncio.Transport,
        connection: Connection,
        session: TlsSession,
        *,
        established: Established,
        failed: Failed,
        turns: HandshakeTurns | None = None,
    ) -> None:
        self._below = below
        self._connection = connection
        self._session = session
        self._established: Established | None = established
        self._failed: Failed | None = failed
        self._is_half_closed = False
        self._takes_no_more = False  # after the peer's announced end, and after a failure
        self._turns = turns  # None after the handshake
        self._lengths = RecordLengths()
        self._handshake_bytes = 0
        self._early: list[bytes] = []  # received bytes of a handshake that waits for its turn
        self._is_eof_early = False
        self._is_paused = False  # reading, until the handshake has its turn
        self._is_held = False  # reading, by the connection
        below.set_protocol(self)
        connection.use_transport(cast(asyncio.Transport, self))

    def start(self) -> None:
        """Send the first message of a client."""
        self._session.start()
        self._flush()

    # Calls of the event loop

    def data_received(self, data: bytes) -> None:
        if self._takes_no_more:
            return
        if not self._lengths.receive(data):
            self._fail(TINY_RECORDS)
        elif self._turns is None:
            self._receive(data)
            self._count(self._lengths.kept_bytes)
        else:
            self._handshake_bytes += len(data)
            self._count(self._handshake_bytes)
            self._early.append(data)
            if len(self._early) == 1:
                self._turns.take(self._connection.remote_address[0], self._continue_handshake)
            elif self._handshake_bytes > HANDSHAKE_BYTES_MAX and not self._is_paused:
                # A client sends its requests without waiting for this end: they stay in the socket until its turn.
                self._is_paused = True
                self._below.pause_reading()

    def _continue_handshake(self) -> None:
        data, self._early = b"".join(self._early), []
        if self._takes_no_more or self._below.is_closing():
            return
        if self._is_paused:
            self._is_paused = False
            if not self._is_held:
                self._below.resume_reading()
        self._receive(data)
        if self._turns is not None and self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self._fail(TOO_LONG)
        if self._is_eof_early:
            self._end_early()

    def _end_early(self) -> None:
        """Take the end of the peer that came while its handshake waited."""
        if not self._takes_no_more and not self.eof_received():
            self._below.close()

    def _receive(self, data: bytes) -> None:
        session = self._session
        try:
            plain = session.receive(data)
        except ssl.SSLError as error:
            self._fail(describe_failure(error))
            return
        if self._established is not None and session.is_established:
            established, self._established = self._established, None
            self._end_handshake()
            established(session)
        self._flush()
        if plain:
            self._connection.data_received(plain)
        if session.is_ended:
            self._takes_no_more = True
            self._end_of_peer()

    def _end_handshake(self) -> None:
        """Give back the place of an unfinished handshake, once."""
        if self._turns is not None:
            self._turns.end(self._connection.remote_address[0])
            self._turns = None
            self._count(self._lengths.kept_bytes)

    def _count(self, size: int) -> None:
        memory = self._connection.memory
        if memory.tls_bytes != size:
            memory.count_tls(size)

    def eof_received(self) -> bool:
        if self._early:
            self._is_eof_early = True  # the bytes before it come first
            return True
        if not self._session.is_established:
            self._fail(ENDED_EARLY)
            return False
        return self._end_of_peer()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._session.is_established:
            self._report(ENDED_EARLY)
        self._end_handshake()
        # No callback may keep a connection that has ended: see `Connection.connection_lost`.
        self._established = self._failed = None
        self._connection.connection_lost(exc)

    # Calls of the connection

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        try:
            records = self._session.encrypt(data)
        except ssl.SSLError as error:
            self._fail(describe_failure(error))
            return
        self._below.write(records)

    def close(self) -> None:
        """Announce the end, and close after everything written has been sent."""
        if not self._below.is_closing() and (last := self._session.end()):
            self._below.write(last)
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def pause_reading(self) -> None:
        self._is_held = True
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._is_held = False
        if not self._is_paused:
            self._below.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def _flush(self) -> None:
        if output := self._session.take_output():
            self._below.write(output)

    def _end_of_peer(self) -> bool:
        """Return whether responses to earlier requests keep the connection open."""
        if not self._is_half_closed:
            self._is_half_closed = self._connection.eof_received()
            if not self._is_half_closed:
                self.close()
        return self._is_half_closed and not self._below.is_closing()

    def _fail(self, failure: TlsFailure) -> None:
        self._takes_no_more = True
        self._flush()  # an alert with the reason for the peer
        self._report(failure)
        self._below.close()

    def _report(self, failure: TlsFailure) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            failed(failure)
