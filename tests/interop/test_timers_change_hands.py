"""Messages that wait while the store goes to Apache's broker and back: each comes once, on time or late."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.handover import SMALL
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

RECALLED_SECONDS = 45
SETTLE_SECONDS = 6  # Java's broker writes positions down every five seconds


def test_each_comes_once(
    tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of("5.5.0"), driver_of("java-5.5.0")
    store = tmp_path / "store"
    ours = OrbitlogSystem(tmp_path / "ours", store, {**SMALL, "compat": "5.5"})
    theirs = ApacheSystem(packages, tmp_path / "theirs", store, SMALL)
    topic = group = ""
    seen: Counter[str] = Counter()
    began = time.time()

    def turn(system: System, sent: dict[str, int], awaited: set[str], *, rest: bool = False) -> None:
        """Serve; send messages for some seconds after the beginning, and wait for some that were sent before."""
        nonlocal topic, group
        system.start()
        client = Client(driver, system)
        try:
            if not topic:
                topic, group = client.topic("TimedHands", queues=1), client.group("timedhands")
            push = client.push(topic, group)
            producer = client.producer()
            for body, seconds in sent.items():
                client.send(producer, topic, body=body, **{"system.TIMER_DELIVER_MS": int((began + seconds) * 1000)})
            push.wait(lambda: awaited <= {one["body"] for one in push.messages}, 150, f"{awaited}")
            time.sleep(SETTLE_SECONDS * (2 if rest else 1))
            seen.update(one["body"] for one in push.messages)
            push.close()
        finally:
            client.close()
            system.stop()

    try:
        turn(ours, {"a": 15, "b": 60, "c": 150, "d": 14}, {"a", "d"})
        assert time.time() < began + 55, "the machine is too slow for this test"
        turn(theirs, {"e": 151, "f": 62}, {"b", "f"})
        assert time.time() < began + 145, "the machine is too slow for this test"
        turn(ours, {}, {"c", "e"}, rest=True)
        turn(theirs, {}, set(), rest=True)
        assert seen == dict.fromkeys("abcdef", 1)
    finally:
        ours.kill()
        theirs.kill()


@pytest.mark.parametrize(("ours_names_topic", "delivered"), [("true", {"kept"}), ("false", {"kept", "recalled"})])
def test_recall_holds_at_apache_broker_that_looks_for_the_topic_in_its_key(
    ours_names_topic: str,
    delivered: set[str],
    tmp_path: Path,
    packages_of: Callable[[str], ApachePackages],
    driver_of: Callable[[str], Driver],
) -> None:
    """Both brokers need the same appendTopicForTimerDeleteKey."""
    packages, driver, store = packages_of("5.5.0"), driver_of("java-5.5.0"), tmp_path / "store"
    key = "appendTopicForTimerDeleteKey"
    ours = OrbitlogSystem(tmp_path / "ours", store, {**SMALL, "compat": "5.5", key: ours_names_topic})
    theirs = ApacheSystem(packages, tmp_path / "theirs", store, {**SMALL, key: "true"})
    try:
        ours.start()
        client = Client(driver, ours)
        topic, group, producer = client.topic("RecalledHands", queues=1), client.group("recalled"), client.producer()
        due_ms = int((time.time() + RECALLED_SECONDS) * 1000)
        words = {"system.TIMER_DELIVER_MS": due_ms}
        [recalled] = client.send(producer, topic, body="recalled", **words)
        client.send(producer, topic, body="kept", **words)
        client.call("recall", producer=producer, topic=topic, handle=recalled["recallHandle"])
        client.close()
        ours.stop()
        theirs.start()
        assert time.time() * 1000 < due_ms, "the machine is too slow for this test"
        client = Client(driver, theirs)
        push = client.push(topic, group)
        push.wait(lambda: "kept" in {one["body"] for one in push.messages}, 150, "the message that was not recalled")
        time.sleep(SETTLE_SECONDS)
        assert {one["body"] for one in push.messages} == delivered
        client.close()
    finally:
        ours.kill()
        theirs.kill()
