"""etcd process of `orbitlog up --replicas`: one etcd server on loopback, which ends with the command."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

from orbitlog.cli.main import WrongUse
from orbitlog.cli.serve.child_processes import wait_or_kill
from orbitlog.errors import OrbitlogError, RemotingError, WireError
from orbitlog.replication.group.etcd_gateway import EtcdGateway

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
# Ends etcd when the pipe to this process closes, even if this process was killed.
_GUARD = (
    "import subprocess, sys; server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL);"
    " sys.stdin.read(); server.terminate(); server.wait()"
)


def find_etcd() -> str:
    """Return the path of etcd; raise `WrongUse` if it is not installed."""
    program = shutil.which("etcd")
    if program is None:
        raise WrongUse(
            "etcd is not installed: install it (package etcd-server of Debian and Ubuntu, etcd of Fedora and Homebrew),"
            " or name a running one with --coordinator etcd:http://host:port"
        )
    return program


class EtcdProcess:
    """One etcd server with its data in a directory."""

    def __init__(self, program: str, directory: Path) -> None:
        self._program = program
        self._directory = directory
        self._process: Process | None = None
        self.endpoint = ""

    async def start(self) -> None:
        """Start the server, and return when it answers; raise `OrbitlogError` if it does not."""
        client, peer = (f"http://127.0.0.1:{_free_port()}" for _ in range(2))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _GUARD, self._program, "--name", "orbitlog", "--data-dir", str(self._directory)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"orbitlog={peer}"),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        self.endpoint = client
        gateway, deadline = EtcdGateway([client]), asyncio.get_running_loop().time() + _START_SECONDS
        while True:
            try:
                await gateway.call("/v3/maintenance/status", {})
                return
            except (RemotingError, WireError) as error:
                if asyncio.get_running_loop().time() > deadline or self._process.returncode is not None:
                    await self.stop()
                    raise OrbitlogError(f"etcd did not start; its data is in {self._directory}: {error}") from error
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """Stop the server."""
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        await wait_or_kill(process, _STOP_SECONDS)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
