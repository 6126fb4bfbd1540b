"""An Orbitlog slave of a Java master: its log equals the master's byte for byte, and consumers can read from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import java_command, run_program
from tests.interop.harness.replica_reads import same_reads
from tests.interop.harness.replicas import java_master, orbitlog_slave, table_of
from tests.interop.harness.store_copies import (
    CATCH_UP_SECONDS,
    RESTARTS,
    all_queue_files,
    assert_sound_files,
    has_same_log,
    index_files,
    kinds,
    queue_files,
    tables,
)

pytestmark = pytest.mark.interop

OK = "SEND_OK"


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_log_of_an_orbitlog_slave_equals_the_java_masters(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    """Killed and restarted amid sends of all kinds of messages, over more than five segments."""
    packages, driver = packages_of(version), driver_of(f"java-{version}")
    slave_store, is_5x = tmp_path / "slave" / "store", version.startswith("5")
    with java_master(packages, tmp_path / "java", **({"timerWheelEnable": "true"} if is_5x else {})) as master:
        client = Client(driver, master)
        topic, producer = client.topic("Copied"), client.producer()

        def is_copied() -> bool:
            return has_same_log(master.store, slave_store)

        for number in range(RESTARTS):
            with orbitlog_slave(tmp_path / "slave", master.name_server_address, version):
                client.send(producer, topic, count=500, bytesMax=8000, seed=1 + number)
                client.eventually(is_copied, "the same log", CATCH_UP_SECONDS)
                client.send(producer, topic, count=200, bytesMax=8000, seed=50 + number)  # then killed
        with orbitlog_slave(tmp_path / "slave", master.name_server_address, version) as (slave, address):
            client.send(producer, topic, count=50, bytesMax=500, seed=99, keys="key-{}")
            arguments = [master.name_server_address, master.broker_address, "Kinds"]
            run_program(java_command(packages, tmp_path / "kinds"), "SendSome", [*arguments, *kinds(version)])
            if version.startswith("5"):
                client.mqadmin(f"setConsumeMode -b {master.broker_address} -t {topic} -g readers -m POP -q 2")
                assert table_of(master.store, "messageRequestMode.json", "messageRequestModeMap")
            client.eventually(is_copied, "the same log", CATCH_UP_SECONDS)
            client.eventually(
                lambda: queue_files(slave_store, topic) == queue_files(master.store, topic), "the same queues"
            )
            for name, key in tables(version):
                client.eventually(
                    lambda name=name, key=key: table_of(slave_store, name, key) == table_of(master.store, name, key),
                    f"the same {name}",
                    CATCH_UP_SECONDS,
                )
            client.eventually(is_copied, "the same log", CATCH_UP_SECONDS)
            client.eventually(
                lambda: all_queue_files(slave_store) == all_queue_files(master.store), "the same queues of all topics"
            )
            client.eventually(lambda: index_files(slave_store) == index_files(master.store), "the same index")
            found = same_reads(master.broker_address, address, master.store, topic, ["key-0", "key-7", "key-49"])
            assert min(found) > 0, "nothing was read"
            slave.stop()
        assert len(list((slave_store / "commitlog").iterdir())) >= 6
        client.close()
    assert_sound_files(slave_store)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_java_tools_see_the_slave_and_consumers_read_from_it_without_the_master(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of(version), driver_of(f"java-{version}")
    sync = (
        {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2} if version.startswith("5") else {"brokerRole": "SYNC_MASTER"}
    )
    with java_master(packages, tmp_path / "java", **sync) as master:
        client = Client(driver, master)
        topic, producer = client.topic("Read"), client.producer()
        with orbitlog_slave(tmp_path / "slave", master.name_server_address, version) as (_, address):

            def status() -> str:
                [sent] = client.send(producer, topic, count=1, body="one")
                return str(sent["status"])

            client.eventually(lambda: status() == OK, "a send with a slave", CATCH_UP_SECONDS)
            sent = client.send(producer, topic, count=50, body="message")
            assert {one["status"] for one in sent} == {OK}
            assert address in client.mqadmin("clusterList")
            assert "commitLogMaxOffset" in client.mqadmin(f"brokerStatus -b {address}")
            if version.startswith("5"):
                assert "127.0.0.1" in client.mqadmin(f"haStatus -b {master.broker_address}")
                assert master.broker_address.rpartition(":")[0] in client.mqadmin(f"haStatus -b {address}")
            slave_store = tmp_path / "slave" / "store"
            client.eventually(lambda: topic in table_of(slave_store, "topics.json", "topicConfigTable"), "the topic")
            master.stop_broker()
            push = client.push(topic, client.group("readers"))
            push.wait_for(50, CATCH_UP_SECONDS)
            client.close()
