"""A store whose first segments retention deleted goes to the other broker: same first offsets, nothing returns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.ledger import Ledger, consume_remaining, deliver_nothing
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.queue_reads import bounds_of
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System
from tests.interop.migration_states import make_group

pytestmark = pytest.mark.interop

SETTINGS = {
    "mappedFileSizeCommitLog": 256 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 50,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "flushConsumerOffsetInterval": 1000,
    "fileReservedTime": 1,
    # How often Java deletes, and lets queues follow; every ten seconds otherwise.
    "cleanResourceInterval": 1000,
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
}
OLD_SECONDS = 3 * 86_400
# Segments that stay: the one that is written to and the one before.
KEPT_SEGMENTS = 2
DELETED_SECONDS_MAX = 120
SETTLE_SECONDS = 3
# After the last segment is deleted until all queues begin later.
QUEUES_FOLLOW_SECONDS = 6


class ShrinkingStore:
    """A topic that retention cuts, and one whose messages all expire."""

    def __init__(self, client: Client, store: Path) -> None:
        self._segments = store / "commitlog"
        self._ledger = Ledger()
        self._topic, self._old = client.topic("Cut", queues=2), client.topic("Expired", queues=1)
        self._groups = {name: make_group(client, name) for name in ("follows", "late", "old")}
        self._ends: dict[str, dict[int, tuple[int, int]]] = {}
        self._ledger.acknowledge(self._old, client.send(client.producer(), self._old, count=5, body="all expire"))

    def fill(self, client: Client) -> None:
        """Send several segments; one group consumes half of them."""
        producer = client.producer()
        for part in range(2):
            sent = client.send(producer, self._topic, count=150, bytes=3000, seed=time.time_ns() % 1_000_000 + part)
            self._ledger.acknowledge(self._topic, sent)
            if part == 0:
                consume_remaining(self._ledger, client, self._topic, self._groups["follows"])

    def age(self) -> None:
        """Make all segments but the last ones older than retention keeps."""
        time.sleep(SETTLE_SECONDS)  # a flush would make a segment young again
        then = time.time() - OLD_SECONDS
        for path in sorted(self._segments.iterdir())[:-KEPT_SEGMENTS]:
            os.utime(path, (then, then))

    def expire(self, client: Client) -> None:
        """Wait until the broker deleted the aged segments, and enter what expired with them."""
        client.mqadmin(f"deleteExpiredCommitLog -b {client.system.broker_address}")
        client.eventually(self._is_young, "aged segments are deleted", DELETED_SECONDS_MAX)
        time.sleep(QUEUES_FOLLOW_SECONDS)
        assert self._ledger.expire(self._topic, bounds_of(client, self._topic)) > 0
        self._ledger.expire(self._old, self._bounds(client)[self._old])

    def remember(self, client: Client) -> None:
        self._ends = self._bounds(client)

    def _bounds(self, client: Client) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the bounds of the queues; those of a queue whose messages all expired begin at its end.

        Java 4.9.7 still answers the first offset that such a queue ever had.
        """
        expired = {queue_id: (end, end) for queue_id, (_, end) in bounds_of(client, self._old).items()}
        return {self._topic: bounds_of(client, self._topic), self._old: expired}

    def check(self, client: Client) -> None:
        """Assert that the queues begin and end where the other broker had them, and that nothing expired is back."""
        assert self._bounds(client) == self._ends
        self._ledger.check_queues(client, self._topic)
        deliver_nothing(client, self._old, self._groups["old"])
        consume_remaining(self._ledger, client, self._topic, self._groups["late"])
        consume_remaining(self._ledger, client, self._topic, self._groups["follows"])
        [sent] = client.send(client.producer(), self._old, body="continues")
        assert sent["queueOffset"] == self._ends[self._old][0][1], "offsets continue after all messages expired"
        self._ledger.acknowledge(self._old, [sent])
        consume_remaining(self._ledger, client, self._old, self._groups["old"])

    def _is_young(self) -> bool:
        return all(time.time() - path.stat().st_mtime < OLD_SECONDS / 2 for path in self._segments.iterdir())


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_store_with_deleted_segments_keeps_its_first_offsets(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of(version), driver_of(f"java-{version}")
    ours = OrbitlogSystem(tmp_path / "ours", tmp_path / "store", {**SETTINGS, "compat": version[:3]})
    theirs = ApacheSystem(packages, tmp_path / "theirs", tmp_path / "store", SETTINGS)
    store: ShrinkingStore | None = None

    def turn(system: System, use: Callable[[Client, ShrinkingStore], None]) -> None:
        nonlocal store
        system.start()
        client = Client(driver, system)
        try:
            store = store or ShrinkingStore(client, tmp_path / "store")
            use(client, store)
            store.remember(client)
            time.sleep(SETTLE_SECONDS)
        finally:
            client.close()
            system.stop()

    def check_fill_and_expire(client: Client, store: ShrinkingStore) -> None:
        store.check(client)
        store.fill(client)
        store.age()
        store.expire(client)

    def fill_and_expire(client: Client, store: ShrinkingStore) -> None:
        store.fill(client)
        store.age()
        store.expire(client)

    try:
        turn(theirs, fill_and_expire)
        turn(ours, check_fill_and_expire)
        turn(theirs, check_fill_and_expire)
        turn(ours, lambda client, store: store.check(client))
    finally:
        ours.kill()
        theirs.kill()
