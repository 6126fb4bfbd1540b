"""Orbitlog's name server as a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.interop.harness.cluster import broker_table
from tests.interop.harness.processes import ServerProcess

_RUN = "from orbitlog.cli.main import main; main()"


def start_ours(directory: Path, port: int) -> ServerProcess:
    command = [sys.executable, "-c", _RUN, "nameserver", "--port", str(port), "--set", "orderMessageEnable=true"]
    server = ServerProcess("our name server", command, directory / "ours.log")
    server.wait_until(lambda: broker_table(port) is not None, 60)
    return server
