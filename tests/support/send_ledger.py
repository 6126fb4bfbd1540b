"""A ledger of acknowledged sends and consumed messages."""

from __future__ import annotations

import asyncio
import time

from orbitlog.client.consumer.group_consumer import Consumer
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.errors import ClientError, RemotingError

SECONDS_MAX = 30


class Ledger:
    """Acknowledged sends, and messages that were consumed."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.seen: list[int] = []
        self.is_over = False

    async def produce(self, mq: RocketMQ, topic: str, **options: str) -> None:
        number = 0
        while not self.is_over:
            try:
                await mq.send(topic, str(number), **options)  # type: ignore[arg-type]
            except (RemotingError, ClientError) as error:
                assert error.retriable, error
            else:
                self.sent.append(number)
            number += 1
            await asyncio.sleep(0.001)

    async def consume(self, consumer: Consumer) -> None:
        async for message in consumer:
            self.seen.append(int(message.text))

    async def everything_came(self) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while missing := set(self.sent) - set(self.seen):
            assert time.monotonic() < deadline, f"{len(missing)} messages did not come: {sorted(missing)[:20]}"
            await asyncio.sleep(0.02)
