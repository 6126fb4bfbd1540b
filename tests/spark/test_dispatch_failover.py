"""Dispatch on Spark in a replica group: it survives the death of the master, and the queues are those of the log."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import orbitlog
from orbitlog.errors import OrbitlogError
from orbitlog.jobs.check.store_check import check_with
from orbitlog.jobs.local_runner import run_here
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.settings.store_settings import StoreSettings
from tests.support.etcd_servers import EtcdServers
from tests.support.replica_group import SEGMENT_BYTES, ReplicaGroup
from tests.support.serving_process import PROGRAM

TOPIC = "Orders"
SECONDS_MAX = 240


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServers]:
    directory = tmp_path / "etcd"
    directory.mkdir()
    servers = EtcdServers(directory, 1)
    yield servers
    servers.close()


class Drivers:
    """A process of `orbitlog pipeline dispatch` for each member."""

    def __init__(self, group: ReplicaGroup) -> None:
        self._group = group
        self._log = (group.directory / "dispatch.log").open("wb")
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, member: int) -> None:
        command = [*PROGRAM, "pipeline", "dispatch", str(self._group.root(member)), "--master", "local[1]", "--json"]
        self.processes[member] = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def epoch(self, member: int) -> int:
        """Return the epoch of Spark's lease; 0 while Spark does not have it."""
        path = self._group.root(member) / "orbitlog.lease"
        lease = json.loads(path.read_text()) if path.exists() else {"engine": ""}
        return int(lease["epoch"]) if lease["engine"] == "spark" and not lease["isReleased"] else 0

    def kill(self, member: int) -> None:
        process = self.processes[member]
        process.kill()
        process.wait()

    def close(self) -> None:
        for member in self.processes:
            self.kill(member)
        self._log.close()


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < until_s, what
        time.sleep(0.1)


async def send(mq: orbitlog.RocketMQ, numbers: range) -> None:
    """Send each number until it is acknowledged."""
    async with asyncio.timeout(SECONDS_MAX):
        for number in numbers:
            while True:
                try:
                    receipt = await mq.send(TOPIC, str(number))
                except OrbitlogError:
                    await asyncio.sleep(0.1)
                    continue
                if receipt.status is orbitlog.SendStatus.SENT:
                    break


async def read(mq: orbitlog.RocketMQ, count: int) -> set[int]:
    """Return the numbers of a topic, when a count of them can be read."""
    found: set[int] = set()
    async with asyncio.timeout(SECONDS_MAX):
        while len(found) < count:
            async with await mq.read(TOPIC, start="first") as reader:
                while len(found) < count and (message := await reader.next(1)) is not None:
                    found.add(int(message.text))
    return found


def test_dispatch_on_spark_continues_at_the_next_master(etcd: EtcdServers, tmp_path: Path) -> None:
    group = ReplicaGroup(tmp_path, etcd, 2, "dispatchEngine=spark", name="broker-d")
    drivers = Drivers(group)

    async def run() -> None:
        first = (await asyncio.to_thread(group.wait_for, lambda state: len(state.in_sync) == 2)).master
        assert first is not None
        [second] = [member for member in group.members if member != first]
        for member in group.members:
            drivers.start(member)
        async with orbitlog.connect(f"rocketmq://{group.name_server}") as mq:
            await send(mq, range(200))
            await asyncio.to_thread(
                wait_until, lambda: all(map(drivers.epoch, group.members)), "Spark dispatches at both members"
            )
            assert await read(mq, 200) == set(range(200))
            as_slave = drivers.epoch(second)
            group.kill(first)
            drivers.kill(first)
            await send(mq, range(200, 300))
            await asyncio.to_thread(wait_until, lambda: drivers.epoch(second) > as_slave, "Spark at the new master")
            assert await read(mq, 300) == set(range(300))
            assert drivers.processes[second].poll() is None, "it ended with the role of its broker"
            group.start(first)
            drivers.start(first)
            await asyncio.to_thread(group.wait_for, lambda state: len(state.in_sync) == 2)
            await asyncio.to_thread(wait_until, lambda: drivers.epoch(first) > 0, "Spark at the returned master")
            await send(mq, range(300, 320))
            assert await read(mq, 320) == set(range(320))

    try:
        asyncio.run(run())
        for member in group.members:
            group.stop(member)
        settings = StoreSettings({"mappedFileSizeCommitLog": str(SEGMENT_BYTES)})
        for member in group.members:
            [checked] = check_with(run_here, [group.root(member)], settings=settings, split_bytes=SPLIT_BYTES_DEFAULT)
            assert not checked.finding_count, checked.findings
            assert checked.messages >= 320
    finally:
        drivers.close()
        group.close()
