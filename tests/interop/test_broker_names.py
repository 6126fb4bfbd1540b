"""Apache brokers keep their names at our name server, and restarts, failovers and changed roles still work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig
from orbitlog.wire.bodies.registration_body import Registration, TopicWrapper, encode_registration
from tests.interop.harness.cluster import BROKER_NAME, CLUSTER_NAME, Ports, server_command, start_broker
from tests.interop.harness.our_name_server import start_ours
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import ServerProcess
from tests.support.raw_peer import RawPeer

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("nameserver")]

HOST = "127.0.0.1"
MASTER = {"brokerId": "0", "brokerRole": "ASYNC_MASTER"}
SLAVE = {"brokerId": "1", "brokerRole": "SLAVE"}
SECONDS_MAX = 90


class Brokers:
    """Two stores of one broker name, each with a port of its own."""

    def __init__(self, packages: ApachePackages, directory: Path) -> None:
        self.directory = directory
        self.ports = Ports.find(), Ports.find()
        self.name_server = start_ours(directory, self.ports[0].name_server)
        self._command = server_command(packages, directory)
        self.processes: dict[int, ServerProcess] = {}

    def start(self, number: int, role: dict[str, str]) -> None:
        directory = self.directory / f"broker{number}"
        directory.mkdir(exist_ok=True)
        ports = Ports(self.ports[0].name_server, self.ports[number].broker)
        settings = {**role, "registerNameServerPeriod": "10000", "haListenPort": str(ports.broker + 1)}
        self.processes[number] = start_broker(self._command, directory, ports, directory / "store", settings)

    def kill(self, number: int) -> None:
        self.processes.pop(number).kill()

    def address(self, number: int) -> str:
        return f"{HOST}:{self.ports[number].broker}"

    def peer(self) -> RawPeer:
        return RawPeer(f"{HOST}:{self.ports[0].name_server}")

    def addresses(self) -> dict[int, str]:
        with self.peer() as peer:
            table = orjson.loads(peer.ask(106).body)["brokerAddrTable"]
        found = table.get(BROKER_NAME, {}).get("brokerAddrs", {})
        return {int(number): address for number, address in found.items()}

    def wait_for(self, wanted: dict[int, str]) -> None:
        self.name_server.wait_until(lambda: self.addresses() == wanted, SECONDS_MAX)


@pytest.fixture(params=["4.9.7", "5.5.0"])
def brokers(
    request: pytest.FixtureRequest, packages_of: Callable[[str], ApachePackages], tmp_path: Path
) -> Iterator[Brokers]:
    made = Brokers(packages_of(request.param), tmp_path)
    try:
        yield made
    finally:
        for process in (*made.processes.values(), made.name_server):
            process.kill()


def takeover(peer: RawPeer) -> int:
    """Register a broker with the name of the master and the highest state version; return the response code."""
    fields = {"brokerName": BROKER_NAME, "brokerAddr": "6.6.6.6:10911", "clusterName": CLUSTER_NAME, "brokerId": "0"}
    topics = {name: TopicConfig(name, 1, 1) for name in ("T", "U")}
    wrapper = TopicWrapper(topics=topics, data_version=DataVersion(9, 9, 2**40))
    return peer.ask(103, {**fields, "haServerAddr": "6.6.6.6:1"}, encode_registration(Registration(wrapper))).code


def test_name_is_kept_over_restarts_and_failovers(brokers: Brokers) -> None:
    brokers.start(0, MASTER)
    brokers.start(1, SLAVE)
    both = {0: brokers.address(0), 1: brokers.address(1)}
    brokers.wait_for(both)
    with brokers.peer() as peer:
        assert takeover(peer) != 0
        fields = {"brokerName": BROKER_NAME, "clusterName": CLUSTER_NAME, "brokerId": "0"}
        assert peer.ask(104, {**fields, "brokerAddr": brokers.address(0)}).code != 0
    assert brokers.addresses() == both
    brokers.kill(0)
    brokers.wait_for({1: brokers.address(1)})
    brokers.start(0, MASTER)
    brokers.wait_for(both)
    # The slave is restarted as a master while the master is connected: it gets the id when that one is dead.
    brokers.kill(1)
    brokers.start(1, MASTER)
    brokers.wait_for({0: brokers.address(0)})
    brokers.kill(0)
    brokers.wait_for({0: brokers.address(1)})
    brokers.start(0, SLAVE)
    brokers.wait_for({0: brokers.address(1), 1: brokers.address(0)})
