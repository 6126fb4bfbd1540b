"""Settling of deliveries: ack, retry and dead letters; in loops that end early, orderly, and broadcasting."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from orbitlog.client.connection.connect import connect
from orbitlog.client.consumer.delivery import Delivery
from orbitlog.client.consumer.group_consumer import Consumer
from orbitlog.errors import BrokerRefused, ClientError
from orbitlog.testing.pytest_plugin import MakeBroker
from orbitlog.testing.running_broker import RunningBroker

SECONDS_MAX = 20


async def one(consumer: Consumer) -> Delivery:
    message = await consumer.next(SECONDS_MAX)
    assert message is not None, "no message came"
    return message


def test_current_message_is_not_acknowledged_when_its_loop_ends(orbitlog_broker: RunningBroker) -> None:
    async def scenario() -> None:
        async with orbitlog_broker.connect() as mq:
            await mq.admin.create_topic("Loops", 1)
            for text in ("one", "two", "three"):
                await mq.send("Loops", text)
            consumer = await mq.consume("Loops", group="loops", start_from="first")
            async for message in consumer:
                if message.text == "two":
                    break
            with pytest.raises(ZeroDivisionError):
                async for message in consumer:
                    assert message.text == "two"
                    raise ZeroDivisionError
            await asyncio.sleep(0)
            async for message in consumer:
                await message.ack()
                if message.text == "three":
                    break
            await asyncio.sleep(0)
            assert await consumer.next(0.05) is None
            await consumer.close()
            assert orbitlog_broker.groups() == ["loops"]
            assert sum(each.lag for each in await mq.admin.progress("loops", "Loops")) == 0

    asyncio.run(scenario())


def test_loop_over_consume_joins_and_leaves_the_group(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            await mq.send("Short", "one")
            async for message in mq.consume("Short", group="short", start_from="first"):
                assert message.text == "one"
                break  # and joins again at once
            async for message in mq.consume("Short", group="short", start_from="first"):
                assert message.text == "one"
                await message.ack()
                break
            async with asyncio.timeout(SECONDS_MAX):
                while mq._consumers:  # noqa: ASYNC110 - the loop's end is dealt with in a task
                    await asyncio.sleep(0.01)
            async with mq.consume("Short", group="short") as consumer:
                assert await consumer.next(0.05) is None

    asyncio.run(scenario())


def test_orderly_retry_blocks_its_queue_and_ends_in_dead_letters(
    cluster: str,
) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            for text in ("one", "two", "three"):
                await mq.send("Line", text, ordered_by="k")
            seen = []
            async with mq.consume("Line", group="line", start_from="first", orderly=True, max_attempts=2) as consumer:
                async for message in consumer:
                    seen.append((message.text, message.attempts))
                    if message.text == "two":
                        await message.retry(after=0.01)
                    if message.text == "three":
                        break
            assert seen == [("one", 0), ("two", 0), ("two", 1), ("two", 2), ("three", 0)]
            reader = await mq.read("%DLQ%line")
            dead = await reader.next(SECONDS_MAX)
            assert dead is not None and dead.text == "two"

    asyncio.run(scenario())


def test_failed_message_is_redelivered_with_its_topic(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster, namespace="shop") as mq:
            await mq.send("Failing", "one", tags="t")
            seen: list[tuple[str, int]] = []
            consumer = await mq.consume("Failing", group="failing", start_from="first")

            async def listener(message: Delivery) -> None:
                seen.append((message.topic, message.attempts))
                if message.attempts == 0:
                    await message.retry(after=1)
                    raise ValueError("already settled, so this has no effect")
                await consumer.close()

            async with asyncio.timeout(SECONDS_MAX):
                await consumer.run(listener, concurrency=2)
            assert seen == [("Failing", 0), ("Failing", 1)]
            assert {"shop%Failing", "%RETRY%shop%failing"} <= set(await mq.admin.topics())

    asyncio.run(scenario())


def test_broadcasting_members_get_all_messages_and_keep_their_offsets(cluster: str) -> None:
    async def scenario(directory: str) -> None:
        path = Path(directory) / "kept" / "offsets.json"
        async with connect(cluster) as mq:
            with pytest.raises(ClientError, match="offsets_file needs broadcasting"):
                mq.consume("News", group="all", offsets_file=path)
            await mq.admin.create_topic("News", 1)
            await mq.send("News", "one")
            await mq.send("News", "two")
            options = {"broadcasting": True, "start_from": "first", "max_attempts": 1}
            async with mq.consume("News", group="all", offsets_file=path, **options) as consumer:  # type: ignore[arg-type]
                message = await one(consumer)
                await message.retry(after=0.01)
                others = [await one(consumer), await one(consumer)]
                assert sorted((each.text, each.attempts) for each in others) == [("one", 1), ("two", 0)]
                again = next(each for each in others if each.text == "one")
                await again.retry()  # the last time: it is given up
            async with mq.consume("News", group="all", offsets_file=path, **options) as consumer:  # type: ignore[arg-type]
                assert (await one(consumer)).text == "two"
            async with mq.consume("News", group="all", **options) as consumer:  # type: ignore[arg-type]
                assert (await one(consumer)).text == "one"

    with TemporaryDirectory() as directory:
        asyncio.run(scenario(directory))


def expressions_choose(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            await mq.send("Filtered", "one", properties={"n": "3"})
            with pytest.raises(BrokerRefused):
                await mq.consume("Filtered", group="sql", sql="n >>> 1")
            async with mq.consume("Filtered", group="sql", sql="n > 2", start_from="first") as consumer:
                assert (await one(consumer)).text == "one"

    asyncio.run(scenario())


def test_invalid_filter_expression_is_refused_on_joining(make_orbitlog_broker: MakeBroker) -> None:
    expressions_choose(make_orbitlog_broker(enablePropertyFilter=True).address)


def test_batch_is_acknowledged_when_the_next_is_requested(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            await mq.send_batch("Batches", [str(number) for number in range(40)])
            async with mq.consume("Batches", group="batches", start_from="first") as consumer:
                sizes = []
                async for batch in consumer.batches(16):
                    sizes.append(len(batch))
                    if sum(sizes) == 40:
                        break
                assert max(sizes) == 16
                progress = consumer.assignment.feeds
                undone = sum(len(feed.window) for feed in progress.values())
                assert undone == sizes[-1]

    asyncio.run(scenario())


def test_message_not_settled_in_time_is_redelivered(make_orbitlog_broker: MakeBroker) -> None:
    broker = make_orbitlog_broker(messageDelayLevel="1s 1s 1s 1s")

    async def scenario() -> None:
        async with broker.connect() as mq:
            await mq.admin.create_topic("Held", 1)
            for text in ("stuck", "fine"):
                await mq.send("Held", text)
            async with mq.consume("Held", group="holders", start_from="first", consume_timeout=0.2) as consumer:
                stuck, fine = await one(consumer), await one(consumer)
                await fine.ack()
                again = await one(consumer)
                assert (again.text, again.attempts, again.topic) == ("stuck", 1, "Held")
                assert stuck.is_settled, "a word on the first copy comes too late"
                await stuck.retry()
                await again.ack()
                assert not consumer.in_progress
            assert sum(each.lag for each in await mq.admin.progress("holders", "Held")) == 0

    asyncio.run(scenario())


def test_paused_queue_delivers_nothing_until_resumed(orbitlog_broker: RunningBroker) -> None:
    async def scenario() -> None:
        async with orbitlog_broker.connect() as mq:
            await mq.admin.create_topic("Paused", 2)
            reader = await mq.read("Paused")
            first, second = reader.queues
            reader.pause(first)
            await asyncio.sleep(0)
            # What was asked before the pause may still be answered: this one is not counted.
            await mq.send("Paused", "before", queue=first)
            await mq.send("Paused", "other", queue=second)
            found = {message.text for message in [await reader.next(SECONDS_MAX)] if message}
            while "other" not in found:
                message = await reader.next(SECONDS_MAX)
                assert message is not None
                found.add(message.text)
            await mq.send("Paused", "kept", queue=first)
            await mq.send("Paused", "last", queue=second)
            found = set()
            while "last" not in found:
                message = await reader.next(SECONDS_MAX)
                assert message is not None
                found.add(message.text)
            assert "kept" not in found
            reader.resume(first)
            while "kept" not in found:
                message = await reader.next(SECONDS_MAX)
                assert message is not None
                found.add(message.text)
            await reader.close()

    asyncio.run(scenario())


def test_members_with_other_subscriptions_are_warned(
    orbitlog_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with orbitlog_broker.connect() as first, orbitlog_broker.connect() as second:
            await first.admin.create_topic("Mixed", 1)
            await first.consume("Mixed", group="at-odds", tags="A||B")
            async with second.consume("Mixed", group="at-odds", tags="B || A"):
                assert "other members" not in caplog.text
            await second.consume("Mixed", group="at-odds", tags="A")
            assert "at-odds: other members subscribe to Mixed (A || B); members of a group" in caplog.text

    asyncio.run(scenario())
