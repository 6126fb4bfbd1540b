"""Test cluster with the broker in a separate process, which can be killed like in a crash.

The name server stays in a thread of the test process, so clients find the broker after its restart.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from orbitlog.errors import OrbitlogError
from orbitlog.testing.running_broker import RunningBroker

_PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()", "broker", "--json")
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


class BrokerProcess(RunningBroker):
    """A `RunningBroker` in a separate process; `kill_broker` kills it with SIGKILL."""

    def __init__(self, store: Path, settings: Mapping[str, str] | None = None, *, secured: bool = False) -> None:
        super().__init__(store, settings, secured=secured)
        self._process: subprocess.Popen[bytes] | None = None
        self.log_file = store.with_name(f"{store.name}.log")

    @property
    def process_id(self) -> int | None:
        """Process id of the broker, None while it is stopped."""
        return None if self._process is None else self._process.pid

    def start_broker(self, *, port: int | None = None) -> None:
        texts = self._texts(self._broker_port if port is None else port)
        words = [word for key, text in texts.items() for word in ("--set", f"{key}={text}")]
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            command = [*_PROGRAM, "--store", str(self.store), *words]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)  # noqa: S603 - our own program
        self._process = process
        assert process.stdout is not None
        limit = threading.Timer(_START_SECONDS, process.kill)
        limit.start()
        line = process.stdout.readline()
        limit.cancel()
        if not line:
            self.kill_broker()
            raise OrbitlogError(f"the broker did not start: {self.log_file.read_text(errors='replace')[-400:].strip()}")
        self._broker_port = int(json.loads(line)["broker"].rpartition(":")[2])

    def stop_broker(self) -> None:
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass  # killed below
            self.kill_broker()

    def kill_broker(self) -> None:
        """Kill the broker at once: nothing is saved, closed or unregistered."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
