"""Servers of the tour: a name server and a broker, each a process started with `orbitlog`.

Leaving the `with` block kills processes that are still running.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Self

from orbitlog.errors import OrbitlogError

_STOP_SECONDS = 20.0
PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")
# Small files, so that several fill up during the tour: segments of 1 MiB, queue files of 1000 units, index files of
# 5000 keys.
_BROKER_CONF = """\
brokerName=tour
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=20000
maxHashSlotNum=2000
maxIndexNum=5000
vipChannelEnable=false
"""


class TourFailed(OrbitlogError):
    """A server of the tour did not start; the message names it and its log."""


class Server:
    """One process and the fields of its ready line."""

    def __init__(self, name: str, words: Sequence[str], log: Path) -> None:
        self._log = log
        started_s = time.perf_counter()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [*PROGRAM, *words, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
        output = self._output()
        line = output.readline()
        if not line.startswith(b"{"):
            self.kill()
            raise TourFailed(f"the {name} did not start; see {log}")
        self.ready_seconds = time.perf_counter() - started_s
        self.facts: dict[str, Any] = json.loads(line)

    def lines(self, count: int) -> list[dict[str, Any]]:
        """Return the ready lines of a command that prints one for each of its brokers."""
        return [self.facts, *(json.loads(self._output().readline()) for _ in range(count - 1))]

    def _output(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def stop(self) -> None:
        """Stop it with SIGTERM; kill it if that takes too long."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()
        self.process.wait()
        self._output().close()


class TourServers:
    """A name server, and a broker that can be killed and restarted at the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.store = directory / "store"
        self.config = directory / "broker.conf"
        self.config.write_text(_BROKER_CONF)
        self._name_server: Server | None = None
        self._broker: Server | None = None
        self._broker_port = "0"

    @property
    def address(self) -> str:
        """Address of the name server."""
        assert self._name_server is not None
        return str(self._name_server.facts["name-server"])

    def start_name_server(self) -> float:
        self._name_server = Server("name server", ("nameserver", "--port", "0"), self._directory / "nameserver.log")
        return self._name_server.ready_seconds

    def start_broker(self, dispatch_engine: str = "inline") -> float:
        """Start the broker; return the seconds until clients can connect."""
        words = ["broker", "-c", str(self.config), "-n", self.address, "--store", str(self.store)]
        words += ["--port", self._broker_port, "--set", f"dispatchEngine={dispatch_engine}"]
        self._broker = Server("broker", words, self._directory / "broker.log")
        self._broker_port = str(self._broker.facts["broker"]).rpartition(":")[2]
        return self._broker.ready_seconds

    def kill_broker(self) -> None:
        """Kill the broker with SIGKILL, without a clean shutdown."""
        assert self._broker is not None
        self._broker.kill()
        self._broker = None

    def stop_broker(self) -> None:
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._broker, self._name_server):
            if server is not None:
                server.kill()
