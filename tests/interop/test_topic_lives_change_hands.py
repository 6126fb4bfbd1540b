"""Topics deleted and recreated while a store moves from Apache's broker to Orbitlog and back: no life is mixed up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.handover import LINES, SMALL
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

# Queue file sizes that a few messages fill, so that lives have several files.
SETTINGS = {**SMALL, "mappedFileSizeConsumeQueue": 20 * 10}
QUEUES = {"Twice": 1, "Spread": 4, "Gone": 1, "Kept": 2, "Later": 1}
Keys = dict[tuple[str, int], list[str]]


class Hands:
    """One broker's turn with the store: creates, sends, deletes, and notes what must be there."""

    def __init__(self, client: Client, expected: Keys) -> None:
        self.client, self.expected = client, expected
        self.producer = client.producer()

    def create(self, *topics: str) -> None:
        for topic in topics:
            words = {"topic": topic, "queues": QUEUES[topic], "brokerAddress": self.client.system.broker_address}
            self.client.call("createTopic", **words)

    def send(self, topic: str, label: str, count: int, queue: int = 0) -> None:
        words = {"count": count, "body": label, "keys": label + "-{}", "queue": queue}
        sent = self.client.send(self.producer, topic, broker=self.client.system.broker_name, **words)
        keys = self.expected.setdefault((topic, queue), [])
        assert [one["queueOffset"] for one in sent] == list(range(len(keys), len(keys) + count))
        keys += [f"{label}-{number}" for number in range(count)]

    def delete(self, *topics: str) -> None:
        for topic in topics:
            printed = self.client.mqadmin(f"deleteTopic -c {self.client.system.cluster_name} -t {topic}")
            assert "success" in printed, printed
            for queue in range(QUEUES[topic]):
                self.expected.pop((topic, queue), None)

    def check(self) -> None:
        """Pull every queue from its beginning."""
        consumer = self.client.pull_consumer(self.client.group("readers"))
        for topic in {topic for topic, _ in self.expected}:
            for queue in range(QUEUES[topic]):
                expected = self.expected.get((topic, queue), [])
                self.client.eventually(
                    lambda topic=topic, queue=queue, expected=expected: (
                        len(self._pull(consumer, topic, queue)) >= len(expected)
                    ),
                    f"{len(expected)} messages in {topic} {queue}",
                )
                assert self._pull(consumer, topic, queue) == expected, (topic, queue)

    def _pull(self, consumer: str, topic: str, queue: int) -> list[str]:
        found: list[str] = []
        while True:
            words = {"topic": topic, "broker": self.client.system.broker_name, "queue": queue, "position": len(found)}
            answer = self.client.call("pull", name=consumer, **words)
            if answer["status"] != "FOUND":
                assert answer["min"] in (0, -1) and answer["max"] in (len(found), -1), answer
                return found
            found += [one["keys"] for one in answer["messages"]]


def queue_files(store: Path) -> dict[str, bytes]:
    """Return the queue files that have a unit, by path: Apache's brokers also create the next one."""
    files = {path.relative_to(store).as_posix(): path.read_bytes() for path in (store / "consumequeue").glob("*/*/*")}
    return {path: content for path, content in files.items() if any(content)}


class Store:
    """One store directory and both brokers for it."""

    def __init__(self, tmp_path: Path, packages: ApachePackages, driver: Driver, version: str) -> None:
        self.path, self.driver = tmp_path / "store", driver
        self.ours = OrbitlogSystem(tmp_path / "ours", self.path, {**SETTINGS, "compat": LINES[version]})
        self.theirs = ApacheSystem(packages, tmp_path / "theirs", self.path, SETTINGS)
        self.expected: Keys = {}

    @contextmanager
    def turn(self, system: System, *, killed: bool = False) -> Iterator[Hands]:
        system.start()
        client = Client(self.driver, system)
        try:
            yield Hands(client, self.expected)
        finally:
            client.close()
            system.kill_broker() if killed else system.stop()

    def kill(self) -> None:
        self.ours.kill()
        self.theirs.kill()


