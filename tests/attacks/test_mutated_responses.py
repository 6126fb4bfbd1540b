"""Mutated responses of a name server and a broker: a client raises errors of Orbitlog, and no task of it ends.

`ORBITLOG_ATTACK` multiplies the number of clients, up to 40 times.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import orbitlog
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.errors import OrbitlogError
from orbitlog.testing.running_broker import RunningBroker
from tests.support.mutating_relay import mutating_relay

ROUNDS = 4 * min(int(os.environ.get("ORBITLOG_ATTACK", "1")), 40)
SEED = int(os.environ.get("ORBITLOG_SEED", "20260612"))
SECONDS_MAX = 30


async def consume(mq: RocketMQ, orderly: bool) -> None:
    async with mq.consume("T", group="g", orderly=orderly, start_from=orbitlog.StartFrom.FIRST) as consumer:
        for number in range(4):
            message = await consumer.next(0.2)
            if message is not None:
                await (message.retry() if number % 2 else message.ack())


async def read(mq: RocketMQ) -> None:
    async with asyncio.timeout(2):
        async for _ in await mq.read("T"):
            pass


async def find(mq: RocketMQ) -> None:
    async for _ in mq.admin.find("T", "k"):
        pass


CALLS: tuple[Callable[[RocketMQ, str], Awaitable[Any]], ...] = (
    lambda mq, _: mq.send("T", b"x" * 5_000, keys=["k"], timeout=2),
    lambda mq, _: mq.send("T", b"x", ordered_by="k", timeout=2),
    lambda mq, _: mq.send_batch("T", [b"a", b"b"], timeout=2),
    lambda mq, _: mq.send_in_transaction("T", b"x", lambda _: True, timeout=2),
    lambda mq, _: mq.request("T", b"x", timeout=0.5),
    lambda mq, _: consume(mq, orderly=False),
    lambda mq, _: consume(mq, orderly=True),
    lambda mq, _: read(mq),
    lambda mq, _: find(mq),
    lambda mq, _: mq.admin.cluster(),
    lambda mq, _: mq.admin.topics(),
    lambda mq, broker: mq.admin.topic_configs(broker),
    lambda mq, broker: mq.admin.groups(broker),
    lambda mq, _: mq.admin.topic_offsets("T"),
    lambda mq, _: mq.admin.progress("g"),
    lambda mq, _: mq.admin.reset_offsets("g", "T", 0),
)


async def use_clients(target: RunningBroker) -> tuple[int, list[object]]:
    """Use clients behind relays; return the number of mutated responses, and failures that no caller expects."""
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    async def call(work: Awaitable[Any]) -> None:
        try:
            await asyncio.wait_for(work, SECONDS_MAX)
        except (OrbitlogError, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001 - the subject of the test
            failures.append(error)

    async with mutating_relay(target.broker_address, SEED, 0.25) as (broker, broker_address):
        renamed = {target.broker_address.encode(): broker_address.encode()}
        async with mutating_relay(target.address, SEED + 1, 0.25, renamed) as (name_server, address):
            for _ in range(ROUNDS):
                async with orbitlog.connect(address) as mq:
                    await asyncio.gather(*(call(work(mq, broker_address)) for work in CALLS))
            return broker.mutated + name_server.mutated, failures


def test_mutated_responses_raise_errors_of_orbitlog_alone(start_target: Callable[..., RunningBroker]) -> None:
    mutated, failures = asyncio.run(use_clients(start_target()))
    assert not failures
    assert mutated >= 8 * ROUNDS
