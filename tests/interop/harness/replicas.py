"""Masters, slaves and mirrors of either kind, each in a process of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitlog.wire.bodies.body_json import read_body
from tests.interop.harness.cluster import (
    BROKER_NAME,
    BROKER_SECONDS_MAX,
    CLUSTER_NAME,
    Ports,
    server_command,
    start_broker,
)
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import ServerProcess
from tests.interop.harness.store_copies import FILES
from tests.interop.harness.systems import ApacheSystem, start_orbitlog

NAMES = {"brokerName": BROKER_NAME, "brokerClusterName": CLUSTER_NAME}


@contextmanager
def orbitlog_broker(
    directory: Path, name_server: str, command: tuple[str, ...] = ("broker",), **settings: object
) -> Iterator[tuple[ServerProcess, str]]:
    """A broker or mirror of Orbitlog over `directory/store`, and its address; killed when the block ends."""
    words = [*command[1:], "--port", str(settings.pop("listenPort", 0)), "--store", str(directory / "store")]
    if command[0] == "broker":
        words += ["-n", name_server]
        settings = {**FILES, **NAMES, **settings}
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    broker, ready = start_orbitlog(directory, words, command=command[0])
    try:
        yield broker, ready["broker"]
    finally:
        broker.kill()


@contextmanager
def orbitlog_slave(
    directory: Path, name_server: str, version: str, **settings: object
) -> Iterator[tuple[ServerProcess, str]]:
    """A slave that finds its master through the name server."""
    role = {"compat": version[:3], "brokerRole": "SLAVE", "brokerId": 1, "syncBrokerMetadataPeriod": 1000}
    with orbitlog_broker(directory, name_server, **{**role, **settings}) as slave:
        yield slave


@contextmanager
def java_master(packages: ApachePackages, directory: Path, **settings: object) -> Iterator[ApacheSystem]:
    """A master with a name server of the same version."""
    master = ApacheSystem(packages, directory, directory / "store", {**FILES, "brokerIP2": "127.0.0.1", **settings})
    master.start()
    try:
        yield master
    finally:
        master.kill()


@contextmanager
def java_broker(
    packages: ApachePackages, directory: Path, name_server: str, **settings: object
) -> Iterator[tuple[ServerProcess, str]]:
    """A Java broker over `directory/store` at a name server that runs already, and its address."""
    directory.mkdir(parents=True, exist_ok=True)
    ports = Ports(int(name_server.rpartition(":")[2]), Ports.find().broker)
    given = {**FILES, "brokerName": BROKER_NAME, "brokerIP2": "127.0.0.1", **settings}
    for segment in (directory / "store" / "commitlog").glob("*"):
        if not segment.stat().st_size:
            segment.unlink()  # left by `kill -9` during its creation; a 4.9.7 broker does not start with it
    broker = start_broker(server_command(packages, directory), directory, ports, directory / "store", given)
    try:
        # The name server knows the name already, by the other broker of the group.
        broker.wait_until(lambda: accepts(ports.broker), BROKER_SECONDS_MAX)
        yield broker, f"127.0.0.1:{ports.broker}"
    finally:
        broker.kill()


@contextmanager
def java_slave(
    packages: ApachePackages, directory: Path, name_server: str, **settings: object
) -> Iterator[tuple[ServerProcess, str]]:
    """A Java slave that finds its master through the name server."""
    role = {"brokerRole": "SLAVE", "brokerId": 1}
    with java_broker(packages, directory, name_server, **{**role, **settings}) as slave:
        yield slave


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def table_of(store: Path, name: str, key: str) -> dict[str, object]:
    """Return one table of a config file; empty without the file. Numbers that are keys may be quoted or not."""
    path = store / "config" / name
    table = read_body(path.read_bytes()) if path.exists() else {}
    assert isinstance(table, dict)
    found = _with_text_keys(table.get(key) or {})
    assert isinstance(found, dict)
    return found


def _with_text_keys(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(inner) for key, inner in value.items()}
    return value
