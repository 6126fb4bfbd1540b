"""Connections to the console that send nothing, little, very many parts, or do not read: they keep no visitor out."""

from __future__ import annotations

import logging
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orbitlog.console.console_options import ConsoleOptions
from orbitlog.console.session import bounded_connections
from orbitlog.console.session.bounded_connections import CHUNKS_MAX, CONNECTIONS_MAX, HEAD_LINES_MAX
from orbitlog.console.session.visitor_guard import COOKIE, SECURE_COOKIE, _cookie
from tests.support.console_site import ConsoleSite
from tests.support.work_counters import steps_of

HOST = b"Host: 127.0.0.1\r\n"
CHUNKED = b"POST /%b HTTP/1.1\r\n" + HOST + b"Sec-Fetch-Site: same-origin\r\nTransfer-Encoding: chunked\r\n\r\n"

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


def answer_to(console: ConsoleSite, *parts: bytes) -> bytes:
    """Send the parts, each after the first one when something was answered; return all that is answered."""
    received = b""
    with socket.create_connection(address(console), timeout=20) as peer, suppress(ConnectionError):
        for number, part in enumerate(parts):
            if number:
                received += peer.recv(65536)
            with suppress(BrokenPipeError):  # the answer, or the end, may come before all is sent
                peer.sendall(part)
        with suppress(OSError):  # the connection may have ended
            peer.shutdown(socket.SHUT_WR)
        while data := peer.recv(65536):
            received += data
    return received


@pytest.mark.parametrize(
    ("request_head", "is_served"),
    [
        (b"GET /sign-in HTTP/1.1\r\n" + HOST + b"Connection: close\r\n" + b"a:b\r\n" * (HEAD_LINES_MAX - 4), True),
        (b"GET /sign-in HTTP/1.1\r\n" + HOST + b"Connection: close\r\n" + b"a:b\r\n" * HEAD_LINES_MAX, False),
        (b"GET /sign-in HTTP/1.1\r\n" + HOST + b"X: a\r\n" + b" b\r\n" * 6_000, False),
    ],
    ids=["as many as allowed", "too many", "folded"],
)
def test_head_of_many_lines_ends_its_connection(request_head: bytes, is_served: bool, tmp_path: Path) -> None:
    with site(tmp_path) as console:
        assert (b" 200 OK" in answer_to(console, request_head + b"\r\n")) is is_served
        assert console.server.connections.closed_count == (not is_served)


def test_long_trailer_of_a_body_is_refused(tmp_path: Path) -> None:
    with site(tmp_path) as console:
        assert b" 400 " in answer_to(console, CHUNKED % b"sign-in" + b"1\r\nx\r\n0\r\n" + b"a:b\r\n" * 20_000 + b"\r\n")


def test_body_of_many_chunks_ends_its_connection(tmp_path: Path) -> None:
    with site(tmp_path) as console:
        allowed = CHUNKED % b"sign-in" + b"1\r\nx\r\n" * CHUNKS_MAX + b"0\r\n\r\n"
        assert b" 415 " in answer_to(console, allowed)
        assert not console.server.connections.closed_count
        assert answer_to(console, CHUNKED % b"sign-in" + b"1\r\nx\r\n" * 170_000) == b""
        assert console.server.connections.closed_count == 1


@pytest.mark.parametrize("rest", [b"zz\r\n", b"1\r\nxJUNK", b"0\r\na b\r\n\r\n"])
def test_malformed_bytes_after_a_response_are_no_error_of_the_console(
    rest: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They were one: a traceback in the log for each such connection."""
    with caplog.at_level(logging.INFO), site(tmp_path) as console:
        answer = answer_to(console, CHUNKED % b"unknown" + b"1\r\nx\r\n", rest)
    assert answer.count(b"HTTP/1.1 ") == 1 and b" 404 " in answer
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_quoted_cookie_costs_no_work() -> None:
    """`http.cookies` of Python 3.11.7 reads such a header of 32 KiB in a second, and the loop stands still."""
    header = f'a="x"; {COOKIE}="' + '\\"' * 16_000 + '"'
    assert steps_of(lambda: _cookie(header)) < 100
    assert steps_of(lambda: _cookie("=;" * 100)) < 3_000
    assert _cookie(f"a=b; {COOKIE}=one") == "one"
    assert _cookie(f"{COOKIE}=one; {SECURE_COOKIE}=two;c") == "two"
    assert _cookie("") == _cookie(";;=") == _cookie(f"x{COOKIE}=one") == ""


def test_unknown_static_files_count_as_requests(tmp_path: Path) -> None:
    """Each of them renders an error page; those that exist are served from memory."""
    options = ConsoleOptions(tmp_path, port=0, requests_per_second=0.001, request_burst=3)
    with ConsoleSite(options) as console:
        asset = console.get("/sign-in").text.split('src="')[1].split('"')[0]
        assert asset.startswith("/static/")
        unknown = ["/static/x", "/static/x/y.css", f"{asset}x", "/static/"]
        assert [console.get(path).status for path in unknown] == [404, 404, 429, 429]
        assert [console.get(asset).status for _ in range(10)] == [200] * 10
