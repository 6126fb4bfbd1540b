"""`orbitlog pipeline serve`: one Spark session that runs the commands of other processes, one after the other."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from orbitlog import __version__
from orbitlog.cli.job_options import SERVER, SOCKET_PREFIX, HeldSession, spark_session
from orbitlog.cli.main import Problem, cli, prepare_streams
from orbitlog.cli.pipeline.served_command import (
    LENGTH,
    REQUEST_BYTES_MAX,
    STARTED,
    STREAMS,
    TERMINATE,
    Request,
    default_socket,
    is_command_variable,
)
from orbitlog.settings.atomic_file import create_directory, remove_socket

_CANCEL_WITHIN_S = 2.0
_REQUEST_WITHIN_S = 5.0
_PEER = struct.Struct("3i")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command("serve")
@click.option(
    "--master", default="local[*]", show_default=True, help="Spark master: local[N], or the URL of a cluster."
)
@click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Unix socket to listen on, for --master unix:PATH; without it, the one of --master server.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the ready line as a JSON object.")
def command(*, master: str, path: Path | None, as_json: bool) -> None:
    """Keep one Spark session running for commands with --master server, until interrupted.

    Such a command starts no Spark of its own. Commands of the same user run one after the other."""
    if master == SERVER or master.startswith(SOCKET_PREFIX):
        raise click.UsageError("--master of the server names a Spark, not a server")
    path = default_socket() if path is None else path.absolute()
    with _listening(path) as listener, spark_session(master, "serve") as spark:
        HeldSession.spark = spark
        try:
            ready = f"pipeline server with Spark {master} listens at {path}; interrupt to stop"
            click.echo(json.dumps({"ready": True, "master": master, "socket": str(path)}) if as_json else ready)
            SessionServer(listener, spark).run()
        finally:
            HeldSession.spark = None


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """Yield a socket that only this user can connect to; remove it when the block ends."""
    create_directory(path.parent, 0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        _remove_stale(path)
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        except OSError as error:
            raise Problem(f"cannot listen at {path}: {error.strerror or error}") from error
        finally:
            os.umask(mask)
        try:
            listener.listen()
            yield listener
        finally:
            remove_socket(path)


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that was killed; raise `Problem` if a server listens."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            remove_socket(path)
            return
    raise Problem(f"another pipeline server listens at {path}")


class SessionServer:
    """Accepts commands, and runs each in the main thread with the files, directory and variables of its client."""

    def __init__(self, listener: socket.socket, spark: Any) -> None:
        self._listener, self._spark = listener, spark
        self._is_cancelled = self._is_running = self._stops = False

    def run(self) -> None:
        """Serve until INT or TERM; raise `Problem` if Spark has ended."""
        from orbitlog.pipeline.runtime.session import has_spark_ended

        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        with suppress(KeyboardInterrupt):
            while not self._stops:
                connection, _ = self._listener.accept()
                with connection:
                    self._serve(connection)
                if has_spark_ended(self._spark):
                    raise Problem("Spark has ended, and with it the pipeline server")

    def _on_signal(self, *_: object) -> None:
        if not self._is_cancelled:
            self._stops = True
        elif not self._is_running:  # the command ended while its client cancelled it
            return
        raise KeyboardInterrupt

    def _serve(self, connection: socket.socket) -> None:
        received = _receive(connection)
        if received is None:
            return
        request, files = received
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(connection, done), daemon=True)
        try:
            connection.sendall(STARTED)
            watcher.start()
            code = self._run(request, files)
            done.set()
            connection.sendall(str(code).encode())
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client is gone
        finally:
            done.set()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            watcher.join()
            self._is_cancelled = False
            for file in files:
                os.close(file)

    def _watch(self, connection: socket.socket, done: threading.Event) -> None:
        """Cancel the command if its client asks for it or is gone."""
        while not done.is_set():
            try:
                word = connection.recv(1)
            except OSError:
                word = b""
            if done.is_set():
                return
            self._is_cancelled = True
            number = signal.SIGTERM if word == TERMINATE else signal.SIGINT
            if signal.getsignal(number) == self._on_signal:
                # A call into Spark that is cancelled ends with an error; an interrupted one would lose its connection.
                self._spark.sparkContext.cancelAllJobs()
                if done.wait(_CANCEL_WITHIN_S):
                    return
            os.kill(os.getpid(), number)
            if not word:
                return

    def _run(self, request: Request, files: list[int]) -> int:
        with _streams(files), ExitStack() as environment:
            try:
                environment.enter_context(_environment_of(request))
            except OSError as error:  # it was deleted while the command waited for its turn
                click.echo(f"orbitlog: cannot enter {request.directory!r}: {error.strerror}", err=True)
                return 2
            if request.version != __version__:
                click.echo(f"orbitlog: the pipeline server runs version {__version__}; restart it", err=True)
                return 2
            try:
                self._is_running = True
                cli.main(["pipeline", *request.arguments], prog_name="orbitlog")
            except SystemExit as end:
                return end.code if isinstance(end.code, int) else int(end.code is not None)
            finally:
                self._is_running = False
                for number in _SIGNALS:
                    signal.signal(number, self._on_signal)


def _receive(connection: socket.socket) -> tuple[Request, list[int]] | None:
    """Return a command and the three files of its client; None if it is another user's, or no command."""
    if hasattr(socket, "SO_PEERCRED"):
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if _PEER.unpack(peer)[1] != os.getuid():
            return None
    connection.settimeout(_REQUEST_WITHIN_S)
    files: list[int] = []
    try:
        head, files, _, _ = socket.recv_fds(connection, LENGTH.size, STREAMS)
        size = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else 0
        if not 0 < size <= REQUEST_BYTES_MAX or len(files) != STREAMS:
            raise ValueError(f"request of {size} bytes with {len(files)} files")
        request = Request.decode(_read(connection, size))
    except (OSError, ValueError):
        for file in files:
            os.close(file)
        return None
    connection.settimeout(None)
    return request, files


def _read(connection: socket.socket, size: int) -> bytes:
    text = b""
    until = time.monotonic() + _REQUEST_WITHIN_S
    while len(text) < size:
        block = connection.recv(size - len(text))
        if not block or time.monotonic() > until:
            raise ValueError("incomplete request")
        text += block
    return text


@contextmanager
def _environment_of(request: Request) -> Iterator[None]:
    """Use the directory and the variables of a client while the block runs."""
    directory, own = Path.cwd(), dict(os.environ)
    try:
        os.chdir(request.directory)
        for name in filter(is_command_variable, own):
            del os.environ[name]
        os.environ.update(request.variables)
        yield
    finally:
        os.environ.clear()
        os.environ.update(own)
        os.chdir(directory)


@contextmanager
def _streams(files: list[int]) -> Iterator[None]:
    """Use the files of a client as stdin, stdout and stderr while the block runs."""
    own = (sys.stdin, sys.stdout, sys.stderr)
    own[1].flush()
    own[2].flush()
    kept = [os.dup(number) for number in range(STREAMS)]
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.stdin = os.fdopen(0, "r", closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False, errors="backslashreplace")
        sys.stderr = os.fdopen(2, "w", closefd=False, errors="backslashreplace", buffering=1)
        prepare_streams()
        yield
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        sys.stdin, sys.stdout, sys.stderr = own
        for number, file in enumerate(kept):
            os.dup2(file, number)
            os.close(file)
