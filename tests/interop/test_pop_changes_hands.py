"""Messages not acknowledged by POP consumers when a store moves to Apache's broker and back are redelivered.

Acknowledged plus remaining is everything that was sent, at every step; nothing acknowledged is redelivered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.handover import SMALL
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.raw_pops import PoppedMessage, RawPops
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

# Java saves offsets every five seconds; its stop takes longer, but a pop that is just being stored must be settled.
SETTLE_SECONDS = 6
ARRIVES_SECONDS = 240
LONG_MS = 180_000
QUIET_SECONDS = 12


class Hands:
    """One store, and what its two brokers gave out."""

    def __init__(self, packages: ApachePackages, driver: Driver, directory: Path, settings: dict[str, object]) -> None:
        store = directory / "store"
        self.ours = OrbitlogSystem(directory / "ours", store, {**SMALL, "compat": "5.5", **settings})
        self.theirs = ApacheSystem(packages, directory / "theirs", store, {**SMALL, **settings})
        self._driver = driver
        self._topic = self._group = ""
        self.receipts: dict[str, PoppedMessage] = {}

    @contextmanager
    def at(self, system: System, *, is_killed: bool = False) -> Iterator[tuple[Client, RawPops]]:
        """Serve the store by one of the brokers, and stop it cleanly or by `kill -9`."""
        system.start()
        client = Client(self._driver, system)
        try:
            if not self._topic:
                self._topic, self._group = client.topic("PopHands", queues=1), client.group("pophands")
                client.mqadmin(f"updateSubGroup -b {system.broker_address} -g {self._group}")
            yield client, RawPops(system.broker_address, system.broker_name, self._topic, self._group)
        finally:
            client.close()
            if is_killed:
                system.kill()
            else:
                system.stop()

    def send(self, client: Client, *bodies: str) -> None:
        producer = client.producer()
        for body in bodies:
            client.send(producer, self._topic, body=body)

    def kill(self) -> None:
        self.ours.kill()
        self.theirs.kill()


def popped(pops: RawPops, bodies: set[str], invisible_ms: int = 60_000) -> dict[str, PoppedMessage]:
    """Pop until these came, and nothing else: each once."""
    return _arrived(pops, bodies, invisible_ms, acknowledge=False)


def _arrived(pops: RawPops, bodies: set[str], invisible_ms: int, *, acknowledge: bool) -> dict[str, PoppedMessage]:
    found: list[PoppedMessage] = []
    deadline = time.monotonic() + ARRIVES_SECONDS
    while len(found) < len(bodies) and time.monotonic() < deadline:
        arrived = pops.pop(32, invisible_ms)
        found += arrived
        for one in arrived if acknowledge else ():
            pops.acknowledge(one)
        time.sleep(0.2)
    assert sorted(one.body for one in found) == sorted(bodies)
    return {one.body: one for one in found}


def consume(pops: RawPops, bodies: set[str]) -> dict[str, PoppedMessage]:
    """Pop and acknowledge exactly these, and see that nothing more comes for a while."""
    found = _arrived(pops, bodies, 60_000, acknowledge=True)
    deadline = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < deadline:
        assert [one.body for one in pops.pop()] == []
        time.sleep(0.5)
    return found


@pytest.mark.parametrize("is_v2", [False, True], ids=["retry topic V1", "retry topic V2"])
def test_what_java_gave_out_is_delivered_by_orbitlog_and_back(
    is_v2: bool, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    settings: dict[str, object] = {"enableRetryTopicV2": "true"} if is_v2 else {}
    hands = Hands(packages_of("5.5.0"), driver_of("java-5.5.0"), tmp_path, settings)
    try:
        with hands.at(hands.theirs) as (client, pops):
            hands.send(client, "acked", "batched", "short", "long", "late", "kept", "new")
            # In the retry topic already when the store moves: popped, never acknowledged, revived by Java.
            out = popped(pops, {"acked", "batched", "short", "long", "late", "kept", "new"}, 2_000)
            pops.acknowledge(out["acked"])
            again = popped(pops, {"batched", "short", "long", "late", "kept", "new"}, LONG_MS)
            assert {one.reconsume_times for one in again.values()} == {1}
            pops.acknowledge_all([again["batched"]])
            again["short"] = pops.keep_longer(again["short"], 1_000)
            time.sleep(SETTLE_SECONDS)
        with hands.at(hands.ours) as (_, pops):
            short = popped(pops, {"short"})["short"]
            assert short.topic.startswith("%RETRY%") and ("+" in short.topic) is is_v2
            assert short.reconsume_times == 2
            pops.acknowledge(again["late"])  # by a receipt of Java's
            kept = pops.keep_longer(again["kept"], 5_000)
            assert pops.pop() == []
            new = pops.keep_longer(again["new"], 1_000)
            assert new.receipt != again["new"].receipt
            popped(pops, {"kept", "new"}, 20_000)
            assert kept.body == "kept"
        with hands.at(hands.theirs) as (_, pops):
            # Out at Orbitlog's stop: `short`, `kept`, `new`; out at Java's stop and still invisible: `long`.
            pops.acknowledge(short)
            popped(pops, {"kept", "new"}, 20_000)
            time.sleep(SETTLE_SECONDS)
        with hands.at(hands.ours) as (_, pops):
            consume(pops, {"kept", "new", "long"})
        with hands.at(hands.theirs) as (_, pops):
            consume(pops, set())
    finally:
        hands.kill()


def test_a_killed_orbitlog_leaves_everything_for_java(
    tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    """Nothing is lost, and no message is redelivered whose acknowledgement was saved."""
    hands = Hands(packages_of("5.5.0"), driver_of("java-5.5.0"), tmp_path, {})
    try:
        with hands.at(hands.ours, is_killed=True) as (client, pops):
            hands.send(client, "0", "1", "2", "3")
            out = popped(pops, {"0", "1", "2", "3"})
            pops.acknowledge(out["0"])
            pops.acknowledge(out["2"])
            time.sleep(SETTLE_SECONDS)
        with hands.at(hands.theirs) as (_, pops):
            consume(pops, {"1", "3"})
        with hands.at(hands.ours) as (_, pops):
            consume(pops, set())
    finally:
        hands.kill()


def test_a_batch_in_order_blocks_its_queue_at_the_other_broker(
    tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    hands = Hands(packages_of("5.5.0"), driver_of("java-5.5.0"), tmp_path, {})
    try:
        with hands.at(hands.theirs) as (client, pops):
            hands.send(client, "0", "1", "2", "3")
            first, second = pops.pop(2, 240_000, order=True)
            assert (first.body, second.body) == ("0", "1")
            pops.acknowledge(first)
            time.sleep(SETTLE_SECONDS)
        with hands.at(hands.ours) as (_, pops):
            assert pops.pop(2, order=True) == [], "the queue waits for what is out"
            pops.acknowledge(second)
            third, fourth = pops.pop(2, 240_000, order=True)
            assert (third.body, fourth.body) == ("2", "3")
            pops.acknowledge(third)
        with hands.at(hands.theirs) as (_, pops):
            assert pops.pop(2, order=True) == []
            pops.acknowledge(fourth)
            assert pops.pop(2, order=True) == []
    finally:
        hands.kill()
