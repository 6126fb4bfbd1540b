"""etcd servers for tests: Debian's `etcd-server`, installed where that is permitted, else the tests are skipped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from orbitlog.settings.tls_options import TlsFiles
from tests.support.free_ports import free_port

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


def _tls_options(files: TlsFiles, *, demands_certificates: bool) -> tuple[str, ...]:
    server = ("--cert-file", files.certificate, "--key-file", files.key)
    return (*server, "--trusted-ca-file", files.trust, "--client-cert-auth") if demands_certificates else server


def _client_tls(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.trust)
    context.load_cert_chain(files.certificate, files.key)
    return context


class EtcdServers:
    """A cluster of etcd servers on loopback."""

    def __init__(
        self,
        directory: Path,
        count: int,
        tls: TlsFiles | None = None,
        *,
        demands_certificates: bool = False,
        has_default_times: bool = False,
    ) -> None:
        """Start the servers; with `tls` clients may need a certificate of the CA in `trust`.

        Elections of the servers are twice as fast as etcd's default, unless `has_default_times`.
        """
        program = etcd_program()
        scheme = "http" if tls is None else "https"
        clients = [f"{scheme}://127.0.0.1:{free_port()}" for _ in range(count)]
        peers = [f"http://127.0.0.1:{free_port()}" for _ in range(count)]
        cluster = ",".join(f"n{index}={peer}" for index, peer in enumerate(peers))
        self.endpoints = clients
        self._log = (directory / "etcd.log").open("wb")
        self._tls = None if tls is None else _client_tls(tls)
        secured = () if tls is None else _tls_options(tls, demands_certificates=demands_certificates)
        intervals = () if has_default_times else ("--heartbeat-interval", "50", "--election-timeout", "500")
        self._commands = [
            [
                *(program, "--name", f"n{index}", "--data-dir", str(directory / f"n{index}")),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", cluster, *intervals, *secured),
            ]
            for index, (client, peer) in enumerate(zip(clients, peers, strict=True))
        ]
        self.processes = [self._spawn(command) for command in self._commands]
        self._wait()

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine}
        return subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment)

    def _wait(self) -> None:
        deadline = time.monotonic() + 30
        for endpoint in self.endpoints:
            while True:
                try:
                    with urllib.request.urlopen(f"{endpoint}/health", timeout=2, context=self._tls) as answer:
                        if b'"true"' in answer.read():
                            break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                time.sleep(0.05)

    def leader(self) -> int:
        """Return the index of the leader; wait until there is one."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for index, endpoint in enumerate(self.endpoints):
                try:
                    request = urllib.request.Request(f"{endpoint}/v3/maintenance/status", b"{}")
                    with urllib.request.urlopen(request, timeout=1, context=self._tls) as answer:
                        status = json.loads(answer.read())
                except OSError:
                    continue
                if status.get("leader") == status["header"]["member_id"]:
                    return index
            time.sleep(0.05)
        raise AssertionError("etcd has no leader")

    def restart(self, index: int) -> None:
        """Start a server that was killed, with its data."""
        self.processes[index] = self._spawn(self._commands[index])
        self._wait()

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
