"""A SOCKS5 proxy on loopback, without authentication: connects to where it is asked to, and notes it."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType

_SECONDS_MAX = 30.0
_CHUNK_BYTES = 65_536
_IPV4, _NAME = 1, 3


class SocksProxy:
    """Listens while the `with` block runs; `targets` are the addresses that clients have asked for."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.targets: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> SocksProxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            client.settimeout(_SECONDS_MAX)
            with client.makefile("rb") as received:
                _, method_count = received.read(2)
                received.read(method_count)
                client.sendall(b"\x05\x00")
                _, _, _, kind = received.read(4)
                host = self._host(kind, received.read(4) if kind == _IPV4 else received.read(received.read(1)[0]))
                (port,) = struct.unpack(">H", received.read(2))
            self.targets.append(f"{host}:{port}")
            target = socket.create_connection((host, port), _SECONDS_MAX)
            client.sendall(b"\x05\x00\x00\x01" + bytes(6))
        except (OSError, ValueError, struct.error):
            client.close()
            return
        for source, sink in ((client, target), (target, client)):
            source.settimeout(None)
            threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _host(self, kind: int, raw: bytes) -> str:
        if kind == _NAME:
            return raw.decode()
        if kind == _IPV4:
            return socket.inet_ntoa(raw)
        raise ValueError(f"no address type that tests use: {kind}")

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while chunk := source.recv(_CHUNK_BYTES):
                sink.sendall(chunk)
        except OSError:
            pass  # either end has closed
        for end in (source, sink):
            end.close()
