"""Promotion by hand: the slave of a killed master is restarted as the master, and clients continue with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver, Refused
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.replicas import (
    java_broker,
    java_master,
    java_slave,
    orbitlog_broker,
    orbitlog_slave,
    table_of,
)
from tests.interop.harness.store_copies import CATCH_UP_SECONDS, has_same_log
from tests.interop.harness.systems import ApacheSystem

pytestmark = pytest.mark.interop

COUNT = 60


def places(sent: list[dict[str, object]]) -> set[tuple[object, object]]:
    return {(one["queueId"], one["queueOffset"]) for one in sent}


def committed(store: Path, topic: str, group: str) -> int:
    """Return the sum of a group's committed offsets that a store has."""
    table = table_of(store, "consumerOffset.json", "offsetTable").get(f"{topic}@{group}", {})
    assert isinstance(table, dict)
    return sum(map(int, table.values()))


class Journey:
    """A producer and a consumer group that live through a promotion."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.topic, self.group = client.topic("Promoted"), client.group("readers")
        self.producer = client.producer(retries=5)
        self.sent = client.send(self.producer, self.topic, count=COUNT, body="before", bytesMax=2000)
        push = client.push(self.topic, self.group)
        push.wait_for(COUNT, CATCH_UP_SECONDS)
        push.close()

    def is_copied(self, master: Path, slave: Path) -> bool:
        return has_same_log(master, slave) and committed(slave, self.topic, self.group) == COUNT

    def goes_on(self) -> None:
        """Send and consume at the new master: no place of a queue is used twice, and no message comes twice."""

        def is_accepted() -> bool:
            try:
                self.sent += self.client.send(self.producer, self.topic, count=1, body="after")
            except Refused:
                return False
            return True

        self.client.eventually(is_accepted, "a send to the new master", CATCH_UP_SECONDS)
        self.sent += self.client.send(self.producer, self.topic, count=COUNT, body="after", bytesMax=2000)
        assert len(places(self.sent)) == len(self.sent)
        push = self.client.push(self.topic, self.group)
        push.wait_for(len(self.sent) - COUNT, CATCH_UP_SECONDS)
        assert len(push.bodies()) == len(self.sent) - COUNT, "consumed messages came a second time"


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_orbitlog_slave_of_a_killed_java_master_becomes_the_master(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    slave = tmp_path / "slave"
    with java_master(packages_of(version), tmp_path / "java") as master:
        client = Client(driver_of(f"java-{version}"), master)
        journey = Journey(client)
        with orbitlog_slave(slave, master.name_server_address, version) as (running, _):
            client.eventually(lambda: journey.is_copied(master.store, slave / "store"), "the copy", CATCH_UP_SECONDS)
            master.kill_broker()
            running.stop()
        with orbitlog_broker(slave, master.name_server_address):
            journey.goes_on()
            client.close()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_java_slave_of_a_killed_orbitlog_master_becomes_the_master(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, slave = packages_of(version), tmp_path / "slave"
    system = ApacheSystem(packages, tmp_path / "names", tmp_path / "unused", {})
    system.start_name_server_alone()
    try:
        names = system.name_server_address
        settings = {"compat": version[:3], "listenPort": system.ports.broker}
        with orbitlog_broker(tmp_path / "ours", names, **settings) as (master, _):
            client = Client(driver_of(f"java-{version}"), system)
            journey = Journey(client)
            with java_slave(packages, slave, names) as (running, _):
                stores = tmp_path / "ours" / "store", slave / "store"
                client.eventually(lambda: journey.is_copied(*stores), "the copy", CATCH_UP_SECONDS)
                master.kill()
                running.stop()
        with java_broker(packages, slave, names):
            journey.goes_on()
            client.close()
    finally:
        system.kill()
