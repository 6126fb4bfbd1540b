"""A store whose broker was killed amid sends goes to the other broker: what was acknowledged is there, once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver, Refused
from tests.interop.harness.ledger import Ledger, consume_remaining
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System
from tests.interop.migration_settings import SETTINGS
from tests.interop.migration_states import COMMIT, LEVEL_PENDING, UNKNOWN, make_group

pytestmark = pytest.mark.interop

BURST_COUNT = 300
# Both brokers save offsets every second here.
SAVED_SECONDS = 4


class KilledStore:
    """Topics and groups whose brokers are killed in turn."""

    def __init__(self, client: Client) -> None:
        self._ledger = Ledger()
        self._topics = {name: client.topic(name, queues=2) for name in ("Burst", "Later", "Half")}
        self._groups = {name: make_group(client, name) for name in self._topics}

    def consume(self, client: Client) -> None:
        """Consume everything that earlier brokers left, once."""
        self._half(client, COMMIT)  # a producer that never sent is not asked
        for name, topic in self._topics.items():
            # Offsets and delays were saved before the kill, so not even a kill delivers twice.
            consume_remaining(self._ledger, client, topic, self._groups[name], quiet_seconds=5, awaits_commit=True)
        self._ledger.check_queues(client, self._topics["Burst"])

    def leave_and_kill(self, client: Client) -> None:
        """Send messages that wait, then kill the broker amid sends."""
        later = client.send(client.producer(), self._topics["Later"], count=3, body="later", delayLevel=LEVEL_PENDING)
        self._ledger.acknowledge(self._topics["Later"], later, is_direct=False)
        client.end(self._half(client, UNKNOWN))
        time.sleep(SAVED_SECONDS)
        producer, topic = client.producer(retries=0, timeoutMs=3000), self._topics["Burst"]
        sending = client.driver.begin(
            "send", producer=producer, topic=topic, count=100_000, bytesMax=2000, seed=time.time_ns(), events=True
        )
        client.driver.wait(lambda: len(client.driver.events(producer)) > BURST_COUNT, 120, "sends under way")
        client.system.kill_broker()
        with pytest.raises(Refused):
            sending(60)
        self._ledger.acknowledge(topic, [event["message"] for event in client.driver.events(producer)])
        self._ledger.interrupt(topic)

    def _half(self, client: Client, first: str) -> str:
        producer = client.producer("transactionalProducer", group="killed_producers")
        words = {"verb": "sendInTransaction", "count": 3, "body": "half", "first": first, "checked": COMMIT}
        sent = client.send(producer, self._topics["Half"], **words)
        self._ledger.acknowledge(self._topics["Half"], sent, is_direct=False)
        return producer


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_store_of_a_killed_broker_loses_nothing_at_the_other(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of(version), driver_of(f"java-{version}")
    ours = OrbitlogSystem(tmp_path / "ours", tmp_path / "store", {**SETTINGS, "compat": version[:3]})
    theirs = ApacheSystem(packages, tmp_path / "theirs", tmp_path / "store", SETTINGS)
    brokers: list[System] = [theirs, ours, theirs, ours]
    store: KilledStore | None = None
    try:
        for number, system in enumerate(brokers):
            system.start()
            client = Client(driver, system)
            store = store or KilledStore(client)
            store.consume(client)
            if number < len(brokers) - 1:
                store.leave_and_kill(client)
            client.close()
            system.kill()
    finally:
        ours.kill()
        theirs.kill()
