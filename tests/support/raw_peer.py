"""A hostile peer: a blocking socket that sends any bytes, without any of the client's code."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

import orjson

SECONDS_MAX = 30.0


class RawAnswer(NamedTuple):
    """A response as it was received."""

    code: int
    opaque: int
    remark: str
    fields: dict[str, str]
    body: bytes
    flag: int = 1


def raw_frame(
    code: int, fields: dict[str, str] | None = None, body: bytes = b"", *, opaque: int = 1, flag: int = 0
) -> bytes:
    """Return the frame of a request with a JSON header."""
    header = orjson.dumps({"code": code, "opaque": opaque, "flag": flag, "version": 479, "extFields": fields or {}})
    return framed(header, body)


def framed(header: bytes, body: bytes = b"", *, serialization: int = 0) -> bytes:
    """Return a frame with this header, whatever it contains."""
    return struct.pack(">II", 4 + len(header) + len(body), serialization << 24 | len(header)) + header + body


class RawPeer:
    """One connection to a server at `host:port`; use it in a `with` block."""

    def __init__(self, address: str, *, receive_bytes: int | None = None, source: str = "") -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if source:
            self.socket.bind((source, 0))
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.connect((host, int(port)))
        self._received = b""
        self._opaque = 0

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> RawAnswer:
        """Send a request and return its response, skipping others."""
        self._opaque += 1
        self.send(raw_frame(code, fields, body, opaque=self._opaque))
        while True:
            answer = self.receive()
            if answer.opaque == self._opaque:
                return answer

    def receive(self) -> RawAnswer:
        """Return the next response or request of the server; raise `ConnectionError` if it closed the connection."""
        total, mark = struct.unpack(">II", self._take(8))
        header_bytes = mark & 0xFFFFFF
        content = self._take(total - 4)
        header = orjson.loads(content[:header_bytes])
        fields = header.get("extFields") or {}
        remark, body = header.get("remark") or "", content[header_bytes:]
        return RawAnswer(header["code"], header["opaque"], remark, fields, body, header["flag"])

    def is_closed_by_server(self) -> bool:
        """Read to the end of the connection; return whether the server closed it within the time limit."""
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def _take(self, count: int) -> bytes:
        while len(self._received) < count:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._received += data
        taken, self._received = self._received[:count], self._received[count:]
        return taken
