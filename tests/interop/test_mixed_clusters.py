"""Apache's servers and Orbitlog's together: brokers at the other's name servers, and both in one cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.cluster import (
    CLUSTER_NAME,
    Ports,
    broker_table,
    server_command,
    start_broker,
    start_name_server,
)
from tests.interop.harness.drivers import Driver, Refused
from tests.interop.harness.matrix import JAVA_550
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import ServerProcess
from tests.interop.harness.systems import start_orbitlog

pytestmark = pytest.mark.interop

VERSIONS = ("4.9.7", "5.5.0")
APACHES, OURS = "apaches-broker", "our-broker"
PackagesOf = Callable[[str], ApachePackages]


@dataclass
class Mixture:
    """A name server and the brokers that registered there, of whatever kind; stands in for a system."""

    directory: Path
    name_server_port: int
    brokers: dict[str, ServerProcess] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    cluster_name: str = CLUSTER_NAME

    @property
    def name_server_address(self) -> str:
        return f"127.0.0.1:{self.name_server_port}"

    @property
    def broker_name(self) -> str:
        [name] = self.brokers
        return name

    @property
    def broker_address(self) -> str:
        return self.addresses[self.broker_name]

    def add_apache(self, packages: ApachePackages) -> None:
        ports = Ports(self.name_server_port, Ports.find().broker)
        directory = self.directory / APACHES
        directory.mkdir()
        self.brokers[APACHES] = start_broker(
            server_command(packages, directory), directory, ports, directory / "store", {"brokerName": APACHES}
        )
        self.addresses[APACHES] = f"127.0.0.1:{ports.broker}"

    def add_ours(self) -> None:
        directory = self.directory / OURS
        words = ["-n", self.name_server_address, "--store", str(directory / "store"), "--port", "0"]
        words += ["--set", f"brokerName={OURS}", "--set", f"brokerClusterName={self.cluster_name}"]
        self.brokers[OURS], ready = start_orbitlog(directory, words, command="broker")
        self.addresses[OURS] = ready["broker"]
        self.brokers[OURS].wait_until(lambda: OURS in (broker_table(self.name_server_port) or {}), 30)


@contextmanager
def mixture(directory: Path, name_server: str, packages_of: PackagesOf) -> Iterator[Mixture]:
    """`name_server` is a version of Apache's, or "orbitlog"."""
    with ExitStack() as running:
        if name_server == "orbitlog":
            server, ready = start_orbitlog(directory, ["--port", "0"], command="nameserver")
            port = int(ready["name-server"].rpartition(":")[2])
        else:
            port = Ports.find().name_server
            server = start_name_server(server_command(packages_of(name_server), directory), directory, port)
        running.callback(server.kill)
        made = Mixture(directory, port)
        running.callback(lambda: [broker.kill() for broker in made.brokers.values()])
        yield made


@pytest.fixture
def at(driver_of: Callable[[str], Driver]) -> Iterator[Callable[[Mixture], Client]]:
    made: list[Client] = []

    def client(where: Mixture) -> Client:
        made.append(Client(driver_of(JAVA_550), where))  # type: ignore[arg-type]
        return made[-1]

    yield client


def bodies(messages: list[dict[str, object]]) -> set[object]:
    return {one["bodySha256"] for one in messages}


def send_and_consume(client: Client) -> None:
    topic = client.topic("Mixed")
    sent = client.send(client.producer(), topic, count=40, body="one", keys="key-{}")
    assert bodies(client.push(topic, client.group("mixed")).wait_for(40)) == bodies(sent)
    fresh = f"Fresh_{client.mark}"
    client.send(client.producer(), fresh, count=4, body="made by sending")
    client.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_their_broker_at_our_name_server(
    version: str, packages_of: PackagesOf, at: Callable[[Mixture], Client], tmp_path: Path
) -> None:
    with mixture(tmp_path, "orbitlog", packages_of) as servers:
        servers.add_apache(packages_of(version))
        client = at(servers)
        send_and_consume(client)
        assert APACHES in client.mqadmin("clusterList")
        servers.brokers[APACHES].kill()
        client.eventually(lambda: APACHES not in (broker_table(servers.name_server_port) or {}), "it is forgotten", 10)


@pytest.mark.parametrize("version", VERSIONS)
def test_our_broker_at_their_name_server(
    version: str, packages_of: PackagesOf, at: Callable[[Mixture], Client], tmp_path: Path
) -> None:
    with mixture(tmp_path, version, packages_of) as servers:
        servers.add_ours()
        client = at(servers)
        send_and_consume(client)
        assert OURS in client.mqadmin("clusterList")
        servers.brokers[OURS].stop()
        client.eventually(lambda: OURS not in (broker_table(servers.name_server_port) or {}), "it is forgotten", 10)


@pytest.mark.parametrize("name_server", ["orbitlog", "5.5.0"])
def test_one_topic_over_both(
    name_server: str, packages_of: PackagesOf, at: Callable[[Mixture], Client], tmp_path: Path
) -> None:
    with mixture(tmp_path, name_server, packages_of) as servers:
        servers.add_apache(packages_of("5.5.0"))
        servers.add_ours()
        client = at(servers)
        topic = f"Both_{client.mark}"
        client.mqadmin(f"updateTopic -c {servers.cluster_name} -t {topic} -r 4 -w 4")
        producer = client.producer()
        sent = client.send(producer, topic, count=80, body="one")
        assert {one["brokerName"] for one in sent} == {APACHES, OURS}, "both take part"
        assert len({(one["brokerName"], one["queueId"]) for one in sent}) == 8
        first, second = (client.push(topic, client.group("both")) for _ in range(2))
        first.wait(lambda: len(first.bodies() | second.bodies()) == 80, 60, "all from both")
        assert bodies(first.messages + second.messages) == bodies(sent)

        # Each continues alone when the other ends, and both when it is back.
        servers.brokers[OURS].kill()
        deadline = time.monotonic() + 60
        alone: list[dict[str, object]] = []
        while len(alone) < 20:
            try:
                alone += client.send(producer, topic, body=f"alone {len(alone)}")
            except Refused:
                assert time.monotonic() < deadline, "the producer did not turn to the other broker"
        assert {one["brokerName"] for one in alone} == {APACHES}
        wanted = bodies(sent) | bodies(alone)
        first.wait(lambda: wanted <= bodies(first.messages + second.messages), 60, "what the other took")
        client.close()
