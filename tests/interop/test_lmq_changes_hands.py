"""A store with light queues (`enableLmq`) that goes from Java to Orbitlog and back: nothing is delivered twice.

All committed offsets are in `lmqConsumerOffset.json` then, those of half messages too. Light queues have no topic.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.handover import LINES, SMALL
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

LMQ = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "2000",
    "transactionCheckMax": "1",
}
SETTLE_SECONDS = 6  # Java's broker writes offsets every five seconds
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
LIGHT, OTHER, LIGHT_GROUP = "%LMQ%a", "%LMQ%b", "%LMQ%readers"


def digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


class Hands:
    """What was sent and consumed so far, whichever broker served."""

    def __init__(self) -> None:
        self.topic = ""
        self.pending: list[str] = []
        self.light: list[str] = []
        self.light_committed = 0
        self.other: list[str] = []

    def turn(self, client: Client, mark: str) -> None:
        self.topic = self.topic or client.topic("Light", queues=1)
        self._consume(client, mark)
        self._read_light_queues(client)
        self._send(client, mark)
        time.sleep(SETTLE_SECONDS)

    def _consume(self, client: Client, mark: str) -> None:
        """Let an ordinary and an ordered group consume: each gets what it has not had, and nothing else."""
        expected, self.pending = self.pending, []
        pushes = [client.push(self.topic, "light_plain"), client.push(self.topic, "light_order", orderly=True)]
        for push in pushes:
            push.wait(lambda push=push: len(push.messages) >= len(expected), 60, f"{len(expected)} at {mark}")
        time.sleep(3)
        plain, ordered = ([one["body"] for one in push.messages] for push in pushes)
        assert (sorted(plain), ordered) == (sorted(expected), expected), mark
        for push in pushes:
            push.close()

    def _read_light_queues(self, client: Client) -> None:
        """Read light queues, and commit half of what is new as a group that has one offset a topic."""
        reader = client.pull_consumer(LIGHT_GROUP)
        at = {"name": reader, "broker": client.system.broker_name, "queue": 0}
        self._pulled(client, at, self.topic, 0)  # the client learns the address of the broker
        assert self._pulled(client, at, LIGHT, 0) == self.light
        assert self._pulled(client, at, OTHER, 0) == self.other
        found = client.call("pullCommitted", topic=LIGHT, **at)["position"]
        assert found == self.light_committed or (self.light_committed == 0 and found <= 0)
        assert self._pulled(client, at, LIGHT, self.light_committed) == self.light[self.light_committed :]
        if self.light:
            self.light_committed = (self.light_committed + len(self.light) + 1) // 2
            client.call("pullCommit", topic=LIGHT, position=self.light_committed, **at)
        client.end(reader)

    def _pulled(self, client: Client, at: dict[str, object], topic: str, offset: int) -> list[str]:
        answer = client.call("pull", topic=topic, position=offset, **at)
        messages = answer["messages"]
        assert isinstance(messages, list)
        return [one["bodySha256"] for one in messages]

    def _send(self, client: Client, mark: str) -> None:
        producer = client.producer()
        for number in range(3):
            body = f"{mark} {number}"
            client.send(producer, self.topic, body=body)
            self.pending.append(body)
        for number in range(2):
            both, one = f"{mark} both {number}", f"{mark} one {number}"
            client.send(producer, self.topic, body=both, **{"system.INNER_MULTI_DISPATCH": f"{LIGHT},{OTHER}"})
            client.send(producer, self.topic, body=one, **{"system.INNER_MULTI_DISPATCH": LIGHT})
            self.pending += [both, one]
            self.light += [digest(both), digest(one)]
            self.other.append(digest(both))


@pytest.mark.parametrize("version", LINES)
def test_light_queues_and_all_offsets_change_hands(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of(version), driver_of(f"java-{version}")
    store = tmp_path / "store"
    java = ApacheSystem(packages, tmp_path / "java", store, {**SMALL, **LMQ})
    orbitlog = OrbitlogSystem(tmp_path / "orbitlog", store, {**SMALL, **LMQ, "compat": LINES[version]})
    hands = Hands()

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
