"""Spark for tests: one local session shared by all of them, and a real cluster of a master and two workers.

All tests of this directory belong to one group, so that one process of the suite runs them, and one JVM serves them.
Jobs on the cluster are run in processes of their own: a process has one Spark context only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.free_ports import free_port

HERE = Path(__file__).parent
ORBITLOG = [sys.executable, "-c", "from orbitlog.cli.main import main; main()"]
# Spark runs a slow task a second time on another host only; all of 127.0.0.0/8 is loopback on Linux.
WORKER_HOSTS = ("127.0.0.1", "127.0.0.2" if sys.platform == "linux" else "127.0.0.1")
HAS_JAVA = bool(os.environ.get("JAVA_HOME") or shutil.which("java"))
MARKS = (
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(not HAS_JAVA, reason="Spark needs Java 17 or newer; `make setup` says how to get it"),
    # PySpark leaves sockets to the garbage collector when it stops.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for mark in MARKS:
                item.add_marker(mark)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session that the helper builds, on two cores."""
    from orbitlog.pipeline.runtime.session import build_session

    session = build_session("local[2]", app_name="orbitlog-tests")
    yield session
    session.stop()


@dataclass(frozen=True)
class Cluster:
    """A running standalone cluster."""

    url: str
    workers: list[subprocess.Popen[bytes]]
    log: Path

    def run_all(self, *commands: list[str | Path]) -> list[list[dict[str, Any]]]:
        """Run `orbitlog` commands that succeed and print JSON lines, all in one application; return their output."""
        told = [[*map(str, command), "--json", "--master", self.url] for command in commands]
        command = [sys.executable, "-c", COMMANDS, json.dumps(told)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr + self.log.read_text()[-2000:]
        return [[json.loads(line) for line in output.splitlines()] for output in json.loads(done.stdout)]


# An application takes ten seconds to start on two cores: commands of a test share one.
COMMANDS = """
import json, sys
from click.testing import CliRunner
import orbitlog.pipeline.runtime.session as session
from orbitlog.cli.main import cli

session.end_session = lambda spark: None
said = []
for command in json.loads(sys.argv[1]):
    done = CliRunner().invoke(cli, command)
    if done.exit_code:
        sys.exit(f"{command}: {done.output} {done.exception!r}")
    said.append(done.stdout)
print(json.dumps(said))
"""


def environment() -> dict[str, str]:
    """The environment of a process that talks to the cluster: everything stays on loopback."""
    return os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one core each, from the installed PySpark, on loopback."""
    directory = tmp_path_factory.mktemp("spark-cluster")
    port, page = free_port(), free_port()
    log = directory / "log"
    with log.open("wb") as output:
        daemons = [
            start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page), log=output)
        ]
        try:
            url = f"spark://127.0.0.1:{port}"
            wait_for(lambda: state_of(page) is not None, log)
            for number in range(2):
                arguments = ["--host", WORKER_HOSTS[number], "--webui-port", "0", "--cores", "1", "--memory", "2g"]
                arguments += ["--work-dir", str(directory / f"worker{number}"), url]
                daemons.append(start("worker.Worker", *arguments, log=output))
            wait_for(lambda: len((state_of(page) or {"workers": []})["workers"]) == 2, log)
            yield Cluster(url, daemons[1:], log)
        finally:
            for daemon in daemons:
                daemon.terminate()
            for daemon in daemons:
                daemon.wait()


def start(name: str, *arguments: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    # spark-class ends in exec, so that the process is the JVM itself.
    return subprocess.Popen(command, env=environment() | {"SPARK_HOME": str(home)}, stdout=log, stderr=log)


def state_of(page: int) -> dict[str, Any] | None:
    """Ask the master's page; None while it does not answer, or answers with another page, as it does at its start."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
            state: dict[str, Any] = json.load(answer)
            return state
    except (OSError, json.JSONDecodeError):
        return None


def wait_for(condition: Any, log: Path, timeout_s: float = 120) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, log.read_text()[-4000:]
        time.sleep(0.2)
