"""What a send to a SYNC_MASTER gets without a slave, with one, with a silent one, and without waiting."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.replicas import java_master, java_slave, orbitlog_slave
from tests.interop.harness.store_copies import CATCH_UP_SECONDS, FILES
from tests.interop.harness.systems import OrbitlogSystem

pytestmark = pytest.mark.interop

OK, NO_SLAVE, SLAVE_TIMEOUT = "SEND_OK", "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"
NO_WAIT = {"system.WAIT": "false"}


class Sends:
    """Sends one message at a time, and returns the status of each."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._topic, self._producer = client.topic("Status"), client.producer(retries=0)

    def __call__(self, **words: object) -> str:
        [sent] = self._client.send(self._producer, self._topic, count=1, body="one", **words)
        return str(sent["status"])


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_statuses_of_an_orbitlog_master_with_a_java_slave(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    settings = {**FILES, "compat": version[:3], "brokerRole": "SYNC_MASTER", "slaveTimeout": 1000}
    master = OrbitlogSystem(tmp_path / "ours", tmp_path / "ours" / "store", settings)
    master.start()
    client = Client(driver_of(f"java-{version}"), master)
    try:
        status = Sends(client)
        assert (status(), status(**NO_WAIT)) == (NO_SLAVE, OK)
        with java_slave(packages_of(version), tmp_path / "slave", master.name_server_address) as (slave, _):
            client.eventually(lambda: status() == OK, "a send with a slave", CATCH_UP_SECONDS)
            slave.send_signal(signal.SIGSTOP)
            assert (status(), status(**NO_WAIT)) == (SLAVE_TIMEOUT, OK)
            slave.send_signal(signal.SIGCONT)
            client.eventually(lambda: status() == OK, "a send after the pause", CATCH_UP_SECONDS)
        client.eventually(lambda: status() == NO_SLAVE, "a send without the slave")
    finally:
        client.close()
        master.kill()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_statuses_of_a_java_master_with_an_orbitlog_slave(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    is_5x = version.startswith("5")
    sync = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 1000, **({"inSyncReplicas": 2} if is_5x else {})}
    with java_master(packages_of(version), tmp_path / "java", **sync) as master:
        client = Client(driver_of(f"java-{version}"), master)
        status = Sends(client)
        alone = SLAVE_TIMEOUT if is_5x else NO_SLAVE
        assert (status(), status(**NO_WAIT)) == (alone, OK)
        with orbitlog_slave(tmp_path / "slave", master.name_server_address, version) as (slave, _):
            client.eventually(lambda: status() == OK, "a send with a slave", CATCH_UP_SECONDS)
            slave.send_signal(signal.SIGSTOP)
            assert (status(), status(**NO_WAIT)) == (SLAVE_TIMEOUT, OK)
            slave.send_signal(signal.SIGCONT)
            client.eventually(lambda: status() == OK, "a send after the pause", CATCH_UP_SECONDS)
        client.eventually(lambda: status() == alone, "a send without the slave")
        client.close()
