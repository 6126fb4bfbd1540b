"""`--master server`: which socket it names, and the sentence without a server."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.cli.pipeline.served_command import STARTED, Request, run_at_server, server_socket


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ([], None),
        (["S", "--master", "local[2]"], None),
        (["S", "--", "--master", "server"], None),
        (["S", "--master", "unix:/tmp/s.sock"], Path("/tmp/s.sock")),
        (["--master=unix:s.sock", "S"], Path("s.sock")),
        (["--master=server"], Path("/config/orbitlog/pipeline.sock")),
    ],
)
def test_socket_of_a_command(arguments: list[str], path: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config")
    assert server_socket(arguments) == path


def test_without_a_server_it_names_the_command_that_starts_one(tmp_path: Path) -> None:
    arguments = ["pipeline", "query", "S", "--topic", "T", "--master", f"unix:{tmp_path}/none"]
    ended = CliRunner().invoke(cli, arguments)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "No such file or directory); start one: orbitlog pipeline serve\n" in ended.stderr


@pytest.mark.parametrize("name", ["dispatch", "serve"])
def test_commands_that_run_long_are_refused_at_a_server(name: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path)] if name == "dispatch" else []
    ended = CliRunner().invoke(cli, ["pipeline", name, *arguments, "--master", "server"])
    assert ended.exit_code in (1, 2)
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(("answer", "code"), [(STARTED + b"0", 0), (STARTED + b"1", 1), (STARTED + b"130", 130)])
def test_exit_code_is_that_of_the_server(answer: bytes, code: int, tmp_path: Path) -> None:
    assert _ask(tmp_path / "s.sock", answer) == code


@pytest.mark.parametrize("answer", [b"", STARTED])
def test_server_that_ends_is_reported(answer: bytes, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the pipeline server ended before the command did"):
        _ask(tmp_path / "s.sock", answer)


def _ask(path: Path, answer: bytes) -> int:
    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1 << 16)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        try:
            return run_at_server(path, Request("1", ["query"], "/", {}))
        finally:
            server.join()
