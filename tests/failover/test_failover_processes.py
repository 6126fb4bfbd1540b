"""Five failovers of real processes with 10,000 acknowledged sends each; `make failover` runs it.

The short form is in tests/integration/replication/group.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.etcd_servers import EtcdServers
from tests.support.replica_group import GroupLedger, ReplicaGroup, check_ledger

ROUND_MESSAGES = int(os.environ.get("ORBITLOG_FAILOVER_MESSAGES", "0"))
pytestmark = [
    pytest.mark.skipif(not ROUND_MESSAGES, reason="takes minutes: `make failover` runs it"),
    pytest.mark.xdist_group("etcd"),
]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServers]:
    directory = tmp_path / "etcd"
    directory.mkdir()
    servers = EtcdServers(directory, 3)
    yield servers
    servers.close()


def kill_master(group: ReplicaGroup, etcd: EtcdServers) -> None:
    master = group.master
    group.kill(master)
    group.wait_for(lambda state: state.master != master)
    group.start(master)


def pause_master(group: ReplicaGroup, etcd: EtcdServers) -> None:
    """Pause the master until another one serves: a zombie."""
    master = group.master
    group.pause(master)
    group.wait_for(lambda state: state.master != master)
    time.sleep(2)
    group.resume(master)


def kill_two_masters(group: ReplicaGroup, etcd: EtcdServers) -> None:
    """Kill the master, and its successor while that is being promoted."""
    first = group.master
    group.kill(first)
    second = group.wait_for(lambda state: state.master not in (None, first)).master
    assert second is not None
    group.kill(second)
    group.start(first)
    group.start(second)


def kill_etcd_and_master(group: ReplicaGroup, etcd: EtcdServers) -> None:
    etcd.kill(0)
    kill_master(group, etcd)


def pause_etcd(group: ReplicaGroup, etcd: EtcdServers) -> None:
    """Pause the rest of etcd for longer than a lease, then stop the master."""
    for index in (1, 2):
        etcd.pause(index)
    time.sleep(8)
    for index in (1, 2):
        etcd.resume(index)
    master = group.master
    group.stop(master)
    group.wait_for(lambda state: state.master != master)
    group.start(master)


FAULTS: tuple[Callable[[ReplicaGroup, EtcdServers], None], ...] = (
    kill_master,
    pause_master,
    kill_two_masters,
    kill_etcd_and_master,
    pause_etcd,
)


@pytest.mark.parametrize(
    "setting", ["flushDiskType=ASYNC_FLUSH", "flushDiskType=SYNC_FLUSH", "brokerRole=ASYNC_MASTER"]
)
def test_no_acknowledged_message_is_lost_over_five_failovers(etcd: EtcdServers, tmp_path: Path, setting: str) -> None:
    """An asynchronous master loses exactly what members gave up and kept."""
    is_synchronous = "ASYNC_MASTER" not in setting
    group = ReplicaGroup(tmp_path, etcd, 3, setting, "mappedFileSizeCommitLog=4194304")
    ledger = GroupLedger(group, producers=32)
    chance = random.Random(1)

    def script(ledger: GroupLedger) -> None:
        for fault in FAULTS:
            group.wait_for(lambda state: len(state.in_sync) == 3)
            ledger.wait_for(ROUND_MESSAGES // 2 + chance.randrange(100))
            acknowledged = len(ledger.acknowledged)
            fault(group, etcd)
            ledger.wait_for(ROUND_MESSAGES // 2)
            print(f"{fault.__name__}: {ledger.longest_pause_s(acknowledged):.1f} s without an acknowledged send")
        group.wait_for(lambda state: len(state.in_sync) == 3)

    try:
        asyncio.run(ledger.run(script))
        lost = check_ledger(group, ledger, is_synchronous=is_synchronous)
        assert not (lost and is_synchronous)
        print(f"{len(ledger.acknowledged)} acknowledged, {len(ledger.failures)} failed sends,", end=" ")
        print(f"{len(lost)} lost, each in a kept tail ({setting})")
    finally:
        group.close()
