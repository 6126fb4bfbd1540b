"""One store directory, served in turn by our broker and by Apache's: messages, topics, offsets and delays stay."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.handover import LINES, SMALL, consumed, ids
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", LINES)
def test_a_store_goes_from_one_broker_to_the_other_and_back(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of(version), driver_of(f"java-{version}")
    store = tmp_path / "store"
    ours = OrbitlogSystem(tmp_path / "ours", store, {**SMALL, "compat": LINES[version]})
    theirs = ApacheSystem(packages, tmp_path / "theirs", store, SMALL)
    topic, group = "", ""
    pending: set[str] = set()

    def turn(system: System, mark: str) -> None:
        """Serve, give the group what the broker before left for it, and leave something for the next."""
        nonlocal topic, group, pending
        system.start()
        client = Client(driver, system)
        try:
            if not topic:
                topic, group = client.topic("Hands"), client.group("hands")
                producer = client.producer()
                first = ids(client.send(producer, topic, count=12, body=f"first {mark}"))
                assert consumed(client, topic, group, 12) == first
            else:
                assert consumed(client, topic, group, len(pending)) == pending
                producer = client.producer()
            pending = ids(client.send(producer, topic, count=12, body=f"plain {mark}", keys=f"{mark}-{{}}"))
            pending |= ids(client.send(producer, topic, count=2, body=f"delayed {mark}", delayLevel=1))
            if system is theirs:
                time.sleep(6)  # Java's broker writes positions down every five seconds, and some only then
        finally:
            client.close()
            system.stop()

    try:
        turn(ours, "one")
        turn(theirs, "two")
        turn(ours, "three")
        turn(theirs, "four")
    finally:
        ours.kill()
        theirs.kill()
