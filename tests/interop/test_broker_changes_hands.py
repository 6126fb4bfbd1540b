"""One store directory, served in turn by our broker and by Apache's: messages, topics, offsets and delays stay."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client, Push
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import JsonObject
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

LINES = {"4.9.7": "4.9", "5.5.0": "5.5"}
SMALL = {
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}


def ids(messages: list[JsonObject]) -> set[str]:
    return {one.get("uniqueId") or one["msgId"] for one in messages}


def consumed(client: Client, topic: str, group: str, count: int) -> set[str]:
    """Let a consumer of the group take what is there; positions are committed when it is closed."""
    push: Push = client.push(topic, group)
    push.wait_for(count)
    time.sleep(1)
    found = ids(push.messages)
    push.close()
    time.sleep(0.5)  # a commit is not answered
    return found


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
