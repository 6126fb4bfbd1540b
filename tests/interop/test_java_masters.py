"""An Orbitlog slave of a Java master: its log equals the master's byte for byte, and consumers can read from it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitlog.wire.bodies.body_json import read_body
from tests.interop.harness.clients import Client
from tests.interop.harness.cluster import BROKER_NAME, CLUSTER_NAME
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import ServerProcess, java_command, run_program
from tests.interop.harness.store_copies import CATCH_UP_SECONDS, FILES, RESTARTS, has_same_log, queue_files
from tests.interop.harness.systems import ApacheSystem, start_orbitlog

pytestmark = pytest.mark.interop

OK = "SEND_OK"


@contextmanager
def orbitlog_slave(
    directory: Path, master: ApacheSystem, version: str, **settings: object
) -> Iterator[tuple[ServerProcess, str]]:
    """A slave that finds its master through the name server, and its address; killed when the block ends."""
    given = {
        **FILES,
        "compat": version[:3],
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "brokerName": BROKER_NAME,
        "brokerClusterName": CLUSTER_NAME,
        "syncBrokerMetadataPeriod": 1000,
        **settings,
    }
    words = ["-n", master.name_server_address, "--port", "0", "--store", str(directory / "store")]
    for key, value in given.items():
        words += ["--set", f"{key}={value}"]
    slave, ready = start_orbitlog(directory, words, command="broker")
    try:
        yield slave, ready["broker"]
    finally:
        slave.kill()


@contextmanager
def java_master(packages: ApachePackages, directory: Path, **settings: object) -> Iterator[ApacheSystem]:
    master = ApacheSystem(packages, directory, directory / "store", {**FILES, "brokerIP2": "127.0.0.1", **settings})
    master.start()
    try:
        yield master
    finally:
        master.kill()


def table_of(store: Path, name: str, key: str) -> dict[str, object]:
    path = store / "config" / name
    table = read_body(path.read_bytes()) if path.exists() else {}
    assert isinstance(table, dict)
    return dict(table.get(key) or {})


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
            with orbitlog_slave(tmp_path / "slave", master, version):
                client.send(producer, topic, count=500, bytesMax=3000, seed=1 + number)
                client.eventually(is_copied, "the same log", CATCH_UP_SECONDS)
                client.send(producer, topic, count=200, bytesMax=3000, seed=50 + number)  # then killed
        with orbitlog_slave(tmp_path / "slave", master, version) as (slave, _):
            arguments = [master.name_server_address, master.broker_address, "Kinds"]
            run_program(java_command(packages, tmp_path / "kinds"), "SendSome", arguments)
            client.eventually(is_copied, "the same log", CATCH_UP_SECONDS)
            client.eventually(
                lambda: queue_files(slave_store, topic) == queue_files(master.store, topic), "the same queues"
            )
            for name, key in (("topics.json", "topicConfigTable"), ("delayOffset.json", "offsetTable")):
                client.eventually(
                    lambda name=name, key=key: table_of(slave_store, name, key) == table_of(master.store, name, key),
                    f"the same {name}",
                    CATCH_UP_SECONDS,
                )
            client.eventually(is_copied, "the same log", CATCH_UP_SECONDS)
            slave.stop()
        assert len(list((slave_store / "commitlog").iterdir())) >= 6
        client.close()
    program = Path(sys.executable).parent / "orbitlog"
    checked = subprocess.run([program, "doctor", "check", str(slave_store)], capture_output=True, text=True)
    # About tables it may complain: one of the kinds changes a topic to fewer queues than have messages.
    files = [f"{slave_store}/{name}" for name in ("commitlog", "consumequeue", "index")]
    assert "messages up to physical offset" in checked.stdout, checked.stdout + checked.stderr
    assert not any(name in checked.stdout for name in files), checked.stdout


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
        with orbitlog_slave(tmp_path / "slave", master, version) as (_, address):

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
