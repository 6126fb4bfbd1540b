"""TLS session: the handshake and the records of one connection, as bytes in and bytes out; it knows no sockets.

Not asyncio's own TLS: commands import asyncio without `ssl` (`light_asyncio`), a permissive port decides by bytes that
were read already, and the bytes that wait here must be few. At most one record of 16 KiB is incomplete at a time.
"""

from __future__ import annotations

import ssl

_RECORD_BYTES_MAX = 16 * 1024


class TlsSession:
    """One end of a TLS connection; errors are `ssl.SSLError`, after which only `take_output` may be called."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, host: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        self.is_established = False
        self.is_ended = False
        """Whether the peer has announced that it sends nothing more."""

    def start(self) -> None:
        """Begin the handshake; a client's first message is then in `take_output`."""
        self._shake_hands()

    def receive(self, data: bytes) -> bytes:
        """Return the plain bytes that `data` completes; the handshake continues as long as it is not done."""
        self._incoming.write(data)
        if not self.is_established:
            self._shake_hands()
            if not self.is_established:
                return b""
        parts: list[bytes] = []
        try:
            # A record at a time. The loop ends without an exception if nothing is left, which is the usual case.
            while self._incoming.pending or self.tls.pending():
                part = self.tls.read(_RECORD_BYTES_MAX)
                if not part:  # the peer's announcement of its end
                    self.is_ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # the same, after this end has announced its own
            self.is_ended = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def encrypt(self, data: bytes) -> bytes:
        """Return the records of plain bytes."""
        sent = self.tls.write(data)
        if sent < len(data):
            rest = memoryview(data)
            while sent < len(data):
                sent += self.tls.write(rest[sent:])
        return self._outgoing.read()

    def take_output(self) -> bytes:
        """Return bytes for the peer that no call has returned: of the handshake, an alert or a key update."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def end(self) -> bytes:
        """Return the announcement that nothing more is sent; empty if the session does not allow one."""
        if self.is_established:
            try:
                self.tls.unwrap()
            except ssl.SSLError:
                pass  # it waits for the peer's own announcement, which is not needed, or the session has failed
        return self.take_output()

    def _shake_hands(self) -> None:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.is_established = True
