"""Apache's mqadmin prints for a master and a slave of Orbitlog what it prints for Apache's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.replicas import java_master, java_slave, orbitlog_slave
from tests.interop.harness.store_copies import CATCH_UP_SECONDS, FILES, has_same_log
from tests.interop.harness.systems import OrbitlogSystem, System

pytestmark = pytest.mark.interop

# Latencies and failures of puts, which Orbitlog has as metrics.
_NOT_STATED = {"putLatency99", "putLatency999", "putMessageFailedTimes"}
_NUMBER = re.compile(r"\d[\d.,:]*")


def shape(printed: str) -> list[str]:
    """Return the lines without numbers, addresses, times and differences of blanks."""
    lines = (" ".join(_NUMBER.sub("#", line).split()) for line in printed.splitlines())
    return [line for line in lines if line]


def status_keys(printed: str) -> set[str]:
    """Return the keys of `brokerStatus`, without those that name a delay level, topic or directory."""
    keys = {line.split(":")[0].split()[0] for line in printed.splitlines() if ":" in line}
    return {key for key in keys if not re.search(r"scheduleMessageOffset|/|_\d", key)}


@contextmanager
def java_pair(packages: ApachePackages, directory: Path) -> Iterator[tuple[System, str]]:
    with java_master(packages, directory / "master") as master:
        with java_slave(packages, directory / "slave", master.name_server_address) as (_, slave):
            yield master, slave


@contextmanager
def orbitlog_pair(version: str, directory: Path) -> Iterator[tuple[System, str]]:
    settings = {**FILES, "compat": version[:3]}
    master = OrbitlogSystem(directory / "master", directory / "master" / "store", settings)
    master.start()
    try:
        with orbitlog_slave(directory / "slave", master.name_server_address, version) as (_, slave):
            yield master, slave
    finally:
        master.kill()


def printed_by(driver: Driver, master: System, slave: str, slave_store: Path, *, is_5x: bool) -> dict[str, str]:
    client = Client(driver, master)
    topic, producer = client.topic("Tools"), client.producer()
    client.send(producer, topic, count=20, body="message")
    client.eventually(lambda: has_same_log(master.store, slave_store), "the same log", CATCH_UP_SECONDS)
    client.eventually(lambda: slave in client.mqadmin("clusterList"), "the slave in the list", CATCH_UP_SECONDS)
    commands = {"list": "clusterList", "master": f"brokerStatus -b {master.broker_address}"}
    commands["slave"] = f"brokerStatus -b {slave}"
    if is_5x:
        commands |= {"ha master": f"haStatus -b {master.broker_address}", "ha slave": f"haStatus -b {slave}"}
    printed = {name: client.mqadmin(command) for name, command in commands.items()}
    client.close()
    return printed


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_mqadmin_prints_the_same_for_both_pairs(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver, is_5x = packages_of(version), driver_of(f"java-{version}"), version.startswith("5")
    with java_pair(packages, tmp_path / "java") as (master, slave):
        expected = printed_by(driver, master, slave, tmp_path / "java" / "slave" / "store", is_5x=is_5x)
    with orbitlog_pair(version, tmp_path / "ours") as (master, slave):
        ours = printed_by(driver, master, slave, tmp_path / "ours" / "slave" / "store", is_5x=is_5x)
    assert shape(ours["list"]) == shape(expected["list"])
    for name in ("master", "slave"):
        assert status_keys(expected[name]) - _NOT_STATED <= status_keys(ours[name]), name
    for name in ("ha master", "ha slave") if is_5x else ():
        assert shape(ours[name]) == shape(expected[name])
