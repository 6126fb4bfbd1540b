"""A server that systemd started reports that it is ready, responsive and stopping."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orbitlog.cli.serve.service_notify import ServiceNotifier, _watchdog_seconds

SECONDS_MAX = 60


def test_server_reports_ready_watchdog_and_stop(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(SECONDS_MAX)
        environment = {**os.environ, "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "100000"}
        process = subprocess.Popen(
            [sys.executable, "-c", "from orbitlog.cli.main import main; main()", "nameserver", "--port", "0"],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        try:
            assert [manager.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
            process.terminate()
            while (state := manager.recv(100)) == b"WATCHDOG=1":
                pass
            assert state == b"STOPPING=1"
            assert process.wait(SECONDS_MAX) == 0
        finally:
            process.kill()
            process.wait(SECONDS_MAX)


def test_manager_that_is_gone_is_logged_and_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceNotifier({"NOTIFY_SOCKET": str(tmp_path / "missing")}).stopping()
    assert "could not notify the service manager of STOPPING=1" in caplog.text


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({"WATCHDOG_USEC": "9" * 1000}, 0.0),
    ],
)
def test_interval_of_the_watchdog(environment: dict[str, str], seconds: float) -> None:
    assert _watchdog_seconds(environment) == seconds
