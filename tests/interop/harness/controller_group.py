"""A group of brokers whose master Apache's controller elects: the controller, a name server, Java members and ours."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from orbitlog.errors import RemotingError
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.replication.controller_bodies import ReplicasInfo, decode_replicas_info
from tests.interop.harness.cluster import (
    BROKER_NAME,
    BROKER_SECONDS_MAX,
    CLUSTER_NAME,
    STEADY,
    Ports,
    server_command,
    start_name_server,
)
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import ServerProcess
from tests.interop.harness.replicas import accepts
from tests.interop.harness.store_copies import FILES
from tests.interop.harness.systems import System, start_orbitlog

_HOST = "127.0.0.1"
_SECONDS = 90
_ASK_SECONDS = 5.0
OURS = "ours"
# A member that dies is noticed by its closed connection; these times are for everything else.
_SHORT = {"controllerHeartBeatTimeoutMills": 5000, "syncBrokerMetadataPeriod": 1000}


class ControllerGroup(System):
    """Starts, kills and restarts single members: `ours` is Orbitlog, the others are Apache's."""

    kind = "controller-group"

    def __init__(
        self, packages: ApachePackages, directory: Path, settings: Mapping[str, object], controllers: int = 1
    ) -> None:
        super().__init__(directory, directory / "stores", settings)
        self._packages = packages
        self._name_server_port = Ports.find().name_server
        self._controller_ports = {number: Ports.find().broker for number in range(controllers)}
        self._ports: dict[str, Ports] = {}
        self._servers: dict[str, ServerProcess] = {}

    # Servers

    @property
    def name_server_address(self) -> str:
        return f"{_HOST}:{self._name_server_port}"

    @property
    def controller_address(self) -> str:
        """All controllers, as members and tools are given them."""
        return ";".join(f"{_HOST}:{port}" for port in self._controller_ports.values())

    @property
    def broker_address(self) -> str:
        return self.address_of(self.master)

    def address_of(self, member: str) -> str:
        return f"{_HOST}:{self._ports[member].broker}"

    def member_at(self, address: str) -> str:
        return next(name for name in self._ports if self.address_of(name) == address)

    def store_of(self, member: str) -> Path:
        return self.store / member

    def log_of(self, member: str) -> Path:
        name = "orbitlog-broker.log" if member == OURS else "broker.log"
        return self.directory / member / name

    def start(self) -> None:
        """Start the name server and the controller."""
        if "name server" not in self._servers:
            command = server_command(self._packages, self.directory)
            self._servers["name server"] = start_name_server(command, self.directory, self._name_server_port)
        for number in self._controller_ports:
            self.start_controller(number, waits=False)
        for number, port in self._controller_ports.items():
            self._servers[controller_name(number)].wait_until(lambda port=port: accepts(port), _SECONDS)

    def start_controller(self, number: int = 0, *, waits: bool = True) -> None:
        name, port = controller_name(number), self._controller_ports[number]
        directory = self.directory / name.replace(" ", "-")
        directory.mkdir(parents=True, exist_ok=True)
        conf = directory / "controller.conf"
        given = {
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": ";".join(f"n{one}-{_HOST}:{at}" for one, at in self._controller_ports.items()),
            "controllerDLegerSelfId": f"n{number}",
            "controllerStorePath": directory / "store",
            "configStorePath": directory / "controller.properties",
            "mappedFileSize": 1024 * 1024,
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        main = "org.apache.rocketmq.controller.ControllerStartup"
        whole = [*server_command(self._packages, directory), main, "-c", str(conf)]
        server = self._servers[name] = ServerProcess(name, whole, directory / "controller.log")
        if waits:
            server.wait_until(lambda: accepts(port), _SECONDS)

    def start_member(self, member: str) -> None:
        """Start a member over its store, at the ports of its first start."""
        ports = self._ports.setdefault(member, Ports(self._name_server_port, Ports.find().broker))
        directory = self.directory / member
        directory.mkdir(parents=True, exist_ok=True)
        given = {
            **FILES,
            **_SHORT,
            "brokerIP1": _HOST,
            "brokerIP2": _HOST,
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": BROKER_NAME,
            "enableControllerMode": "true",
            "controllerAddr": self.controller_address,
            "allAckInSyncStateSet": "true",
            **self.settings,
        }
        if member == OURS:
            words = ["--port", str(ports.broker), "--store", str(self.store_of(member)), "-n", self.name_server_address]
            for key, value in given.items():
                words += ["--set", f"{key}={value}"]
            self._servers[member], _ = start_orbitlog(directory, words, command="broker")
            return
        given = {
            **STEADY,
            "listenPort": ports.broker,
            "namesrvAddr": self.name_server_address,
            "bindAddress": _HOST,
            "storePathRootDir": self.store_of(member),
            "storePathCommitLog": self.store_of(member) / "commitlog",
            **given,
        }
        conf = directory / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        main = "org.apache.rocketmq.broker.BrokerStartup"
        whole = [*server_command(self._packages, directory), main, "-c", str(conf)]
        server = self._servers[member] = ServerProcess(member, whole, directory / "broker.log")
        server.wait_until(lambda: accepts(ports.broker), BROKER_SECONDS_MAX)

    def kill_server(self, name: str) -> None:
        self._servers.pop(name).kill()

    def stop_server(self, name: str) -> None:
        self._servers.pop(name).stop()

    def server(self, name: str) -> ServerProcess:
        return self._servers[name]

    # The group

    def leader(self) -> int:
        """The number of the controller that leads; -1 during an election."""
        for port in self._controller_ports.values():
            found = _ask(port, RequestCode.CONTROLLER_GET_METADATA_INFO)
            if found is not None and (address := found.ext_fields.get("controllerLeaderAddress")):
                leader_port = int(address.rpartition(":")[2])
                return next(number for number, own in self._controller_ports.items() if own == leader_port)
        return -1

    def info(self) -> ReplicasInfo | None:
        """Ask the controller about the group; None if it does not answer, or does not know the group."""
        leader = self.leader()
        body = json.dumps([BROKER_NAME]).encode()
        port = self._controller_ports.get(leader, 0)
        answer = None if leader < 0 else _ask(port, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body)
        return None if answer is None else decode_replicas_info(answer.body, BROKER_NAME)

    @property
    def master(self) -> str:
        """The member that is master; empty without one."""
        info = self.info()
        return self.member_at(info.master_address) if info is not None and info.master_id is not None else ""

    def in_sync(self) -> set[str]:
        info = self.info()
        replicas = () if info is None else info.replicas
        return {self.member_at(replica.address) for replica in replicas if replica.is_in_sync}

    def wait(self, is_so: Callable[[], bool], what: str, seconds: float = _SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}; {self.info()}"
            time.sleep(0.2)

    def stop_broker(self) -> None:
        for name in [name for name in self._servers if name in self._ports]:
            self.stop_server(name)

    def kill_broker(self) -> None:
        for name in [name for name in self._servers if name in self._ports]:
            self.kill_server(name)

    def stop(self) -> None:
        self.stop_broker()
        self.kill()

    def kill(self) -> None:
        for name in list(self._servers):
            self.kill_server(name)


def controller_name(number: int) -> str:
    return "controller" if number == 0 else f"controller {number}"


def _ask(port: int, code: RequestCode, body: bytes = b"") -> Command | None:
    """Return a controller's answer; None if it does not respond, or refuses."""

    async def ask() -> Command:
        client = RemotingClient()
        try:
            return await client.invoke(f"{_HOST}:{port}", Command(code, body=body), _ASK_SECONDS)
        finally:
            await client.close()

    try:
        answer = asyncio.run(ask())
    except RemotingError:
        return None
    return answer if answer.code == ResponseCode.SUCCESS else None
