"""etcd servers for tests: Debian's `etcd-server`, installed where that is permitted, else the tests are skipped."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def etcd_program() -> str:
    """Return the path of etcd; skip the test if it is missing and cannot be installed."""
    found = shutil.which("etcd")
    if found is None:
        subprocess.run([TOOLS / "system_install", "apt-get:etcd-server", "dnf:etcd", "brew:etcd"], capture_output=True)
        found = shutil.which("etcd")
    if found is None:
        pytest.skip("etcd is not installed: install etcd-server to run this test")
    return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class EtcdServers:
    """A cluster of etcd servers on loopback."""

    def __init__(self, directory: Path, count: int) -> None:
        program = etcd_program()
        clients = [f"http://127.0.0.1:{free_port()}" for _ in range(count)]
        peers = [f"http://127.0.0.1:{free_port()}" for _ in range(count)]
        cluster = ",".join(f"n{index}={peer}" for index, peer in enumerate(peers))
        self.endpoints = clients
        self._log = (directory / "etcd.log").open("wb")
        self.processes = [
            subprocess.Popen(
                [
                    *(program, "--name", f"n{index}", "--data-dir", str(directory / f"n{index}")),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", cluster, "--heartbeat-interval", "50", "--election-timeout", "500"),
                ],
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine},
            )
            for index, (client, peer) in enumerate(zip(clients, peers, strict=True))
        ]
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 30
        for endpoint in self.endpoints:
            while True:
                try:
                    with urllib.request.urlopen(f"{endpoint}/health", timeout=2) as answer:
                        if b'"true"' in answer.read():
                            break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                time.sleep(0.05)

    def kill(self, index: int) -> None:
        self.processes[index].kill()
        self.processes[index].wait()

    def pause(self, index: int) -> None:
        self.processes[index].send_signal(signal.SIGSTOP)

    def resume(self, index: int) -> None:
        self.processes[index].send_signal(signal.SIGCONT)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self._log.close()
