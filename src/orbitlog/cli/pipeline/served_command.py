"""Commands of `--master server`: sent with their files and directory to the process of `orbitlog pipeline serve`.

A client sends its arguments and its stdin, stdout and stderr over a Unix socket; the server runs the command with them,
so the output of a command and its exit code are those of a process of its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
from pathlib import Path
from typing import Any, NamedTuple

import click

from orbitlog import __version__
from orbitlog.cli.job_options import SERVER, SOCKET_PREFIX, HeldSession
from orbitlog.cli.main import INTERRUPTED, Problem
from orbitlog.settings.user_directories import user_directory

LENGTH = struct.Struct(">I")
REQUEST_BYTES_MAX = 1 << 20
STREAMS = 3
STARTED, INTERRUPT, TERMINATE = b"s", b"i", b"t"
_NOTICE_AFTER_S = 2.0
# Variables that change a command; credentials of object stores belong to the workers, which the server started.
VARIABLES = ("NAMESRV_ADDR", "XDG_CONFIG_HOME", "TERM", "COLUMNS", "LINES", "NO_COLOR")
VARIABLE_PREFIX = "ORBITLOG_"


class Request(NamedTuple):
    """A command as its client started it."""

    version: str
    arguments: list[str]
    directory: str
    variables: dict[str, str]

    @classmethod
    def of_process(cls, arguments: list[str]) -> Request:
        return cls(__version__, arguments, str(Path.cwd()), command_variables())

    def encode(self) -> bytes:
        text = json.dumps(self._asdict()).encode()
        return LENGTH.pack(len(text)) + text

    @classmethod
    def decode(cls, text: bytes) -> Request:
        """Raise `ValueError` if it is not a request: the server must outlive it."""
        try:
            request = cls(**json.loads(text))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"not a request: {error}") from None
        arguments: Any = request.arguments
        variables: Any = request.variables
        if not (isinstance(arguments, list) and isinstance(variables, dict)):
            raise ValueError("arguments are not a list, or variables not a map")
        values: list[Any] = [request.version, request.directory, *arguments, *variables.values()]
        if not all(isinstance(value, str) and "\0" not in value for value in values):
            raise ValueError("a value is not text")
        if not all(map(is_command_variable, variables)) or any("=" in name for name in variables):
            raise ValueError("a variable is not one of a command")
        return request


def command_variables() -> dict[str, str]:
    """Return the variables of this process that a command may use."""
    return {name: value for name, value in os.environ.items() if is_command_variable(name)}


def is_command_variable(name: str) -> bool:
    return name in VARIABLES or name.startswith(VARIABLE_PREFIX)


def default_socket() -> Path:
    """Return the socket of `pipeline serve` without --socket: beside the contexts of the user."""
    return user_directory("XDG_CONFIG_HOME") / "pipeline.sock"


def server_socket(arguments: list[str]) -> Path | None:
    """Return the socket that --master names; None if it names a Spark, or if this process is the server."""
    if HeldSession.spark is not None:
        return None
    master = ""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if argument == "--":
            break
        if argument == "--master":
            master = following
        elif argument.startswith("--master="):
            master = argument.partition("=")[2]
    if master == SERVER:
        return default_socket()
    return Path(master.removeprefix(SOCKET_PREFIX)) if master.startswith(SOCKET_PREFIX) else None


def forwarded(path: Path, arguments: list[str]) -> click.Command:
    """Return a command that lets the server at `path` run the arguments."""

    def run() -> None:
        click.get_current_context().exit(run_at_server(path, Request.of_process(arguments)))

    return click.Command(arguments[0], callback=run, add_help_option=False)


def run_at_server(path: Path, request: Request) -> int:
    """Run a command at the server, and return its exit code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError as error:
            raise Problem(
                f"no pipeline server listens at {path} ({error.strerror or error}); start one: orbitlog pipeline serve"
            ) from error
        encoded = request.encode()
        socket.send_fds(connection, [encoded[: LENGTH.size]], list(range(STREAMS)))
        connection.sendall(encoded[LENGTH.size :])
        return _exit_code(connection)


def _exit_code(connection: socket.socket) -> int:
    """Wait for the end of the command; TERM and INT are passed to it."""
    state: dict[str, Any] = {"interrupted": False}

    def pass_on(number: int, _: object) -> None:
        state["interrupted"] = state["interrupted"] or number == signal.SIGINT
        connection.sendall(INTERRUPT if number == signal.SIGINT else TERMINATE)

    previous = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        answer = _read_answer(connection)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if not answer:
        raise Problem("the pipeline server ended before the command did")
    code = int(answer)
    return INTERRUPTED if state["interrupted"] and code else code


def _read_answer(connection: socket.socket) -> bytes:
    connection.settimeout(_NOTICE_AFTER_S)
    try:
        started = connection.recv(1)
    except TimeoutError:
        click.echo("orbitlog: waiting for the pipeline server, which runs another command", err=True)
        connection.settimeout(None)
        started = connection.recv(1)
    connection.settimeout(None)
    answer = b""
    while started and (block := connection.recv(64)):
        answer += block
    return answer
