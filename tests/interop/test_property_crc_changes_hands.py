"""A store with property CRCs (`enabledAppendPropCRC`, `forceVerifyPropCRC`) that goes from Java to Orbitlog and back.

A Java broker that verifies deletes the log, when it starts, from the first record without a right one. So each kind of
message is stored by each broker, and after each turn every record of the log must carry the bytes that Java's broker
would have given it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitlog.formats.records.message import Message, encode_message
from orbitlog.formats.records.message_scan import scan_messages
from orbitlog.formats.records.properties import append_crc_property
from orbitlog.formats.records.property_crc import ends_with_crc
from orbitlog.store.log.property_crc_mode import find_records_without_crc
from orbitlog.storefiles.store_files import find_store_files
from tests.interop.handover import SMALL
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

CRC = {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
SETTLE_SECONDS = 6  # Java's broker writes positions down every five seconds


def records(store: Path) -> Iterator[Message]:
    for segment in find_store_files(store).segments:
        found = scan_messages(segment.path.read_bytes(), base_physical_offset=segment.base)
        yield from (record for record in found if isinstance(record, Message))


def check_log(store: Path) -> Counter[str]:
    """Expect the property CRC at the end of every record; returns how many records each topic has."""
    counts: Counter[str] = Counter()
    for record in records(store):
        raw = encode_message(record)
        assert ends_with_crc(record.properties_raw), record
        assert raw[-20:] == append_crc_property(raw[:-20]), record
        assert record.properties_raw.count(b"__CRC32#") == 1, record
        counts[record.topic] += 1
    return counts


def send_every_kind(client: Client, topic: str, mark: str) -> set[str]:
    """Let the broker store plain, batched, delayed, timed, transactional, retried and popped messages."""
    producer = client.producer()
    for count in (1, 20):  # the first opens the fast path for the others
        client.send(producer, topic, count=count, body=f"plain {count} {mark}", keys=f"{mark}-{{}}", tags="T")
    client.send(producer, topic, verb="batch", count=7, body=f"batch {mark}")
    client.send(producer, topic, body=f"delayed {mark}", delayLevel=1)
    client.send(producer, topic, body=f"timed {mark}", **{"system.TIMER_DELIVER_MS": int((time.time() + 3) * 1000)})
    transactional = client.producer("transactionalProducer", group=client.group("transactional"))
    for _ in range(3):
        client.send(
            transactional, topic, verb="sendInTransaction", body=f"committed {mark}", first="COMMIT_MESSAGE", count=2
        )
    client.send(transactional, topic, verb="sendInTransaction", body=f"no {mark}", first="ROLLBACK_MESSAGE")
    time.sleep(1)
    expected = {f"plain 1 {mark}", f"delayed {mark}", f"timed {mark}"}
    expected |= {f"plain 20 {mark} {number}" for number in range(20)}
    expected |= {f"batch {mark} {number}" for number in range(7)}
    return expected | {f"committed {mark} {number}" for number in range(2)}


def consume_with_retries(client: Client, topic: str, group: str, expected: set[str]) -> None:
    """Take all messages, each refused once: the broker stores them again, in the retry topic."""
    push = client.push(topic, group, refuse=1, refuseTag="T", retryLevel=1)
    push.wait(
        lambda: {one["body"] for one in push.messages if not one["refused"]} >= expected,
        120,
        f"{len(expected)} messages",
    )
    push.close()


# Where the lines were lost, the last records of the log are reason enough.
@pytest.mark.parametrize("settings", [CRC, {}], ids=["keys-given", "keys-lost"])
def test_property_crc_survives_each_change_of_hands(
    settings: dict[str, str],
    tmp_path: Path,
    packages_of: Callable[[str], ApachePackages],
    driver_of: Callable[[str], Driver],
) -> None:
    packages, driver = packages_of("5.5.0"), driver_of("java-5.5.0")
    store = tmp_path / "store"
    java = ApacheSystem(packages, tmp_path / "java", store, {**SMALL, **CRC})
    orbitlog = OrbitlogSystem(tmp_path / "orbitlog", store, {**SMALL, **settings, "compat": "5.5"})
    topic = ""
    everything: set[str] = set()
    log_sizes: list[int] = []

    def turn(system: System, mark: str) -> None:
        nonlocal topic
        system.start()
        client = Client(driver, system)
        group = f"sealed_{mark}_{client.mark}"
        try:
            topic = topic or client.topic("Sealed", queues=2)
            everything.update(send_every_kind(client, topic, mark))
            # All of it, from the first turn on: a group that starts now begins at the first offset.
            consume_with_retries(client, topic, group, everything)
            time.sleep(SETTLE_SECONDS)
        finally:
            client.close()
            system.stop()
        counts = check_log(store)
        assert find_records_without_crc(find_store_files(store).segments).count == 0
        log_sizes.append(sum(counts.values()))
        assert {"SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"} <= set(counts), counts
        assert counts[f"%RETRY%{group}"] >= 21, counts

    try:
        turn(java, "one")
        turn(orbitlog, "two")
        turn(java, "three")
        assert log_sizes == sorted(set(log_sizes)), "no turn may begin with a shorter log"
    finally:
        java.kill()
        orbitlog.kill()
