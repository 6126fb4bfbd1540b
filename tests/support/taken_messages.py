"""Messages taken from a consumer."""

from __future__ import annotations

from orbitlog.client.consumer.delivery import Delivery
from orbitlog.client.consumer.group_consumer import Consumer

SECONDS_MAX = 20


async def take(consumer: Consumer, count: int) -> list[Delivery]:
    taken = []
    while len(taken) < count:
        message = await consumer.next(SECONDS_MAX)
        assert message is not None, f"{len(taken)} of {count} messages came"
        await message.ack()
        taken.append(message)
    return taken
