"""A broker that is stopped, killed and started over and over under its clients: they find it again, nothing is lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

import orbitlog
from orbitlog.client.consumer.group_consumer import Consumer
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.errors import ClientError, RemotingError
from tests.soak.serving_process import ServingProcess

CLIENTS = 12
RESTARTS = 6
CAUGHT_UP_SECONDS_MAX = 120


class Storm:
    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.seen: set[str] = set()
        self.is_over = False
        self.is_all_sent = False

    async def send(self, mq: RocketMQ, number: int) -> None:
        count = 0
        while not self.is_over:
            name = f"{number} {count}"
            count += 1
            try:
                await mq.send("Storm", name, timeout=1.0)
            except (RemotingError, ClientError) as error:
                assert error.retriable, f"{type(error).__name__}: {error}"
            else:
                self.acknowledged.add(name)
            await asyncio.sleep(0.002)

    async def consume(self, consumer: Consumer) -> None:
        while not (self.is_all_sent and self.acknowledged <= self.seen):
            message = await consumer.next(0.2)
            if message is not None:
                self.seen.add(message.text)
                await message.ack()

    async def weather(self, process: ServingProcess, chance: random.Random, restarts: int, kinds: Counter[str]) -> None:
        """Restart it in every manner; in between wait until a client is served."""
        for _ in range(restarts):
            count = len(self.acknowledged)
            deadline = time.monotonic() + CAUGHT_UP_SECONDS_MAX
            while len(self.acknowledged) <= count:
                assert time.monotonic() < deadline, "no client is served any more"
                await asyncio.sleep(0.01)
            kind = chance.choice(["stopped", "killed", "killed while starting"])
            kinds[f"brokers {kind} under load"] += 1
            await asyncio.to_thread(process.stop if kind == "stopped" else process.kill)
            if kind == "killed while starting":
                await asyncio.to_thread(process.start_and_kill_after, chance.random())
            await asyncio.to_thread(process.start)


@pytest.mark.slow
def test_everybody_outlives_a_storm(tmp_path: Path, scale: int, checked: Counter[str]) -> None:
    seed = random.SystemRandom().getrandbits(32)
    process = ServingProcess(tmp_path)
    process.start()
    storm = Storm()

    async def scenario() -> None:
        async with AsyncExitStack() as clients, asyncio.TaskGroup() as tasks:
            connect = partial(orbitlog.connect, f"rocketmq://{process.name_server}")
            connected = [await clients.enter_async_context(connect()) for _ in range(CLIENTS)]
            # Joining needs a name server; the storm begins when all who are to outlive it are there.
            await connected[0].send("Storm", "before the storm")
            consumers = [await mq.consume("Storm", group="shelter", start_from="first") for mq in connected[-2:]]
            sending = [tasks.create_task(storm.send(mq, number)) for number, mq in enumerate(connected[:-2])]
            consuming = [tasks.create_task(storm.consume(consumer)) for consumer in consumers]
            await storm.weather(process, random.Random(seed), RESTARTS * scale, checked)
            storm.is_over = True
            await asyncio.wait(sending)  # what is under way now may still be acknowledged, and must be seen then
            storm.is_all_sent = True
            _, late = await asyncio.wait(consuming, timeout=CAUGHT_UP_SECONDS_MAX)
            for task in late:
                task.cancel()

    try:
        asyncio.run(scenario())
    finally:
        process.stop()
    checked["messages acknowledged in a storm"] += len(storm.acknowledged)
    missing = storm.acknowledged - storm.seen
    assert not missing, f"seed {seed}: {sorted(missing)[:5]}"
