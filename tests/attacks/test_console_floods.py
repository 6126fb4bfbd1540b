"""Connections to the console that send nothing, little, or do not read: they keep no visitor out."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orbitlog.console.console_options import ConsoleOptions
from orbitlog.console.session import bounded_connections
from orbitlog.console.session.bounded_connections import CONNECTIONS_MAX
from tests.support.console_site import ConsoleSite

PARTS = {
    "silent": b"",
    "half a request line": b"GET /",
    "half a body": (
        b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 9\r\n\r\nx"
    ),
}


def site(directory: Path) -> ConsoleSite:
    # Visitor and peers have one address here: its limit of requests, which has tests of its own, is out of the way.
    return ConsoleSite(ConsoleOptions(directory, port=0, request_burst=10_000))


def address(console: ConsoleSite) -> tuple[str, int]:
    parts = urlsplit(console.facts["console"])
    assert parts.hostname is not None and parts.port is not None
    return parts.hostname, parts.port


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_connections_without_a_whole_request_keep_no_visitor_out(part: bytes, tmp_path: Path) -> None:
    with site(tmp_path) as console, ExitStack() as opened:  # a failure must not leave 306 sockets to later tests
        peers = [opened.enter_context(socket.create_connection(address(console))) for _ in range(CONNECTIONS_MAX + 50)]
        for peer in peers:
            with suppress(ConnectionError):
                peer.sendall(part)
        assert console.get("/sign-in").status == 200
        assert len(console.server.connections) <= CONNECTIONS_MAX


def test_connections_are_closed_at_their_time_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUEST_SECONDS", "UNREAD_SECONDS", "_CHECK_SECONDS"):
        monkeypatch.setattr(bounded_connections, name, 0.2)
    request = b"GET /static/x/console.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with site(tmp_path) as console:
        for sent in (*PARTS.values(), request, request + b"GET"):
            with socket.create_connection(address(console), timeout=10) as peer:
                peer.sendall(sent)
                while peer.recv(65536):
                    pass  # ends when the console closes the connection
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect(address(console))
        page = console.get("/sign-in").text.split('src="')[1].split('"')[0]
        deaf.sendall(f"GET {page} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() * 400)
        deadline = time.monotonic() + 10
        while len(console.server.connections) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not len(console.server.connections)
        deaf.close()
