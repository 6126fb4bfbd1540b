"""`orbitlog pipeline serve`: commands with `--master` run in its session as in a process of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitlog.testing.golden import GoldenStore
from tests.spark.conftest import ORBITLOG, environment

_LONG_SQL = "select count(*) from range(100000000000000) where id % 7 = rand()"
_ENDS_WITHIN_S = 60


@dataclass(frozen=True)
class Served:
    """A running server, its socket, and the directory that has `store`."""

    process: subprocess.Popen[str]
    socket: Path
    directory: Path

    def command(self, *arguments: str) -> list[str]:
        return [*ORBITLOG, "pipeline", *arguments, "--master", f"unix:{self.socket}"]

    def run(self, *arguments: str, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.directory,
            env=environment() | (variables or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, golden_497: GoldenStore) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("served")
    (directory / "store").symlink_to(golden_497.store)
    path = directory / "spark.sock"
    command = [*ORBITLOG, "pipeline", "serve", "--master", "local[2]", "--socket", str(path)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().endswith(f"listens at {path}; interrupt to stop\n")
    try:
        yield Served(process, path, directory)
    finally:
        process.terminate()
        process.communicate(timeout=_ENDS_WITHIN_S)
    assert process.returncode == 0
    assert not path.exists()


def test_command_at_server_prints_what_its_own_spark_prints(served: Served) -> None:
    arguments = ["query", "store", "--topic", "OrderEvents", "--limit", "3", "--json"]
    own = subprocess.run(
        [*ORBITLOG, "pipeline", *arguments, "--master", "local[2]"],
        cwd=served.directory,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    shared = served.run(*arguments)
    assert (shared.returncode, shared.stdout, shared.stderr) == (0, own.stdout, own.stderr)
    assert own.stdout.count("\n") == 3


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["query", "store", "--topic", "Nowhere"], 1, "no store has topic 'Nowhere'"),
        (["query", "store", "--tpic", "Orders"], 2, "No such option '--tpic'"),
        (["query", "store", "--sql", "select nothing from messages"], 1, "nothing"),
    ],
)
def test_failure_at_server_is_that_of_the_command(
    served: Served, arguments: list[str], code: int, sentence: str
) -> None:
    ended = served.run(*arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert sentence in ended.stderr and ended.stderr.count("\n") == 1


def test_settings_and_views_of_a_command_end_with_it(served: Served) -> None:
    assert served.run("query", "store", "--sql", "set spark.sql.session.timeZone=Asia/Tokyo").returncode == 0
    zone = served.run("query", "store", "--sql", "select current_timezone() zone", "--json")
    assert zone.stdout == '{"zone":"UTC"}\n'


def test_job_over_tasks_runs_at_server(served: Served) -> None:
    ended = served.run("check", "store", "--json")
    assert ended.returncode == 0, ended.stderr
    assert '"findings":[]' in ended.stdout


def test_interrupted_command_is_cancelled_and_server_goes_on(served: Served) -> None:
    running = subprocess.Popen(
        served.command("query", "store", "--sql", _LONG_SQL), cwd=served.directory, stderr=subprocess.PIPE, text=True
    )
    time.sleep(8)
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=_ENDS_WITHIN_S)
    assert running.returncode == 130
    assert served.run("query", "store", "--topic", "OrderEvents", "--limit", "1").returncode == 0


def test_killed_client_frees_the_server(served: Served) -> None:
    running = subprocess.Popen(served.command("query", "store", "--sql", _LONG_SQL), cwd=served.directory)
    time.sleep(8)
    assert running.poll() is None
    running.kill()
    running.wait()
    assert served.run("query", "store", "--topic", "OrderEvents", "--limit", "1").returncode == 0


def test_server_ignores_a_client_that_sends_anything_else(served: Served) -> None:
    for content in (b"", b"GET / HTTP/1.1\r\n\r\n", (1 << 30).to_bytes(4, "big")):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(served.socket))
            stranger.sendall(content)
    assert served.run("query", "store", "--topic", "OrderEvents", "--limit", "1").returncode == 0


def test_only_the_user_can_connect_and_only_one_server_listens(served: Served) -> None:
    assert served.socket.stat().st_mode & 0o777 == 0o600
    command = [*ORBITLOG, "pipeline", "serve", "--socket", str(served.socket)]
    second = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False, timeout=60)
    assert second.returncode == 1
    assert second.stderr == f"orbitlog: another pipeline server listens at {served.socket}\n"
