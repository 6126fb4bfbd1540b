"""A mirror of a Java master: the same log, no influence on sends, and a take-over while Java clients keep running."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.cluster import BROKER_NAME
from tests.interop.harness.drivers import Driver, Refused
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import java_command, run_program
from tests.interop.harness.replicas import java_master, java_slave, orbitlog_broker
from tests.interop.harness.store_copies import CATCH_UP_SECONDS, assert_sound_files, has_same_log, kinds, queue_files

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).parent / "orbitlog"
OK, NO_SLAVE, SLAVE_TIMEOUT = "SEND_OK", "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"


def orbitlog(*words: object) -> str:
    ran = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_mirror_of_a_java_master_has_its_whole_log_and_is_checked_and_queried_live(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages = packages_of(version)
    copy = tmp_path / "mirror" / "store"
    with java_master(packages, tmp_path / "java") as master:
        client = Client(driver_of(f"java-{version}"), master)
        topic, producer = client.topic("Mirrored"), client.producer()
        client.send(producer, topic, count=1500, bytesMax=3000, seed=1)  # more than one segment
        command = ("mirror", master.name_server_address, BROKER_NAME)
        for number in range(3):
            with orbitlog_broker(tmp_path / "mirror", master.name_server_address, command) as (mirror, _):
                client.send(producer, topic, count=300, bytesMax=3000, seed=2 + number, keys="key-{}")
                if number == 0:
                    arguments = [master.name_server_address, master.broker_address, "Kinds", *kinds(version)]
                    run_program(java_command(packages, tmp_path / "kinds"), "SendSome", arguments)
                client.eventually(lambda: has_same_log(master.store, copy), "the same log", CATCH_UP_SECONDS)
                if number < 2:
                    mirror.kill()
                    continue
                client.eventually(
                    lambda: queue_files(copy, topic) == queue_files(master.store, topic), "the same queues"
                )
                rows = map(json.loads, orbitlog("dump", "commitlog", copy, "--json").splitlines())
                assert sum(row["topic"] == topic for row in rows) == 1500 + 3 * 300
                assert_sound_files(copy)
                mirror.stop()
        assert len(list((copy / "commitlog").iterdir())) >= 3
        client.close()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_sync_sends_of_a_java_master_are_not_acknowledged_by_a_mirror(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, is_5x = packages_of(version), version.startswith("5")
    sync = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 1000, **({"inSyncReplicas": 2} if is_5x else {})}
    copy = tmp_path / "mirror" / "store"
    with java_master(packages, tmp_path / "java", **sync) as master:
        client = Client(driver_of(f"java-{version}"), master)
        topic, producer = client.topic("Synced"), client.producer(retries=0)

        def status() -> str:
            [sent] = client.send(producer, topic, count=1, body="one")
            return str(sent["status"])

        assert status() == (SLAVE_TIMEOUT if is_5x else NO_SLAVE)
        command = ("mirror", master.name_server_address, BROKER_NAME)
        for _ in range(2):  # the second one asks for its end, which counts as a report
            with orbitlog_broker(tmp_path / "mirror", master.name_server_address, command):
                for _ in range(3):
                    assert status() in (NO_SLAVE, SLAVE_TIMEOUT)
                    client.eventually(lambda: has_same_log(master.store, copy), "the same log", CATCH_UP_SECONDS)
                assert status() == SLAVE_TIMEOUT
        with (
            orbitlog_broker(tmp_path / "mirror", master.name_server_address, command),
            java_slave(packages, tmp_path / "slave", master.name_server_address),
        ):
            client.eventually(lambda: status() == OK, "a send with a real slave", CATCH_UP_SECONDS)
            assert {status() for _ in range(20)} == {OK}
        client.close()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_mirror_takes_over_while_java_clients_keep_running(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    with java_master(packages_of(version), tmp_path / "java") as master:
        client = Client(driver_of(f"java-{version}"), master)
        topic, group = client.topic("Taken"), client.group("readers")
        producer = client.producer(retries=0)
        push = client.push(topic, group)
        acknowledged: list[str] = []

        def send_some() -> bool:
            """Send until a send is refused; return whether all were accepted."""
            try:
                for _ in range(20):
                    [sent] = client.send(producer, topic, count=1, bytesMax=1000)
                    acknowledged.append(sent["msgId"])
            except Refused:
                return False
            return True

        assert send_some()
        command = ("mirror", master.name_server_address, BROKER_NAME, "--take-over")
        with orbitlog_broker(tmp_path / "mirror", master.name_server_address, command) as (mirror, _):
            log = mirror.log

            def wait_for(text: str) -> None:
                client.eventually(lambda: text in log.read_text() or not mirror.is_running, text, CATCH_UP_SECONDS)
                assert mirror.is_running, mirror.log_tail()

            wait_for("refuses sends")
            assert not send_some(), "the master still accepts sends"
            wait_for("stop master")
            master.stop_broker()
            wait_for("this broker is the master")
            client.eventually(send_some, "a send to the new master", CATCH_UP_SECONDS)
            push.wait_for(len(acknowledged), CATCH_UP_SECONDS)
            stored = (tmp_path / "mirror" / "store" / "commitlog").iterdir()
            content = b"".join(path.read_bytes() for path in sorted(stored))
            assert all(one.encode() in content for one in acknowledged)
            client.close()
