"""Hosts that run a broker and an etcd server, and fail: the master and etcd's leader stop at the same time.

etcd elects a leader, which extends all leases, and the group a master. Longer in `make failover`.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.etcd_servers import EtcdServers
from tests.support.replica_group import GroupLedger, ReplicaGroup, check_ledger

ROUNDS = 6 if int(os.environ.get("ORBITLOG_FAILOVER_MESSAGES", "0")) else 1
ROUND_MESSAGES = 100
pytestmark = pytest.mark.xdist_group("etcd")


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServers]:
    directory = tmp_path / "etcd"
    directory.mkdir()
    servers = EtcdServers(directory, 3, has_default_times=True)
    yield servers
    for index in range(3):
        servers.resume(index)
    servers.close()


def kill_host(group: ReplicaGroup, etcd: EtcdServers) -> Callable[[], None]:
    """Kill the master and the leader of etcd; return what starts them again."""
    master, leader = group.master, etcd.leader()
    group.kill(master, etcd.processes[leader])

    def restart() -> None:
        etcd.restart(leader)
        group.start(master)

    return restart


def pause_etcd_and_kill_master(group: ReplicaGroup, etcd: EtcdServers) -> Callable[[], None]:
    """Leave connections to the leader of etcd open, on which nothing is answered."""
    master, leader = group.master, etcd.leader()
    etcd.pause(leader)
    group.kill(master)

    def restart() -> None:
        etcd.resume(leader)
        group.start(master)

    return restart


def pause_host(group: ReplicaGroup, etcd: EtcdServers) -> Callable[[], None]:
    """Pause the master and the leader of etcd: no connection is closed, and both return as they were."""
    master, leader = group.master, etcd.leader()
    etcd.pause(leader)
    group.pause(master)

    def resume() -> None:
        group.resume(master)
        etcd.resume(leader)

    return resume


@pytest.mark.parametrize("fault", [kill_host, pause_etcd_and_kill_master, pause_host])
def test_group_and_etcd_fail_over_at_once(
    etcd: EtcdServers, tmp_path: Path, fault: Callable[[ReplicaGroup, EtcdServers], Callable[[], None]]
) -> None:
    group = ReplicaGroup(tmp_path, etcd)
    ledger = GroupLedger(group)
    pauses_s = []

    def script(ledger: GroupLedger) -> None:
        chance = random.Random(fault.__name__)
        for _ in range(ROUNDS):
            group.wait_for(lambda state: len(state.in_sync) == 3)
            ledger.wait_for(ROUND_MESSAGES)
            time.sleep(chance.uniform(0, 1))  # not in step with renewals of leases
            master, acknowledged = group.master, len(ledger.acknowledged)
            end = fault(group, etcd)
            group.wait_for(lambda state, old=master: state.master not in (None, old))  # type: ignore[misc]
            ledger.wait_for(ROUND_MESSAGES)
            pauses_s.append(ledger.longest_pause_s(acknowledged))
            end()
        group.wait_for(lambda state: len(state.in_sync) == 3)

    try:
        asyncio.run(ledger.run(script))
        check_ledger(group, ledger)
    finally:
        group.close()
    print(f"{fault.__name__}: {statistics.median(pauses_s):.1f} s without an acknowledged send", end=" ")
    print(f"(median of {len(pauses_s)}), longest {max(pauses_s):.1f} s")


def test_leader_changes_of_etcd_leave_the_master_in_office(etcd: EtcdServers, tmp_path: Path) -> None:
    """Leases are extended by each leader; sends continue meanwhile."""
    group = ReplicaGroup(tmp_path, etcd)
    ledger = GroupLedger(group)

    def script(ledger: GroupLedger) -> None:
        group.wait_for(lambda state: len(state.in_sync) == 3)
        ledger.wait_for(ROUND_MESSAGES)
        before = group.snapshot().state
        assert before is not None
        for _ in range(ROUNDS):
            for is_killed in (True, False):
                leader, acknowledged = etcd.leader(), len(ledger.acknowledged)
                (etcd.kill if is_killed else etcd.pause)(leader)
                time.sleep(6)  # longer than an election and a lease
                (etcd.restart if is_killed else etcd.resume)(leader)
                assert len(ledger.acknowledged) > acknowledged
                after = group.wait_for(lambda state: state.master is not None)
                assert (after.master, after.epoch) == (before.master, before.epoch)

    try:
        asyncio.run(ledger.run(script))
        check_ledger(group, ledger)
    finally:
        group.close()
