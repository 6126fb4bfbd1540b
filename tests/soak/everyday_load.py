"""What clients do to a broker all day: they send, join groups and leave them, make topics, and misbehave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import orbitlog
from orbitlog.client.connection.connect import ClientContext
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.errors import ClientError, RemotingError
from orbitlog.formats.tables.group_config import GroupConfig

TOPIC, GROUP = "Soak", "steady"


class EverydayLoad:
    """Runs until it is stopped, and keeps a ledger of what was acknowledged and what was consumed."""

    def __init__(self, name_server: str, broker: str, seed: int) -> None:
        self._name_server = name_server
        self._broker = broker
        self._chance = random.Random(seed)
        self._is_over = False
        self.acknowledged: set[str] = set()
        self.seen: set[str] = set()
        self.rounds = self.too_slow = 0

    def stop(self) -> None:
        self._is_over = True

    @property
    def activities(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """All concurrent loads; each ends soon after `stop`."""
        return [self._send, self._send, self._consume, self._join_and_leave, self._operate, self._misbehave]

    def _connect(self, **options: Any) -> ClientContext:
        return orbitlog.connect(f"rocketmq://{self._name_server}", **options)

    async def _send(self) -> None:
        sender = self._chance.getrandbits(32)
        async with self._connect(producer_group=f"soak-{sender:08x}") as mq:
            count = 0
            while not self._is_over:
                count += 1
                async with self._busy_machine():
                    await self._send_one_kind(mq, f"{sender:08x} {count}", count % 8)
                await asyncio.sleep(0.005)

    async def _send_one_kind(self, mq: RocketMQ, name: str, kind: int) -> None:
        padding = " " * self._chance.randrange(4000)
        body = name + padding
        if kind == 1:
            await mq.send_batch(TOPIC, [f"{name}.{member}" for member in range(8)])
            self.acknowledged.update(f"{name}.{member}" for member in range(8))
            return
        if kind == 2:
            _, outcome = await mq.send_in_transaction(TOPIC, body, _agree, check=_agree)
            assert outcome is True
        elif kind == 3:
            await mq.send(TOPIC, body, delay=1.0)
        else:
            await mq.send(TOPIC, body, tags=f"tag{kind}", keys=[name.replace(" ", "-")])
        self.acknowledged.add(name)

    async def _consume(self) -> None:
        async with self._connect() as mq:
            consumer = await mq.consume(TOPIC, group=GROUP, start_from="first")
            while not (self._is_over and self.acknowledged <= self.seen):
                message = await consumer.next(0.5)
                if message is not None:
                    self.seen.add(message.text.rstrip())
                    await message.ack()

    async def _join_and_leave(self) -> None:
        """A member that comes, takes some messages of which one fails, and leaves."""
        while not self._is_over:
            async with self._busy_machine(), self._connect() as mq:
                consumer = await mq.consume(TOPIC, group="passing", start_from="last")
                for count in range(20):
                    message = await consumer.next(0.5)
                    if message is None:
                        break
                    await (message.retry() if count == 0 else message.ack())

    async def _operate(self) -> None:
        """Topics and groups made, used, looked at and deleted, under few names."""
        async with self._connect() as mq:
            while not self._is_over:
                async with self._busy_machine():
                    await self._operate_once(mq, f"Passing{self.rounds % 8}")
                self.rounds += 1
                await asyncio.sleep(0.2)

    async def _operate_once(self, mq: RocketMQ, topic: str) -> None:
        await mq.admin.create_topic(topic, queues=2)
        await mq.send(topic, "one", keys=["k"])
        await mq.admin.create_group(GroupConfig(f"group-{topic}"))
        await mq.admin.topics()
        await mq.admin.progress(GROUP)
        assert [message async for message in mq.admin.find(TOPIC, "no-such-key")] == []
        await mq.admin.delete_group(f"group-{topic}")
        await mq.admin.delete_topic(topic)

    @asynccontextmanager
    async def _busy_machine(self) -> AsyncIterator[None]:
        """Let pass what took too long: others may be using the machine. What was not acknowledged need not come out."""
        try:
            yield
        except (RemotingError, ClientError) as error:
            if not error.retriable:
                raise
            self.too_slow += 1

    async def _misbehave(self) -> None:
        """Peers that say nothing, half a frame, or nonsense, and go."""
        host, _, port = self._broker.rpartition(":")
        words = [b"", b"\x00\x00\x01\x00\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x08\x00\x00\x00\x04nope"]
        while not self._is_over:
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(self._chance.choice(words))
            if writer.can_write_eof() and self._chance.random() < 0.5:
                writer.write_eof()
            await asyncio.sleep(0.02)
            writer.close()


async def _agree(_: object) -> bool:
    return True
