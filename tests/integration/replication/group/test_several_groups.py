"""Two replica groups of one cluster with two name servers: one fails over while the other takes the sends."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import orbitlog
from orbitlog.errors import OrbitlogError
from tests.support.etcd_servers import EtcdServers
from tests.support.replica_group import SECONDS_MAX, ReplicaGroup

pytestmark = pytest.mark.xdist_group("etcd")

TOPIC = "Spread"
FOUND_WITHIN_S = 1.0
# From the registration until the test sees it, and for a send, on a busy machine.
MARGIN_S = 2.0

Acknowledged = dict[str, set[int]]


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[tuple[ReplicaGroup, ReplicaGroup]]:
    directories = [tmp_path / name for name in ("etcd", "a", "b")]
    for directory in directories:
        directory.mkdir()
    etcd = EtcdServers(directories[0], 1)
    first = ReplicaGroup(directories[1], etcd, 2, name="broker-a", name_servers=2)
    second = ReplicaGroup(directories[2], etcd, 2, name="broker-b", name_servers=first)
    yield first, second
    second.close()
    first.close()
    etcd.close()


class Sender:
    """Sends numbers one after the other, and keeps which group acknowledged each."""

    def __init__(self, mq: orbitlog.RocketMQ) -> None:
        self._mq = mq
        self._number = 0
        self.acknowledged: Acknowledged = {"broker-a": set(), "broker-b": set()}

    async def send(self) -> str:
        """Send one number; return the group that has acknowledged it, or an empty text."""
        self._number += 1
        try:
            receipt = await self._mq.send(TOPIC, str(self._number))
        except OrbitlogError:
            await asyncio.sleep(0.02)
            return ""
        if receipt.status is not orbitlog.SendStatus.SENT:
            return ""
        self.acknowledged[receipt.queue.broker_name].add(self._number)
        return receipt.queue.broker_name

    async def send_until(self, name: str, count: int) -> None:
        """Send until a group has acknowledged so many messages more."""
        wanted = len(self.acknowledged[name]) + count
        async with asyncio.timeout(SECONDS_MAX):
            while len(self.acknowledged[name]) < wanted:
                await self.send()


async def fail_over(mq: orbitlog.RocketMQ, first: ReplicaGroup, second: ReplicaGroup) -> Sender:
    await mq.admin.create_topic(TOPIC, 2)
    sender = Sender(mq)
    for name in sender.acknowledged:
        await sender.send_until(name, 20)
    master = await asyncio.to_thread(lambda: first.master)
    first.kill(master)
    first.kill_name_server(0)
    await sender.send_until("broker-b", 20)
    [heir] = [member for member in first.members if member != master]
    address = f"127.0.0.1:{first.ports[heir][0]}"
    async with asyncio.timeout(SECONDS_MAX):
        while (await mq.admin.brokers()).get("broker-a") != address:
            await sender.send()
    registered_s = time.monotonic()
    await sender.send_until("broker-a", 1)
    found_s = time.monotonic() - registered_s
    assert found_s < FOUND_WITHIN_S + MARGIN_S, f"the new master was found after {found_s:.1f} s"
    await sender.send_until("broker-a", 20)
    await asyncio.to_thread(first.start, master)
    await asyncio.to_thread(first.wait_for, lambda state: len(state.in_sync) == 2)
    return sender


def test_one_group_fails_over_while_the_other_takes_the_sends(groups: tuple[ReplicaGroup, ReplicaGroup]) -> None:
    first, second = groups

    async def run() -> Acknowledged:
        async with orbitlog.connect(f"rocketmq://{first.name_server.replace(';', ',')}") as mq:
            return (await fail_over(mq, first, second)).acknowledged

    for group in groups:
        group.wait_for(lambda state: len(state.in_sync) == 2)
    acknowledged = asyncio.run(run())
    for group in groups:
        # Read before the first member stops: it hands over, and the other may become master before it is stopped too.
        masters = [change for member in group.members for change in group.role_changes(member) if "master" in change]
        assert len(masters) == len(set(masters)) == (2 if group is first else 1), masters
        for member in group.members:
            group.stop(member)
            changes = group.role_changes(member)
            assert all(one != next_one for one, next_one in itertools.pairwise(changes)), changes  # each is logged once
        for member in group.members:
            stored = {int(message.body) for message in group.messages(member) if message.topic == TOPIC}
            assert acknowledged[group.name] <= stored, f"member {member} of {group.name}"
