"""The session server of `pipeline serve`: whatever a process of its user sends, the server outlives it."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitlog.cli.pipeline import pipeline_serve
from orbitlog.cli.pipeline.pipeline_serve import SessionServer
from orbitlog.cli.pipeline.served_command import LENGTH, REQUEST_BYTES_MAX, STREAMS, Request

VALID = {"version": "1", "arguments": ["query"], "directory": "/", "variables": {}}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    opened = [os.open(tmp_path / f"stream{number}", os.O_RDWR | os.O_CREAT) for number in range(STREAMS)]
    yield opened
    for number in opened:
        os.close(number)


def received(content: bytes, files: list[int], size: int | None = None) -> object:
    """Send a request; return what the server takes from it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        socket.send_fds(ours, [LENGTH.pack(len(content) if size is None else size)], files)
        ours.sendall(content[:65_536])
        ours.shutdown(socket.SHUT_WR)
        taken = pipeline_serve._receive(theirs)
        for number in taken[1] if taken is not None else ():
            os.close(number)
        return taken


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"[" * 60_000,
        b"[]",
        b"{}",
        *(
            json.dumps({**VALID, **change}).encode()
            for change in (
                {"more": 1},
                {"arguments": "query"},
                {"arguments": [1]},
                {"arguments": ["\0"]},
                {"directory": None},
                {"directory": "\0"},
                {"variables": []},
                {"variables": {"LD_PRELOAD": "x"}},
                {"variables": {"PATH": "/tmp"}},
                {"variables": {"ORBITLOG_X=Y": "x"}},
                {"variables": {"ORBITLOG_X": 1}},
            )
        ),
    ],
)
def test_malformed_request_is_dropped(content: bytes, files: list[int]) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    assert received(content, files) is None
    assert len([*Path("/proc/self/fd").iterdir()]) == before, "its files are closed"


def test_request_without_its_files_or_of_any_length_is_dropped(files: list[int]) -> None:
    content = json.dumps(VALID).encode()
    assert received(content, files) is not None
    assert received(content, files[:2]) is None
    assert received(content, files, size=REQUEST_BYTES_MAX + 1) is None


def test_request_of_another_user_is_not_read(files: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getuid()
    monkeypatch.setattr(pipeline_serve.os, "getuid", lambda: own + 1)
    assert received(json.dumps(VALID).encode(), files) is None
    assert struct.calcsize("3i") == pipeline_serve._PEER.size


def test_directory_that_was_deleted_is_reported_to_its_client(tmp_path: Path, files: list[int]) -> None:
    handlers = [signal.getsignal(number) for number in pipeline_serve._SIGNALS]
    here, request = Path.cwd(), Request("1", ["query"], str(tmp_path / "gone\x1b]52;"), {})
    with socket.socket(socket.AF_UNIX) as listener:
        assert SessionServer(listener, None)._run(request, files) == 2
    assert Path.cwd() == here
    shown = (tmp_path / "stream2").read_text()
    assert "cannot enter" in shown and "No such file or directory" in shown and "\x1b" not in shown
    assert [signal.getsignal(number) for number in pipeline_serve._SIGNALS] == handlers
