"""Sending and consuming with the Python client, over real sockets."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from orbitlog.client.connection.connect import connect
from orbitlog.client.consumer.group_consumer import Consumer
from orbitlog.errors import ClientError, ConnectFailed, NoRoute
from tests.support.taken_messages import SECONDS_MAX, take


def test_sent_messages_are_consumed(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            receipt = await mq.send("Sent", b"one", tags="new", keys=["k1", "k2"], properties={"colour": "red"})
            batch = await mq.send_batch("Sent", ["two", "three"], tags="new", keys=["k3", ["k4", "k5"]])
            await mq.send_oneway("Sent", "four", keys="k6", properties={"colour": "blue"})
            await mq.send("Sent", "later", delay_level=1)
            consumer = await mq.consume("Sent", group="readers", start_from="first")
            messages = {message.text: message for message in await take(consumer, 5)}
        assert set(messages) == {"one", "two", "three", "four", "later"}
        first = messages["one"]
        assert (first.tags, first.keys, first.properties["colour"]) == ("new", ["k1", "k2"], "red")
        assert [messages[text].keys for text in ("two", "three", "four")] == [["k3"], ["k4", "k5"], ["k6"]]
        assert messages["four"].properties["colour"] == "blue"
        assert first.message_id == receipt.message_id
        assert first.offset_message_id == receipt.offset_message_id
        assert len(batch.offset_message_id.split(",")) == 2

    asyncio.run(scenario())


def test_member_continues_at_the_committed_offset(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            for number in range(20):
                await mq.send("GoOn", str(number))
            async with await mq.consume("GoOn", group="going-on", start_from="first") as consumer:
                seen = [message.text for message in await take(consumer, 8)]
        async with connect(cluster) as mq:
            consumer = await mq.consume("GoOn", group="going-on", start_from="first")
            seen += [message.text for message in await take(consumer, 12)]
        assert sorted(seen, key=int) == [str(number) for number in range(20)]

    asyncio.run(scenario())


def test_unacknowledged_message_is_redelivered(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            await mq.send("Unfinished", "work")
            async with await mq.consume("Unfinished", group="crashing", start_from="first") as consumer:
                message = await consumer.next(SECONDS_MAX)
                assert message is not None
            async with await mq.consume("Unfinished", group="crashing", start_from="first") as consumer:
                assert [each.text for each in await take(consumer, 1)] == ["work"]

    asyncio.run(scenario())


def test_two_members_share_the_queues(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as one, connect(cluster) as other:
            await one.send("Shared", "begin")
            first = await one.consume("Shared", group="sharing", start_from="first")
            second = await other.consume("Shared", group="sharing", start_from="first")
            async with asyncio.timeout(SECONDS_MAX):
                while not (shares := [_of(first, "Shared"), _of(second, "Shared")])[0] or shares[0] & shares[1]:  # noqa: ASYNC110 - it is the others who act
                    await asyncio.sleep(0.05)
            assert [len(share) for share in shares] == [2, 2]
            await second.close()
            async with asyncio.timeout(SECONDS_MAX):
                while len(_of(first, "Shared")) < 4:  # noqa: ASYNC110 - it is the others who act
                    await asyncio.sleep(0.05)

    asyncio.run(scenario())


def _of(consumer: Consumer, topic: str) -> set[int]:
    return {queue.queue_id for queue in consumer.queues if queue.topic == topic}


def test_tags(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            for number in range(12):
                await mq.send("Tagged", str(number), tags="ABC"[number % 3])
            consumer = await mq.consume("Tagged", group="tagged", tags="A || C", start_from="first")
            assert {message.tags for message in await take(consumer, 8)} == {"A", "C"}

    asyncio.run(scenario())


def test_group_may_start_at_a_timestamp(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            await mq.send("Later", "before")
            later = await mq.consume("Later", group="later", start_from=datetime.now(UTC) + timedelta(hours=1))
            assert await later.next(0.3) is None

    asyncio.run(scenario())


def test_in_order_by_key(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            for number in range(60):
                await mq.send("Ordered", str(number), ordered_by=f"customer-{number % 3}")
            consumer = await mq.consume("Ordered", group="in-order", orderly=True, start_from="first")
            seen: dict[int, list[int]] = {}
            retried = False
            while sum(map(len, seen.values())) < 60:
                message = await consumer.next(SECONDS_MAX)
                assert message is not None
                if message.text == "7" and not retried:
                    retried = True
                    await message.retry(after=0.05)
                    continue
                seen.setdefault(int(message.text) % 3, []).append(int(message.text))
                await message.ack()
        assert retried
        assert all(numbers == sorted(numbers) for numbers in seen.values())

    asyncio.run(scenario())


def test_blocking_client_sends_and_consumes(cluster: str) -> None:
    with connect(cluster) as mq:
        mq.send("Twin", "hello")
        with mq.consume("Twin", group="twins", start_from="first") as consumer:
            for message in consumer:
                assert message.text == "hello"
                break


def test_client_errors_contain_advice(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            with pytest.raises(ClientError, match="give one of delay, deliver_at and delay_level"):
                await mq.send("Errors", "x", delay=1, delay_level=1)
            with pytest.raises(ClientError, match="UNIQ_KEY is reserved"):
                await mq.send("Errors", "x", properties={"UNIQ_KEY": "mine"})
            with pytest.raises(ClientError, match="at least one topic"):
                await mq.consume(group="none")
        async with connect("127.0.0.1:1") as mq:
            with pytest.raises((ConnectFailed, NoRoute)):
                await mq.send("Errors", "x", timeout=1)

    asyncio.run(scenario())
    with pytest.raises(ClientError, match="contains no name server"):
        connect("rocketmq://")