@pytest.fixture
def store_of(
    tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> Iterator[Callable[[str], Store]]:
    made: list[Store] = []

    def get(version: str) -> Store:
        made.append(Store(tmp_path, packages_of(version), driver_of(f"java-{version}"), version))
        return made[-1]

    yield get
    for store in made:
        store.kill()


def live_at_java(hands: Hands) -> None:
    """Leave topics that were deleted, created again, both with fewer queues in use, or never touched."""
    hands.create("Twice", "Spread", "Gone", "Kept")
    hands.send("Kept", "kept", 12, 1)
    hands.send("Twice", "old", 13)
    for label in ("old", "older"):
        for queue in range(4):
            hands.send("Spread", label, 2, queue)
    hands.send("Gone", "gone", 4)
    time.sleep(1)  # dispatched, so that a deletion finds everything
    hands.delete("Twice", "Spread", "Gone")
    hands.create("Twice", "Spread")
    hands.send("Twice", "new", 5)
    hands.send("Spread", "new", 2, 1)
    hands.send("Kept", "later", 3, 0)
    time.sleep(1)


@pytest.mark.parametrize("version", LINES)
def test_deleted_and_recreated_topics_stay_as_they_are_both_ways(
    version: str, store_of: Callable[[str], Store]
) -> None:
    store = store_of(version)
    with store.turn(store.theirs) as hands:
        live_at_java(hands)
        hands.check()
    before = queue_files(store.path)
    assert not [path for path in before if "/Gone/" in path]
    with store.turn(store.ours) as hands:
        hands.check()
    assert queue_files(store.path) == before
    with store.turn(store.ours) as hands:
        hands.send("Twice", "ours", 8)
        hands.send("Spread", "ours", 1, 3)
        hands.delete("Kept")
        hands.create("Kept", "Gone", "Later")
        hands.send("Kept", "again", 2, 1)
        hands.send("Gone", "back", 1)
        hands.send("Later", "later", 3)
        hands.delete("Later")
        # Apache's 4.x broker derives again what comes after the last unit of any queue, deleted topics too.
        hands.send("Kept", "end", 1)
    before = queue_files(store.path)
    with store.turn(store.theirs) as hands:
        hands.check()
    assert queue_files(store.path) == before
    with store.turn(store.theirs) as hands:
        hands.delete("Spread", "Twice")
        hands.create("Twice", "Later")
        hands.send("Twice", "third", 1)
        hands.send("Kept", "theirs", 2, 1)
        hands.check()
    before = queue_files(store.path)
    with store.turn(store.ours) as hands:
        hands.check()
    assert queue_files(store.path) == before


@pytest.mark.parametrize("version", LINES)
def test_recreated_topics_of_a_killed_apache_broker_keep_their_last_life(
    version: str, store_of: Callable[[str], Store]
) -> None:
    store = store_of(version)
    with store.turn(store.theirs, killed=True) as hands:
        live_at_java(hands)
    store.theirs.stop()
    before = queue_files(store.path)
    with store.turn(store.ours) as hands:
        hands.check()
        hands.send("Twice", "ours", 2)
    after = queue_files(store.path)
    assert {path for path in before if "/Twice/" not in path} <= after.keys()
    assert all(after[path] == before[path] for path in before if "/Twice/" not in path)
    with store.turn(store.theirs) as hands:
        hands.check()


def live_many_times(hands: Hands, owner: str) -> None:
    """Delete and create topics several times in a row: longer, shorter and empty lives, one queue or another."""
    for number, (count, queue) in enumerate([(13, 0), (2, 1), (0, 0), (25, 3), (1, 0), (4, 2)]):
        hands.create("Twice", "Spread")
        label = f"{owner}{number}"
        if count:
            hands.send("Twice", label, count)
            hands.send("Spread", label, count, queue)
        hands.send("Kept", label, 1)
        time.sleep(0.5)  # dispatched, so that a deletion finds everything
        hands.delete("Twice", "Spread")
        hands.delete("Spread")  # of a topic that does not exist any more
    hands.create("Twice", "Spread")
    hands.send("Twice", owner, 3)
    hands.send("Spread", owner, 12, 1)
    time.sleep(0.5)


@pytest.mark.parametrize("version", LINES)
def test_topics_deleted_and_recreated_many_times_keep_their_last_life_at_both_brokers(
    version: str, store_of: Callable[[str], Store]
) -> None:
    store = store_of(version)
    for number, system in enumerate((store.theirs, store.ours, store.theirs, store.ours)):
        with store.turn(system, killed=number == 1) as hands:
            hands.check()
            if not number:
                hands.create("Kept")
            else:
                hands.delete("Twice", "Spread")
            live_many_times(hands, f"turn{number}")
            hands.check()
        if system is store.ours:  # after a kill Apache's broker would derive deleted lives, also those of its own
            with store.turn(system) as hands:
                hands.check()
        before = queue_files(store.path)
    with store.turn(store.theirs) as hands:
        hands.check()
    assert queue_files(store.path) == before
