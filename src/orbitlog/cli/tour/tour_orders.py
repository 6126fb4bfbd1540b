"""Messages of the tour: orders of a shop by several producers, a delayed message, and payments in transactions.

Every order has up to four events, which must be consumed in order. The events of an order have its key and go to one
queue; the name of an event is its tag.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orbitlog.client.connection.connect import connect
from orbitlog.errors import ClientError, RemotingError

if TYPE_CHECKING:
    from orbitlog.client.rocketmq import RocketMQ

ORDERS, REMINDERS, PAYMENTS = "Orders", "Reminders", "Payments"
EVENTS = ("created", "paid", "packed", "shipped")
PRODUCERS = 4
_AT_ONCE = 25
_SECONDS_MAX = 120.0
_SEND_SECONDS = 10.0
_DELAY_SECONDS = 1.0


@dataclass(slots=True)
class Sent:
    """Keys of acknowledged messages by message id, and the number of sends without an answer."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    unanswered: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Consumed:
    """Number of messages consumed, of their orders, and of messages out of order."""

    messages: int
    orders: int
    out_of_order: int
    seconds: float


def order_key(producer: int, number: int) -> str:
    return f"order-{producer}-{number:05d}"


def events_of(number: int) -> tuple[str, ...]:
    """Return the events of an order: every fifth is not shipped yet, and half of those not packed."""
    return EVENTS[: len(EVENTS) - (number % 5 == 0) - (number % 10 == 0)]


def _body(key: str, event: str, number: int) -> str:
    return json.dumps(
        {"order": key, "event": event, "items": number % 7 + 1, "price": round(9.5 + number % 50 * 1.25, 2)}
    )


async def send_orders(address: str, numbers: range) -> Sent:
    """Send the events of these orders from each producer; every producer is a client with its own connections."""
    sent = Sent()
    started_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for producer in range(PRODUCERS):
            group.create_task(_produce(address, producer, numbers, sent))
    sent.seconds = time.perf_counter() - started_s
    return sent


async def _produce(address: str, producer: int, numbers: Iterable[int], sent: Sent) -> None:
    free = asyncio.Semaphore(_AT_ONCE)
    async with connect(f"rocketmq://{address}", producer_group=f"shop-{producer}") as mq:

        async def send_order(number: int) -> None:
            async with free:
                key = order_key(producer, number)
                for event in events_of(number):
                    await _send_event(mq, key, event, number, sent)

        async with asyncio.TaskGroup() as group:
            for number in numbers:
                group.create_task(send_order(number))


async def _send_event(mq: RocketMQ, key: str, event: str, number: int, sent: Sent) -> None:
    receipt = await mq.send(
        ORDERS, _body(key, event, number), tags=event, keys=[key], ordered_by=key, timeout=_SEND_SECONDS
    )
    sent.acknowledged[receipt.message_id] = key


async def consume_orders(address: str, wanted: set[str]) -> Consumed:
    """Consume in order until all wanted messages have arrived; count messages out of order."""
    missing, steps, wrong = set(wanted), defaultdict[str, int](int), 0
    started_s = time.perf_counter()
    async with (
        connect(f"rocketmq://{address}") as mq,
        mq.consume(ORDERS, group="billing", orderly=True, start_from="first") as consumer,
    ):
        while missing and (message := await consumer.next(_SECONDS_MAX)) is not None:
            await message.ack()
            if message.message_id not in missing:
                continue
            missing.discard(message.message_id)
            key = message.keys[0]
            wrong += EVENTS.index(message.tags or "") != steps[key]
            steps[key] += 1
    return Consumed(len(wanted) - len(missing), len(steps), wrong, time.perf_counter() - started_s)


async def remind_later(address: str) -> tuple[float, float]:
    """Send a delayed message; return the requested and the actual delay in seconds."""
    async with connect(f"rocketmq://{address}") as mq:
        sent_s = time.time()
        await mq.send(REMINDERS, "call back", delay=_DELAY_SECONDS, timeout=_SEND_SECONDS)
        async with mq.consume(REMINDERS, group="callers", start_from="first") as consumer:
            message = await consumer.next(_SECONDS_MAX)
    return _DELAY_SECONDS, -1.0 if message is None else time.time() - sent_s


async def pay_in_transactions(address: str) -> list[str]:
    """Send one message in a transaction that commits and one that rolls back; return the bodies that arrive."""

    async def commits(_: object) -> bool:
        return True

    async def rolls_back(_: object) -> bool:
        return False

    async with connect(f"rocketmq://{address}", producer_group="payments") as mq:
        await mq.send_in_transaction(PAYMENTS, "no money", rolls_back, timeout=_SEND_SECONDS)
        await mq.send_in_transaction(PAYMENTS, "paid", commits, timeout=_SEND_SECONDS)
        async with mq.consume(PAYMENTS, group="ledger", start_from="first") as consumer:
            seen = [message.text for message in [await consumer.next(_SECONDS_MAX)] if message is not None]
            # Nothing else may arrive: the rolled-back message was sent before the committed one.
            seen += [message.text for message in [await consumer.next(0.2)] if message is not None]
    return seen


async def send_until_killed(address: str, after: int, kill: Callable[[], None]) -> Sent:
    """Send continuously, kill the broker after `after` acknowledgements, and count sends in flight."""
    sent = Sent()
    started_s = time.perf_counter()
    is_killed = asyncio.Event()

    async def send_some(mq: RocketMQ, lane: int) -> None:
        number = 0
        while not is_killed.is_set():
            key = order_key(PRODUCERS + lane, number)
            try:
                receipt = await mq.send(ORDERS, _body(key, EVENTS[0], number), tags=EVENTS[0], keys=[key], timeout=1)
            except (RemotingError, ClientError):
                sent.unanswered += 1
                return
            sent.acknowledged[receipt.message_id] = key
            number += 1
            if len(sent.acknowledged) >= after and not is_killed.is_set():
                is_killed.set()
                await asyncio.to_thread(kill)

    async with connect(f"rocketmq://{address}", producer_group="shop-at-night") as mq, asyncio.TaskGroup() as group:
        for lane in range(_AT_ONCE):
            group.create_task(send_some(mq, lane))
    sent.seconds = time.perf_counter() - started_s
    return sent


async def read_back(address: str, wanted: set[str], topic: str = ORDERS) -> set[str]:
    """Read a topic from its start until all wanted messages are found; return the missing ids."""
    missing = set(wanted)
    async with connect(f"rocketmq://{address}") as mq, await mq.read(topic) as reader:
        for queue in reader.queues:
            await reader.seek(queue, 0)
        while missing and (message := await reader.next(_SECONDS_MAX)) is not None:
            missing.discard(message.message_id)
    return missing


async def find_by_key(address: str, key: str) -> list[str]:
    """Return the ids of messages with a key, from the broker's index."""
    async with connect(f"rocketmq://{address}") as mq:
        return [message.message_id async for message in mq.admin.find(ORDERS, key)]
