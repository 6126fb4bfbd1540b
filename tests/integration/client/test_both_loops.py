"""Everything that a client does, in short, on asyncio's own event loop and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

import orbitlog
from orbitlog.client.consumer.delivery import Delivery
from orbitlog.testing.pytest_plugin import MakeBroker

SECONDS_MAX = 60
EXPECTED = 10
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def everything(mq: orbitlog.RocketMQ) -> set[str]:
    """Send in every way and consume in one; returns what came, with its tries."""
    seen: set[str] = set()
    consumer = await mq.consume("Loops", group="loops", start_from="first")

    async def listener(message: Delivery) -> None:
        if message.text == "hard" and message.attempts == 0:
            raise ValueError("comes again")
        seen.add(f"{message.text} {message.attempts}")
        if message.tags == "asks":
            await mq.reply(message, "told")
        if len(seen) == EXPECTED:
            await consumer.close()

    working = asyncio.create_task(consumer.run(listener))
    await mq.send("Loops", "one")
    await mq.send("Loops", "large" * 500_000, keys="large")
    await mq.send_batch("Loops", ["two", "three"])
    await mq.send_oneway("Loops", "four")
    await mq.send("Loops", "in line", ordered_by="key")
    await mq.send("Loops", "later", delay=0.5)
    await mq.send("Loops", "hard")
    await mq.send_in_transaction("Loops", "decided", lambda _: True)
    reply = await mq.request("Loops", "question", tags="asks", timeout=SECONDS_MAX)
    assert reply.text == "told"
    await working
    return {each if len(each) < 100 else "large" for each in seen}


@pytest.mark.parametrize("make_loop", LOOPS.values(), ids=LOOPS)
def test_everything_in_short(
    make_loop: Callable[[], asyncio.AbstractEventLoop], make_orbitlog_broker: MakeBroker
) -> None:
    broker = make_orbitlog_broker(messageDelayLevel="1s 1s 1s 1s")

    async def scenario() -> None:
        async with asyncio.timeout(SECONDS_MAX), broker.connect() as mq:
            await mq.admin.create_topic("Loops", 2)
            plain = {f"{word} 0" for word in ("one", "two", "three", "four", "in line", "later", "decided", "question")}
            assert await everything(mq) == {*plain, "hard 1", "large"}

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(scenario())
