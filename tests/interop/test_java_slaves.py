"""Java slaves of an Orbitlog master: their log equals the master's byte for byte, and so does what they derive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.cluster import Ports
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import java_command, run_program
from tests.interop.harness.replicas import java_slave, table_of
from tests.interop.harness.store_copies import (
    CATCH_UP_SECONDS,
    FILES,
    RESTARTS,
    all_queue_files,
    has_same_log,
    index_files,
    kinds,
    queue_files,
    tables,
)
from tests.interop.harness.systems import OrbitlogSystem

pytestmark = pytest.mark.interop

OK, SLAVE_NOT_AVAILABLE = "SEND_OK", "SLAVE_NOT_AVAILABLE"


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_log_of_a_java_slave_equals_the_masters(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    """Killed and restarted amid sends, over more than five segments."""
    packages, driver = packages_of(version), driver_of(f"java-{version}")
    settings = {**FILES, "compat": version[:3], "transactionCheckInterval": 3_600_000}
    # Java slaves ask for the topic table on the VIP port.
    master = OrbitlogSystem(tmp_path / "ours", tmp_path / "ours" / "store", settings, Ports.find())
    slave_store = tmp_path / "slave" / "store"
    master.start()
    client = Client(driver, master)
    try:
        topic = client.topic("Copied")
        producer = client.producer()
        client.send(producer, topic, count=500, bytesMax=8000, seed=1)
        for number in range(RESTARTS):
            with java_slave(packages, tmp_path / "slave", master.name_server_address):
                client.eventually(lambda: has_same_log(master.store, slave_store), "the same log", CATCH_UP_SECONDS)
                client.send(producer, topic, count=500, bytesMax=8000, seed=2 + number)  # then killed
        with java_slave(packages, tmp_path / "slave", master.name_server_address):
            arguments = [master.name_server_address, master.broker_address, "Kinds"]
            run_program(java_command(packages, tmp_path / "kinds"), "SendSome", [*arguments, *kinds(version)])
            if version.startswith("5"):
                client.mqadmin(f"setConsumeMode -b {master.broker_address} -t {topic} -g readers -m POP -q 2")
                assert table_of(master.store, "messageRequestMode.json", "messageRequestModeMap")
            client.eventually(lambda: has_same_log(master.store, slave_store), "the same log", CATCH_UP_SECONDS)
            client.eventually(
                lambda: queue_files(slave_store, topic) == queue_files(master.store, topic), "the same queues"
            )
            client.eventually(
                lambda: all_queue_files(slave_store) == all_queue_files(master.store), "the same queues of all topics"
            )
            assert len(list((master.store / "commitlog").iterdir())) >= 6
            for name, key in tables(version):  # 5.5.0 copies them for the first time after a minute
                client.eventually(
                    lambda name=name, key=key: table_of(slave_store, name, key) == table_of(master.store, name, key),
                    f"the same {name}",
                    CATCH_UP_SECONDS,
                )
        # A Java broker drops index files that are newer than its checkpoint when it starts after a kill.
        with java_slave(packages, tmp_path / "fresh", master.name_server_address):
            fresh = tmp_path / "fresh" / "store"
            client.eventually(lambda: has_same_log(master.store, fresh), "the same log", CATCH_UP_SECONDS)
            client.eventually(lambda: all_queue_files(fresh) == all_queue_files(master.store), "the same queues")
            client.eventually(lambda: index_files(fresh) == index_files(master.store), "the same index")
    finally:
        client.close()
        master.kill()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_sync_master_acknowledges_only_what_the_java_slave_has(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of(version), driver_of(f"java-{version}")
    settings = {**FILES, "compat": version[:3], "brokerRole": "SYNC_MASTER"}
    master = OrbitlogSystem(tmp_path / "ours", tmp_path / "ours" / "store", settings)
    master.start()
    client = Client(driver, master)
    try:
        topic, producer = client.topic("Synced"), client.producer()

        def status() -> str:
            [sent] = client.send(producer, topic, count=1, body="one")
            return str(sent["status"])

        assert status() == SLAVE_NOT_AVAILABLE
        with java_slave(packages, tmp_path / "slave", master.name_server_address):
            client.eventually(lambda: status() == OK, "a send with a slave", CATCH_UP_SECONDS)
            acknowledged = client.send(producer, topic, count=300, bytesMax=2000, seed=7)
            assert {sent["status"] for sent in acknowledged} == {OK}
        # The slave was killed: everything that was acknowledged is in its log.
        log = b"".join(path.read_bytes() for path in sorted((tmp_path / "slave" / "store" / "commitlog").iterdir()))
        assert all(sent["msgId"].encode() in log for sent in acknowledged)
        client.eventually(lambda: status() == SLAVE_NOT_AVAILABLE, "a send without the slave")
    finally:
        client.close()
        master.kill()
