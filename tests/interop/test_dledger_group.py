"""Three brokers in DLedger mode lose their leader under load: all members convert to equal, complete stores."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.storefiles.replicated_log import ReplicatedLog
from orbitlog.storefiles.store_files import find_store_files
from tests.interop.harness.clients import Client
from tests.interop.harness.dledger_group import MEMBERS, DLedgerGroup
from tests.interop.harness.drivers import Driver, Refused
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).with_name("orbitlog")
SMALL = {"mappedFileSizeCommitLog": 1024 * 1024, "mappedFileSizeConsumeQueue": 20 * 1000}
BURST_COUNT = 400
SYNCHRONISED_SECONDS = 25
ELECTED_SECONDS_MAX = 90


def find_leader(client: Client, group: DLedgerGroup, *, other_than: str = "") -> None:
    """Wait until the name server knows a leader, whose broker id is 0."""
    deadline = time.monotonic() + ELECTED_SECONDS_MAX
    while time.monotonic() < deadline:
        rows = re.findall(r"^\S+ +\S+ +(\d+) +(\S+)", client.mqadmin("clusterList"), re.MULTILINE)
        leaders = [group.member_at(address) for number, address in rows if number == "0"]
        if leaders and leaders[0] != other_than:
            group.leader = leaders[0]
            return
        time.sleep(1)
    raise AssertionError("no leader was elected")


def send_until_killed(client: Client, group: DLedgerGroup, topic: str) -> set[str]:
    """Kill the leader amid sends; return the ids that were acknowledged."""
    producer = client.producer(retries=0, timeoutMs=3000)
    sending = client.driver.begin(
        "send", producer=producer, topic=topic, count=100_000, bytesMax=2000, seed=7, events=True
    )
    client.driver.wait(lambda: len(client.driver.events(producer)) > BURST_COUNT, 120, "sends under way")
    group.kill_member(group.leader)
    with pytest.raises(Refused):
        sending(60)
    events = client.driver.events(producer)
    assert {event["message"]["status"] for event in events} == {"SEND_OK"}
    return {event["message"]["msgId"] for event in events}


def convert(store: Path, out: Path) -> dict[str, object]:
    command = [str(PROGRAM), "doctor", "convert", str(store), "--out", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def committed_entries(store: Path) -> list[tuple[int | None, bytes]]:
    with ReplicatedLog.of(find_store_files(store)) as log:
        return [(record.index, record.raw) for record in log.records()]


def log_digest(store: Path) -> list[tuple[str, str]]:
    files = sorted((store / "commitlog").iterdir())
    return [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]


def test_group_that_lost_its_leader_converts_to_equal_stores_with_every_message(
    tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of("4.9.7"), driver_of("java-4.9.7")
    group = DLedgerGroup(packages, tmp_path / "group", SMALL)
    try:
        group.start()
        client = Client(driver, group)
        find_leader(client, group)
        topic = client.topic("Orders")
        time.sleep(SYNCHRONISED_SECONDS)  # followers fetch the topic table every ten seconds
        acknowledged = send_until_killed(client, group, topic)
        killed = group.leader
        find_leader(client, group, other_than=killed)
        client.close()
        client = Client(driver, group)
        more = client.send(client.producer(retries=10, timeoutMs=10_000), topic, count=100, body="after the failover")
        acknowledged |= {one["msgId"] for one in more}
        client.close()
        group.start_member(killed)
        time.sleep(SYNCHRONISED_SECONDS)
        group.stop()
    finally:
        group.kill()
    entries = [committed_entries(group.store_of(name)) for name in MEMBERS]
    assert len(entries[0]) >= len(acknowledged)
    assert entries[0] == entries[1] == entries[2]
    results = [convert(group.store_of(name), tmp_path / f"converted-{name}") for name in MEMBERS]
    assert len({str(result["messages"]) for result in results}) == 1
    digests = [log_digest(tmp_path / f"converted-{name}") for name in MEMBERS]
    assert digests[0] == digests[1] == digests[2]
    served: list[System] = [
        ApacheSystem(packages, tmp_path / "java", tmp_path / "converted-n0", SMALL),
        OrbitlogSystem(tmp_path / "ours", tmp_path / "converted-n1", {**SMALL, "compat": "4.9"}),
        ApacheSystem(packages_of("5.5.0"), tmp_path / "later", tmp_path / "converted-n2", SMALL),
    ]
    for system in served:
        try:
            system.start()
            client = Client(driver, system)
            push = client.push(topic, client.group("readers"))
            push.wait_for(len(acknowledged))
            received = [one["uniqueId"] for one in push.messages]
            assert set(received) >= acknowledged
            assert len(received) == len(set(received))
            client.close()
        finally:
            system.kill()
