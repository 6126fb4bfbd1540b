"""Transactions, request and reply, reading without a group, administration: with the Python client, over sockets."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from orbitlog.client.connection.connect import connect
from orbitlog.client.consumer.received import Received
from orbitlog.client.producer.receipts import Receipt
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.errors import ClientError, RequestTimeout
from orbitlog.testing.pytest_plugin import MakeBroker
from tests.support.taken_messages import SECONDS_MAX, take


def test_only_committed_messages_are_consumed(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster, producer_group="payments") as mq:
            for number, outcome in enumerate([True, False, True]):
                _, ended = await mq.send_in_transaction("Paid", str(number), branch=lambda _, told=outcome: told)
                assert ended is outcome
            with pytest.raises(ZeroDivisionError):
                await mq.send_in_transaction("Paid", "broken", branch=lambda _: bool(1 / 0))
            with pytest.raises(ClientError, match="invalid transaction outcome 'yes'"):
                await mq.send_in_transaction("Paid", "unclear", branch=lambda _: "yes")  # type: ignore[arg-type, return-value]
            consumer = await mq.consume("Paid", group="bookkeeping", start_from="first")
            assert sorted(message.text for message in await take(consumer, 2)) == ["0", "2"]
            assert await consumer.next(0.3) is None

    asyncio.run(scenario())


async def echo(mq: RocketMQ, topic: str) -> None:
    consumer = await mq.consume(topic, group="servers", start_from="first")
    async for message in consumer:
        await mq.reply(message, message.body.upper())


def test_a_request_is_answered(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as server, connect(cluster) as mq:
            serving = asyncio.create_task(echo(server, "Questions"))
            reply = await mq.request("Questions", "hello", timeout=SECONDS_MAX)
            assert reply.text == "HELLO"
            with pytest.raises(RequestTimeout, match="no reply within"):
                await mq.request("Unheard", "hello", timeout=0.3)
            serving.cancel()

    asyncio.run(scenario())


def test_reading_back_and_forth(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            await mq.admin.create_topic("Readable", 2)
            queue = (await wait_for_queues(mq, "Readable"))[0]
            before = datetime.now(UTC) - timedelta(minutes=1)
            for number in range(10):
                await mq.send("Readable", str(number), queue=queue)
            reader = await mq.read("Readable", queues=[queue])
            assert [await text(reader.next(SECONDS_MAX)) for _ in range(10)] == [str(each) for each in range(10)]
            await reader.seek(queue, 7)
            assert await text(reader.next(SECONDS_MAX)) == "7"
            assert reader.positions() == {queue: 8}
            await reader.seek(queue, before)
            assert await text(reader.next(SECONDS_MAX)) == "0"
            await reader.seek(queue, "last")
            assert await reader.next(0.2) is None

    asyncio.run(scenario())


async def text(coming: object) -> str:
    message = await coming  # type: ignore[misc]
    assert message is not None
    return str(message.text)


async def wait_for_queues(mq: RocketMQ, topic: str) -> list[object]:
    async with asyncio.timeout(SECONDS_MAX):
        while not (queues := list(await mq.admin.topic_offsets(topic))):  # noqa: ASYNC110 - the broker acts
            await asyncio.sleep(0.05)
    return queues


def test_administration_returns_topics_groups_and_messages(cluster: str) -> None:
    async def scenario() -> None:
        async with connect(cluster) as mq:
            assert len(await mq.admin.brokers()) == 1
            await mq.admin.create_topic("Managed", 3)
            queues = await wait_for_queues(mq, "Managed")
            assert len(queues) == 3 and "Managed" in await mq.admin.topics()
            receipt = await mq.send("Managed", "findable", keys=["order-1"])
            async with await mq.consume("Managed", group="managers", start_from="first") as consumer:
                await take(consumer, 1)
            found = [message async for message in mq.admin.find("Managed", "order-1")]
            assert [message.text for message in found] == ["findable"]
            for message_id in (receipt.message_id, receipt.offset_message_id):
                message = await mq.admin.message(message_id, "Managed")
                assert message is not None and message.text == "findable"
            progress = [each for each in await mq.admin.progress("managers") if each.queue.topic == "Managed"]
            assert sum(each.lag for each in progress) == 0 and sum(each.committed for each in progress) == 1
            moved = await mq.admin.reset_offsets("managers", "Managed", datetime.now(UTC) - timedelta(hours=1))
            assert set(moved.values()) == {0}
            async with await mq.consume("Managed", group="managers") as consumer:
                assert [each.text for each in await take(consumer, 1)] == ["findable"]
            await mq.admin.delete_topic("Managed")
            assert "Managed" not in await mq.admin.topics()

    asyncio.run(scenario())


def started_again_and_asked(cluster: str) -> None:
    """The first process leaves without a word, the second sends nothing: brokers learn of it, and ask it."""
    asked: list[str] = []

    def was_paid(message: Received) -> bool:
        asked.append(message.topic)
        return True

    with connect(cluster, producer_group="payments", namespace="shop") as mq:

        def pay(_: Receipt) -> None:
            mq.send("Log", "paying")  # a branch runs beside the client, and may use it

        assert mq.send_in_transaction("Paid", "42", pay)[1] is None
    with connect(cluster, producer_group="payments", namespace="shop") as mq:
        with pytest.raises(ClientError, match="at least one topic"):
            mq.check_transactions(was_paid)
        mq.check_transactions(was_paid, "Paid")
        with mq.read("Paid") as reader:
            message = reader.next(SECONDS_MAX)
            assert message is not None and message.text == "42"
            assert reader.topic == message.topic == "Paid"
    assert set(asked) == {"Paid"}


def test_restarted_process_answers_transaction_checks(make_orbitlog_broker: MakeBroker) -> None:
    started_again_and_asked(make_orbitlog_broker(transactionTimeOut=1, transactionCheckInterval=100).address)
