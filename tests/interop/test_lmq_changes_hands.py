"""A store with light queues (`enableLmq`) that goes from Java to Orbitlog and back: nothing is delivered twice.

All committed offsets are in `lmqConsumerOffset.json` then, those of half messages too. Light queues have no topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.handover import LINES, SMALL
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System
from tests.interop.light_queue_turns import LMQ, SETTLE_SECONDS, LightQueueTurns

pytestmark = pytest.mark.interop

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.mark.parametrize("version", LINES)
def test_light_queues_and_all_offsets_change_hands(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of(version), driver_of(f"java-{version}")
    store = tmp_path / "store"
    java = ApacheSystem(packages, tmp_path / "java", store, {**SMALL, **LMQ})
    orbitlog = OrbitlogSystem(tmp_path / "orbitlog", store, {**SMALL, **LMQ, "compat": LINES[version]})
    hands = LightQueueTurns()

    def turn(system: System, mark: str) -> None:
        system.start()
        client = Client(driver, system)
        try:
            hands.turn(client, mark)
        finally:
            client.close()
            system.stop()
        assert (store / "config" / "lmqConsumerOffset.json").exists()
        assert not (store / "config" / "consumerOffset.json").exists()

    try:
        for number, system in enumerate((java, orbitlog, java, orbitlog)):
            turn(system, f"turn{number}")
    finally:
        java.kill()
        orbitlog.kill()


def test_transaction_given_up_is_not_given_up_again(
    tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of("5.5.0"), driver_of("java-5.5.0")
    store = tmp_path / "store"
    java = ApacheSystem(packages, tmp_path / "java", store, {**SMALL, **LMQ})
    orbitlog = OrbitlogSystem(tmp_path / "orbitlog", store, {**SMALL, **LMQ, "compat": "5.5"})
    counts: list[int] = []

    def turn(system: System, *, sends: int) -> None:
        system.start()
        client = Client(driver, system)
        try:
            if sends:
                topic = client.topic("Open", queues=1)
                producer = client.producer("transactionalProducer")
                client.send(
                    producer,
                    topic,
                    verb="sendInTransaction",
                    count=sends,
                    body="open",
                    first="UNKNOW",
                    checked="UNKNOW",
                )
            before = counts[-1] if counts else 0
            client.eventually(lambda: given_up(client) >= before + sends, f"{sends} given up", 90)
            time.sleep(2 * SETTLE_SECONDS)
            counts.append(given_up(client))
        finally:
            client.close()
            system.stop()

    try:
        turn(java, sends=2)
        turn(orbitlog, sends=0)
        turn(orbitlog, sends=1)
        turn(java, sends=0)
        assert counts == [2, 2, 3, 3]
    finally:
        java.kill()
        orbitlog.kill()


def given_up(client: Client) -> int:
    """Return how many half messages were given up so far."""
    reader = client.pull_consumer(client.group("lost"))
    try:
        at = {"name": reader, "broker": client.system.broker_name, "queue": 0}
        client.call("pull", topic="SELF_TEST_TOPIC", position=0, **at)  # the client learns the address of the broker
        bounds = client.call("queueBounds", topic=GIVEN_UP, **at)
    finally:
        client.end(reader)
    return int(bounds["max"])
