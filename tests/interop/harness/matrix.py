"""Which client is tested at which system: each at Orbitlog, and at the Apache version that it was made for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness.cluster import TOP_LOGGER
from tests.interop.harness.drivers import Driver
from tests.interop.harness.other_clients import driver_command
from tests.interop.harness.packages import ApachePackages, NotAvailable
from tests.interop.harness.processes import java_command
from tests.interop.harness.systems import APACHE_497, APACHE_550, ORBITLOG, wanted_kinds

Pair = tuple[str, str]

JAVA_497 = "java-4.9.7"
JAVA_550 = "java-5.5.0"
# With the setting that makes it write its headers as bytes, not as JSON.
JAVA_BINARY = "java-5.5.0-binary"
_AT_HOME = {JAVA_497: APACHE_497, JAVA_550: APACHE_550}


def at_home_and_here(*clients: str) -> list[Pair]:
    """Each client at Apache's broker and at Orbitlog."""
    return [(client, kind) for client in clients for kind in wanted_kinds((_AT_HOME.get(client, APACHE_550), ORBITLOG))]


def clients_at_systems(pairs: list[Pair]) -> pytest.MarkDecorator:
    """Run a test with the fixture `client` for each pair."""
    ids = [f"{client}-at-{kind}" for client, kind in pairs]
    return pytest.mark.parametrize("client", pairs, indirect=True, ids=ids)


java_clients = clients_at_systems(at_home_and_here(JAVA_497, JAVA_550))
other_clients = clients_at_systems(at_home_and_here("go", "node", "cpp"))
go_client = clients_at_systems(at_home_and_here("go"))
java_binary_client = clients_at_systems(at_home_and_here(JAVA_BINARY))
java_550_client = clients_at_systems(at_home_and_here(JAVA_550))


def start_driver(name: str, directory: Path, packages_of: Callable[[str], ApachePackages]) -> Driver:
    """Start the driver of a client; skips the test if its packages are not available."""
    directory.mkdir(parents=True, exist_ok=True)
    language, version, *variants = f"{name}-".split("-")
    if language != "java":
        try:
            made, environment = driver_command(name)
        except NotAvailable as reason:
            pytest.skip(str(reason))
        return Driver(name, made, directory / "driver.log", {**environment, "HOME": str(directory)})
    # The admin tool of 4.9 wants its file at this place.
    quiet = directory / "home" / "conf" / "logback_tools.xml"
    quiet.parent.mkdir(parents=True)
    quiet.write_text(f'<configuration><{TOP_LOGGER} level="OFF"/></configuration>\n')
    options = (f"-Drmq.logback.configurationFile={quiet}", f"-Dlogback.configurationFile={quiet}")
    if "binary" in variants:
        options += ("-Drocketmq.serialize.type=ROCKETMQ",)
    command = [*java_command(packages_of(version), directory / "home", options=options), "ClientShell"]
    return Driver(name, command, directory / "driver.log", os.environ)
