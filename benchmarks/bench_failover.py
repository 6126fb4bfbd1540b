"""Failover of a replica group with three etcd servers: from the fault to the first acknowledged send.

The servers of etcd have its default times. A host fails as a whole: its broker is the master, its etcd server leads.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import orbitlog
from benchmarks.measure import Reading, Report
from orbitlog.errors import OrbitlogError
from tests.support.etcd_servers import EtcdServers
from tests.support.replica_group import ReplicaGroup

_SECONDS_MAX = 8.0
_GROUP = "Failover of a group of three with etcd, Orbitlog's client"
_TOPIC = "Failover"

Restore = Callable[[], None]


def run(report: Report, *, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitlog-failover-") as temporary:
        directory = Path(temporary)
        (directory / "etcd").mkdir()
        etcd = EtcdServers(directory / "etcd", 3, has_default_times=True)
        group = ReplicaGroup(directory, etcd)
        try:
            for name, fault in _FAULTS.items():
                seconds = [_measure(group, etcd, fault) for _ in range(rounds)]
                median = statistics.median(seconds)
                report.read(Reading(_GROUP, f"{name} to first acknowledged send, median", median, "s", _SECONDS_MAX))
                longest = max(seconds)
                report.read(Reading(_GROUP, f"{name} to first acknowledged send, longest", longest, "s", _SECONDS_MAX))
        finally:
            for index in range(3):
                etcd.resume(index)
            group.close()
            etcd.close()


def _kill_master(group: ReplicaGroup, _: EtcdServers) -> Restore:
    master = group.master
    group.kill(master)
    return lambda: group.start(master)


def _kill_host(group: ReplicaGroup, etcd: EtcdServers) -> Restore:
    master, leader = group.master, etcd.leader()
    group.kill(master, etcd.processes[leader])

    def restore() -> None:
        etcd.restart(leader)
        group.start(master)

    return restore


def _pause_host(group: ReplicaGroup, etcd: EtcdServers) -> Restore:
    """Leave all connections open, as if the network of the host were cut."""
    master, leader = group.master, etcd.leader()
    etcd.pause(leader)
    group.pause(master)

    def restore() -> None:
        group.resume(master)
        etcd.resume(leader)

    return restore


_FAULTS: dict[str, Callable[[ReplicaGroup, EtcdServers], Restore]] = {
    "kill": _kill_master,
    "kill of the host of master and etcd's leader": _kill_host,
    "pause of that host": _pause_host,
}


def _measure(group: ReplicaGroup, etcd: EtcdServers, fault: Callable[[ReplicaGroup, EtcdServers], Restore]) -> float:
    group.wait_for(lambda state: len(state.in_sync) == 3 and state.master is not None)
    seconds, restore = asyncio.run(_seconds_without_master(group, lambda: fault(group, etcd)))
    restore()
    return seconds


async def _seconds_without_master(group: ReplicaGroup, fault: Callable[[], Restore]) -> tuple[float, Restore]:
    """Send one message after the other; return the longest time without an acknowledgement, and what ends the fault."""
    async with orbitlog.connect(f"rocketmq://{group.name_server}") as mq:
        await mq.send(_TOPIC, "before")
        acknowledged_s = [time.perf_counter()]
        failing = asyncio.create_task(asyncio.to_thread(fault))
        is_over = False
        while not is_over:
            has_failed = failing.done()
            try:
                receipt = await mq.send(_TOPIC, "after")
            except OrbitlogError:
                await asyncio.sleep(0.02)
                continue
            if receipt.status is orbitlog.SendStatus.SENT:
                acknowledged_s.append(time.perf_counter())
                is_over = has_failed
        return max(after - before for before, after in pairwise(acknowledged_s)), await failing
