"""The operating guide of docs/replication.md, executed: settings files, members that come and go, lost nodes."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.etcd_servers import EtcdServers
from tests.support.free_ports import free_port
from tests.support.replica_group import NAME, SECONDS_MAX, SEGMENT_BYTES, GroupLedger, ReplicaGroup, check_ledger
from tests.support.serving_process import PROGRAM

pytestmark = pytest.mark.xdist_group("etcd")

ROUND_MESSAGES = 60


class GuideGroup(ReplicaGroup):
    """Members on addresses of their own, each with the settings file of the guide; two name servers."""

    def command(self, member: int) -> tuple[str, ...]:
        host, (port, ha_port) = f"127.0.3.{member}", self.ports[member]
        settings = {
            "brokerName": self.name,
            "replicaCoordinator": self.coordinator,
            "replicaMemberId": member,
            "haMembers": "127.0.0.0/8",
            "namesrvAddr": self.name_server,
            "bindAddress": host,
            "brokerIP1": host,
            "listenPort": port,
            "haListenPort": ha_port,
            "mappedFileSizeCommitLog": SEGMENT_BYTES,
        }
        path = self.directory / f"broker-{member}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return ("broker", "-c", str(path), "--store", str(self.root(member)), "--json")

    def add(self, member: int) -> None:
        self.members = range(1, member + 1)
        self.ports[member] = (free_port(), free_port())
        self.start(member)

    def orbitlog(self, *words: str) -> subprocess.CompletedProcess[str]:
        name_servers = self.name_server.replace(";", ",")
        command = [*PROGRAM, *words, "-n", name_servers, "--json"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)

    def rows(self, *words: str) -> list[dict[str, Any]]:
        done = self.orbitlog(*words)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def wait_until_in_sync(self, *members: int) -> list[dict[str, Any]]:
        """Wait until `replica status` exits with 0 and these members are in sync, one of them the master."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            done = self.orbitlog("replica", "status", self.name)
            rows = [json.loads(line) for line in done.stdout.splitlines()]
            in_sync = sorted(row["memberId"] for row in rows if row["inSync"] is True)
            if done.returncode == 0 and in_sync == sorted(members):
                assert [row["role"] for row in rows].count("master") == 1, rows
                return rows
            assert time.monotonic() < deadline, f"{done.stdout}{done.stderr}\n{self.log_text()}"
            time.sleep(0.2)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[GuideGroup]:
    directory = tmp_path / "etcd"
    directory.mkdir()
    etcd = EtcdServers(directory, 3)
    group = GuideGroup(tmp_path, etcd, 3, name_servers=2)
    yield group
    group.close()
    etcd.close()


def other_than(group: GuideGroup, *members: int) -> int:
    return next(member for member in group.members if member not in members)


def add_and_remove_a_member(group: GuideGroup, ledger: GroupLedger) -> None:
    group.add(4)
    group.wait_until_in_sync(1, 2, 3, 4)
    group.rows("replica", "handover", NAME, "--to", "4")
    ledger.wait_for(ROUND_MESSAGES)
    group.rows("replica", "handover", NAME, "--to", "1")
    group.stop(4)
    group.wait_until_in_sync(1, 2, 3)
    members = {row["memberId"]: row for row in group.rows("replica", "members", NAME)}
    assert (members[4]["alive"], members[4]["inSync"]) == (False, False)
    ledger.wait_for(ROUND_MESSAGES)


def upgrade(group: GuideGroup, ledger: GroupLedger) -> None:
    master = group.master
    for member in (1, 2, 3):
        if member != master:
            group.stop(member)
            group.start(member)
            group.wait_until_in_sync(1, 2, 3)
    [elected] = group.rows("replica", "handover", NAME, "--to", str(other_than(group, master)))
    assert elected["memberId"] != master
    group.stop(master)
    group.start(master)
    group.wait_until_in_sync(1, 2, 3)
    ledger.wait_for(ROUND_MESSAGES)


def lose_a_node(group: GuideGroup, ledger: GroupLedger, member: int) -> None:
    """Kill a member, delete its store, and start it again with an empty one, at once."""
    group.kill(member)
    shutil.rmtree(group.root(member))
    group.start(member)
    group.wait_until_in_sync(1, 2, 3)
    ledger.wait_for(ROUND_MESSAGES)


def lose_a_name_server_and_the_master(group: GuideGroup, ledger: GroupLedger) -> None:
    master = group.master
    group.kill_name_server(0)
    group.kill(master)
    group.wait_for(lambda state: state.master not in (None, master))
    ledger.wait_for(ROUND_MESSAGES)
    group.start(master)
    group.wait_until_in_sync(1, 2, 3)


def force_an_election(group: GuideGroup) -> None:
    """All in-sync members are lost for good: the rest lacks messages, and is elected by command only."""
    for member in (1, 2, 3):
        group.start(member)
    group.wait_until_in_sync(1, 2, 3)
    master = group.master
    survivor = other_than(group, master, 4)
    lost = [member for member in (1, 2, 3) if member != survivor]
    group.stop(survivor)
    ledger = GroupLedger(group, "Lost", 2)
    asyncio.run(ledger.run(lambda ledger: ledger.wait_for(10)))
    for member in lost:
        group.kill(member)
        shutil.rmtree(group.root(member))
    group.start(survivor)
    done = group.orbitlog("replica", "elect", NAME, "--member", str(survivor))
    assert done.returncode == 2, "a forced election needs both flags"
    assert "--accept-loss" in done.stderr
    deadline = time.monotonic() + SECONDS_MAX
    address = f"127.0.3.{survivor}:{group.ports[survivor][0]}"
    force = ("replica", "elect", NAME, "--member", str(survivor), "--force", "--accept-loss", "--address", address)
    while (done := group.orbitlog(*force)).returncode:
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.5)
    [elected] = [json.loads(line) for line in done.stdout.splitlines()]
    assert elected["memberId"] == survivor
    for member in lost:
        group.start(member)
    group.wait_until_in_sync(1, 2, 3)


def test_guide_keeps_every_acknowledged_message(group: GuideGroup) -> None:
    group.wait_until_in_sync(1, 2, 3)
    group.rows("topic", "create", "Ledger", "--queues", "4")
    ledger = GroupLedger(group)

    def script(ledger: GroupLedger) -> None:
        ledger.wait_for(ROUND_MESSAGES)
        add_and_remove_a_member(group, ledger)
        upgrade(group, ledger)
        lose_a_node(group, ledger, other_than(group, group.master))
        lose_a_node(group, ledger, group.master)
        lose_a_name_server_and_the_master(group, ledger)

    asyncio.run(ledger.run(script))
    group.members = range(1, 4)  # the fourth one has left
    check_ledger(group, ledger)
    force_an_election(group)
    assert group.orbitlog("replica", "status", "no-such-group").returncode == 1
