"""`orbitlog up` in a process of its own, and what that process holds."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")
STOP_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Held:
    """What the process holds at a time: memory of its own (not pages of mapped files), and descriptors."""

    memory_mib: float
    descriptors: int


class ServingProcess:
    """A name server and a broker over one store, which can be stopped, killed and restarted at the same ports."""

    def __init__(self, store: Path, *settings: str) -> None:
        self._store = store
        self._settings = [word for setting in settings for word in ("--set", setting)]
        self._ports = (_own_port(), _own_port())
        self._process: subprocess.Popen[str] | None = None
        self.name_server = self.broker = ""

    def start(self) -> None:
        self._process = self._spawn()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"it ended with {self._process.wait()} before it was ready"
        ready = json.loads(line)
        self.name_server, self.broker = ready["name-server"], ready["broker"]

    def start_and_kill_after(self, seconds: float) -> None:
        """Start it, and kill it after so long, ready or not."""
        process = self._spawn()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate(timeout=STOP_SECONDS_MAX)

    def _spawn(self) -> subprocess.Popen[str]:
        ports = ("--name-server-port", self._ports[0], "--broker-port", self._ports[1])
        command = [*PROGRAM, "up", "--store", str(self._store), *ports, "--json", *self._settings]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate(timeout=STOP_SECONDS_MAX)

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        self._process.communicate(timeout=STOP_SECONDS_MAX)
        return self._process.returncode

    @property
    def held(self) -> Held:
        assert self._process is not None
        own = Path("/proc", str(self._process.pid))
        lines = (own / "status").read_text().splitlines()
        (anonymous,) = (int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
        return Held(anonymous / 1024, sum(1 for _ in (own / "fd").iterdir()))


def _own_port() -> str:
    """Find a port that stays free between a stop and the next start: none of the system's ephemeral range."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return str(port)
