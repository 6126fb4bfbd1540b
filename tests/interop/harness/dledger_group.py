"""A group of Apache brokers in DLedger mode: three members of one broker name, and their name server."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from pathlib import Path

from tests.interop.harness.cluster import (
    BROKER_NAME,
    Ports,
    server_command,
    start_broker,
    start_name_server,
)
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import ServerProcess
from tests.interop.harness.systems import System

_HOST = "127.0.0.1"
MEMBERS = ("n0", "n1", "n2")


class DLedgerGroup(System):
    """Starts, kills and restarts single members; `leader` must be set before `broker_address` is used."""

    def __init__(self, packages: ApachePackages, directory: Path, settings: Mapping[str, object]) -> None:
        super().__init__(directory, directory / "stores", settings)
        self.kind = f"apache-{packages.version}-dledger"
        self._packages = packages
        self._name_server_port = Ports.find().name_server
        self._ports = {name: Ports(self._name_server_port, Ports.find().broker) for name in MEMBERS}
        base = random.randrange(30_000, 32_000)
        peers = {name: base + 10 * number for number, name in enumerate(MEMBERS)}
        self._peers = ";".join(f"{name}-{_HOST}:{port}" for name, port in peers.items())
        self._name_server: ServerProcess | None = None
        self._members: dict[str, ServerProcess] = {}
        self.leader = ""

    @property
    def name_server_address(self) -> str:
        return f"{_HOST}:{self._name_server_port}"

    @property
    def broker_address(self) -> str:
        return f"{_HOST}:{self._ports[self.leader].broker}"

    def store_of(self, member: str) -> Path:
        return self.store / member

    def member_at(self, address: str) -> str:
        return next(name for name, ports in self._ports.items() if address == f"{_HOST}:{ports.broker}")

    def start(self) -> None:
        if self._name_server is None:
            command = server_command(self._packages, self.directory)
            self._name_server = start_name_server(command, self.directory, self._name_server_port)
        for name in MEMBERS:
            self.start_member(name)

    def start_member(self, name: str) -> None:
        if name in self._members:
            return
        directory = self.directory / name
        directory.mkdir(parents=True, exist_ok=True)
        settings = {
            **self.settings,
            "enableDLegerCommitLog": "true",
            "dLegerGroup": BROKER_NAME,
            "dLegerPeers": self._peers,
            "dLegerSelfId": name,
        }
        command = server_command(self._packages, directory)
        self._members[name] = start_broker(command, directory, self._ports[name], self.store_of(name), settings)

    def kill_member(self, name: str) -> None:
        self._members.pop(name).kill()

    def stop_broker(self) -> None:
        """Stop all members cleanly: followers first, so that the leader commits everything before it stops."""
        for name in sorted(self._members, key=lambda name: name == self.leader):
            self._members.pop(name).stop()
            time.sleep(1)

    def kill_broker(self) -> None:
        for name in list(self._members):
            self.kill_member(name)

    def stop(self) -> None:
        self.stop_broker()
        if self._name_server is not None:
            self._name_server.stop()
            self._name_server = None

    def kill(self) -> None:
        self.kill_broker()
        if self._name_server is not None:
            self._name_server.kill()
            self._name_server = None
