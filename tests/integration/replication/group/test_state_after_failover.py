"""State of a replica group after its master was killed: tables, offsets, delays, transactions, POP, dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import orbitlog
from orbitlog.errors import OrbitlogError
from orbitlog.formats.tables.group_config import GroupConfig
from orbitlog.remoting.client import RemotingClient
from orbitlog.replication.group.etcd_gateway import EtcdGateway
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import records
from tests.support.etcd_servers import EtcdServers
from tests.support.replica_group import ReplicaGroup

pytestmark = pytest.mark.xdist_group("etcd")

SECONDS = 30
SETTINGS = ("messageDelayLevel=1s 5s", "transactionTimeOut=1000", "transactionCheckInterval=300")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServers]:
    servers = EtcdServers(tmp_path_factory.mktemp("etcd"), 1)
    yield servers
    servers.close()


class Failover:
    """A group of two, and what its clients did before its master was killed."""

    def __init__(self, group: ReplicaGroup, master: int, etcd: EtcdServers, mq: orbitlog.RocketMQ) -> None:
        self.group = group
        self._etcd = etcd
        self.mq = mq
        self.client = RemotingClient()
        self.master = master
        [self.slave] = [member for member in group.members if member != self.master]

    def address(self, member: int) -> str:
        return f"127.0.0.1:{self.group.ports[member][0]}"

    async def ask(self, member: int, code: int, **fields: object) -> Command:
        request = Command(code, ext_fields={name: str(value) for name, value in fields.items()})
        return await self.client.invoke(self.address(member), request, SECONDS)

    async def committed(self, member: int, topic: str, group: str) -> int:
        """Return the committed offset of queue 0 at a member; -1 without one."""
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self.ask(member, code, consumerGroup=group, topic=topic, queueId=0)
        return int(answer.ext_fields["offset"]) if answer.code == ResponseCode.SUCCESS else -1

    async def pop(self, member: int, topic: str, group: str, count: int, invisible_ms: int) -> list[str]:
        answer = await self.ask(
            *(member, RequestCode.POP_MESSAGE),
            **{"consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": count},
            **{"invisibleTime": invisible_ms, "pollTime": 0, "bornTime": 0, "initMode": 0},
        )
        return [message.body.decode() for message in records(answer)]

    async def kill_master(self) -> None:
        """Kill the master, and end its lease as a supervisor may: the slave does not wait for its end."""
        live = await self.group.live(self.master)
        self.group.kill(self.master)
        await EtcdGateway(self._etcd.endpoints).call("/v3/lease/revoke", {"ID": str(live.session)})
        await asyncio.to_thread(self.group.wait_for, lambda state: state.master == self.slave)


async def collect(mq: orbitlog.RocketMQ, topic: str, count: int, group: str = "readers") -> list[str]:
    """Return the bodies of the first N messages of a topic."""
    bodies: list[str] = []
    async with asyncio.timeout(SECONDS):
        while len(bodies) < count:
            bodies.clear()
            try:
                async with await mq.read(topic, start="first", group=group) as reader:
                    while len(bodies) < count and (message := await reader.next(1)) is not None:
                        bodies.append(message.text)
            except OrbitlogError:
                await asyncio.sleep(0.1)
    return bodies


async def until_equal(read: Callable[[], Awaitable[object]], expected: object) -> None:
    async with asyncio.timeout(SECONDS):
        while await read() != expected:  # noqa: ASYNC110 - the state is in another process
            await asyncio.sleep(0.05)


async def fill(failover: Failover) -> None:
    """Leave work of each kind unfinished at the master."""
    mq = failover.mq
    await mq.admin.create_topic("Orders", 1)
    for number in range(6):
        await mq.send("Orders", f"order {number}")
    async with mq.consume("Orders", group="billing", start_from="first") as consumer:
        for _ in range(4):
            delivery = await consumer.next(SECONDS)
            assert delivery is not None
            await delivery.ack()
        await consumer.commit()
    async with mq.consume("Orders", group="failing", start_from="first", max_attempts=0) as consumer:
        for _ in range(6):
            delivery = await consumer.next(SECONDS)
            assert delivery is not None
            await (delivery.retry() if delivery.text == "order 2" else delivery.ack())
        await consumer.commit()
    await mq.send("Later", "delivered before", delay_level=1)
    await mq.send("Later", "delivered after", delay_level=2)
    await mq.send("Timed", "timed", delay=5.5)
    await mq.send_in_transaction("Paid", "committed", lambda _: True)
    await mq.send_in_transaction("Paid", "rolled back", lambda _: False)
    await mq.send_in_transaction("Paid", "checked", lambda _: None, check=lambda message: message.text == "checked")
    assert await failover.pop(failover.master, "Orders", "poppers", 2, 4000) == ["order 0", "order 1"]


async def check(failover: Failover) -> None:
    """Check that the new master finishes the work."""
    mq, master = failover.mq, failover.slave
    broker = failover.address(master)
    await until_equal(mq.admin.brokers, {failover.group.name: broker})
    topics = await mq.admin.topic_configs(broker)
    assert (topics["Fresh"].read_queue_count, topics["Fresh"].write_queue_count) == (3, 3)
    assert (await mq.admin.groups(broker))["fresh-group"].retry_queue_count == 2
    assert "Orders" in topics
    assert await failover.committed(master, "Orders", "billing") == 4
    assert await collect(mq, "Orders", 6) == [f"order {number}" for number in range(6)]
    assert await collect(mq, "%DLQ%failing", 1) == ["order 2"]
    assert sorted(set(await collect(mq, "Later", 2))) == ["delivered after", "delivered before"]
    assert await collect(mq, "Timed", 1) == ["timed"]
    assert sorted(await collect(mq, "Paid", 2)) == ["checked", "committed"]
    popped: set[str] = set()
    async with asyncio.timeout(SECONDS):
        while len(popped) < 6:
            popped.update(await failover.pop(master, "Orders", "poppers", 8, 60_000))
            await asyncio.sleep(0.05)
    assert popped == {f"order {number}" for number in range(6)}


def test_state_of_a_killed_master_is_at_the_next_one(etcd: EtcdServers, tmp_path: Path) -> None:
    group = ReplicaGroup(tmp_path, etcd, 2, *SETTINGS, name="broker-s")

    async def run(master: int) -> None:
        async with orbitlog.connect(f"rocketmq://{group.name_server}", producer_group="payers") as mq:
            failover = Failover(group, master, etcd, mq)
            try:
                await fill(failover)
                await collect(mq, "Later", 1)
                await until_equal(lambda: failover.committed(failover.slave, "Orders", "billing"), 4)
                await mq.admin.create_group(GroupConfig("fresh-group", retry_queue_count=2))
                await mq.admin.create_topic("Fresh", 3)
                await failover.kill_master()
                await check(failover)
            finally:
                await failover.client.close()

    try:
        state = group.wait_for(lambda state: len(state.in_sync) == 2)
        assert state.master is not None
        asyncio.run(run(state.master))
    finally:
        group.close()
