"""Retries and dead letters as a group's settings say, and what stays of a message through all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_id import parse_offset_message_id
from orbitlog.formats.tables.group_config import GroupConfig
from orbitlog.wire.bodies.body_json import encode_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import Desk, at_desk, records, until
from tests.support.timed_broker import Clock

LEVELS = "1s 5s 10s 30s 1m"


async def put_group(desk: Desk, **settings: Any) -> None:
    body = encode_body(replace(GroupConfig("G"), **settings))
    assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == ResponseCode.SUCCESS


async def send_back(desk: Desk, message: Message, **more: Any) -> Command:
    fields = {"offset": message.physical_offset, "group": "G", "delayLevel": 0, **more}
    return await desk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **fields)


async def stored(desk: Desk, topic: str = "Orders", queue_id: int = 0) -> list[Message]:
    store = desk.broker.state.store
    await until(lambda: store.dispatched_to == store.written_to)
    return records(await desk.pull(topic, queue_id))


async def delivered(desk: Desk) -> None:
    """Deliver what is due by the test's clock."""
    state = desk.broker.state
    desk.broker._delayed.deliver_due(state.now_ms())
    await until(lambda: state.store.dispatched_to == state.store.written_to)


def test_retried_message_keeps_its_ids_until_the_dead_letter_topic(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        sent = await desk.send(body=b"hard", properties={"TAGS": "t", "KEYS": "k"}, born_timestamp_ms=12345)
        (first,) = await stored(desk)
        message = first
        for attempt, delay_ms in ((1, 10_000), (2, 30_000)):
            await send_back(desk, message, maxReconsumeTimes=2)
            clock.now_ms += delay_ms - 1
            await stored(desk)
            await delivered(desk)
            assert len(await stored(desk, "%RETRY%G")) == attempt - 1
            clock.now_ms += 1
            await delivered(desk)
            message = (await stored(desk, "%RETRY%G"))[-1]
            assert message.reconsume_times == attempt
        await send_back(desk, message, maxReconsumeTimes=2)
        (dead,) = await stored(desk, "%DLQ%G")
        assert (dead.body, dead.reconsume_times, dead.born_timestamp_ms) == (b"hard", 3, 12345)
        assert dead.born_host_raw == first.born_host_raw
        origin = parse_offset_message_id(dead.properties["ORIGIN_MESSAGE_ID"])
        assert origin.physical_offset == first.physical_offset
        assert dead.properties["ORIGIN_MESSAGE_ID"] == sent.ext_fields["msgId"]
        kept = {"RETRY_TOPIC": "Orders", "TAGS": "t", "KEYS": "k", "UNIQ_KEY": first.properties["UNIQ_KEY"]}
        assert kept.items() <= dead.properties.items()
        assert "DELAY" not in dead.properties

    at_desk(tmp_path, work, now_ms=clock, messageDelayLevel=LEVELS)


def test_group_config_limits_the_attempts(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await put_group(desk, retry_times_max=0)
        await desk.send()
        (message,) = await stored(desk)
        assert (await send_back(desk, message)).code == ResponseCode.SUCCESS
        assert len(await stored(desk, "%DLQ%G")) == 1
        await send_back(desk, message, maxReconsumeTimes=5)  # a client that sets the maximum itself
        assert len(await stored(desk, "%DLQ%G")) == 1

    at_desk(tmp_path, work, now_ms=Clock())


def test_group_config_sets_the_number_of_retry_queues(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        await put_group(desk, retry_queue_count=3)
        await desk.send()
        (message,) = await stored(desk)
        for _ in range(40):
            await send_back(desk, message)
        topic = desk.broker.state.topics.find("%RETRY%G")
        assert topic is not None and topic.read_queue_count == 3
        clock.now_ms += 10_000
        await delivered(desk)
        assert all([await stored(desk, "%RETRY%G", queue_id) for queue_id in range(3)])
        await put_group(desk, retry_queue_count=0)
        before = desk.broker.state.store.written_to
        assert (await send_back(desk, message)).code == ResponseCode.SUCCESS
        assert desk.broker.state.store.written_to == before  # without retry queues nothing is retried

    at_desk(tmp_path, work, now_ms=clock)


def test_delay_level_of_the_request_is_obeyed(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        await desk.send()
        (message,) = await stored(desk)
        await send_back(desk, message, delayLevel=-1)
        assert len(await stored(desk, "%DLQ%G")) == 1
        await send_back(desk, message, delayLevel=2)
        assert len(await stored(desk, "SCHEDULE_TOPIC_XXXX", 1)) == 1

    at_desk(tmp_path, work, now_ms=Clock(), messageDelayLevel=LEVELS)


def test_disabled_group_is_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await put_group(desk, consume_broadcast_enabled=False)
        await desk.heartbeat(messageModel="BROADCASTING")
        assert (await desk.pull(sys_flag=0, subscription=None)).code == ResponseCode.NO_PERMISSION
        await desk.heartbeat(messageModel="CLUSTERING")
        assert (await desk.pull(sys_flag=0, subscription=None)).code == ResponseCode.SUCCESS
        await put_group(desk, consume_enabled=False)
        assert (await desk.pull(sys_flag=0, subscription=None)).code == ResponseCode.NO_PERMISSION
        await put_group(desk)
        assert (await desk.pull(sys_flag=0, subscription=None)).code == ResponseCode.SUCCESS

    at_desk(tmp_path, work)
