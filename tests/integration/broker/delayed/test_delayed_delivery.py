"""Delayed and redelivered messages: delivered when due, and moved to the dead-letter topic in the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitlog.formats.names import SCHEDULE_TOPIC
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk, desk_at, records, until

SUSPEND = 6
QUICK = "1s 1s 1s 1s 1s 1s"


def test_delayed_message_is_delivered_when_due(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send("Now", queue_id=2)
        await desk.send("Now", b"later", queue_id=1, properties={"DELAY": "1", "TAGS": "x"})
        assert (await desk.pull("Now", 1)).code == ResponseCode.PULL_NOT_FOUND
        (message,) = records(await desk.pull("Now", 1, sys_flag=SUSPEND, subscription="x"))
        assert message.body == b"later" and message.properties["DELAY"] == "1"
        assert message.properties["REAL_TOPIC"] == "Now"
        (waiting,) = records(await desk.pull(SCHEDULE_TOPIC, 0))
        assert message.store_timestamp_ms - waiting.store_timestamp_ms >= 1000

    at_desk(tmp_path, work)


def test_delayed_message_with_sync_flush_is_delivered_without_other_sends(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send("Now", b"later", properties={"DELAY": "1"})
        await until(lambda: desk.broker.state.max_offset("Now", 0) == 1)

    at_desk(tmp_path, work, flushDiskType="SYNC_FLUSH", messageDelayLevel="1s")


def test_delay_level_past_the_highest_counts_as_the_highest(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send(properties={"DELAY": "99"})
        (waiting,) = records(await desk.pull(SCHEDULE_TOPIC, 5))
        assert waiting.properties["DELAY"] == "6"

    at_desk(tmp_path, work, messageDelayLevel=QUICK)


def test_delayed_delivery_continues_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_at(tmp_path) as desk:
            await desk.send("Now", b"1", properties={"DELAY": "1"})
            assert len(records(await desk.pull("Now", sys_flag=SUSPEND))) == 1
            await desk.send("Now", b"2", properties={"DELAY": "1"})
        async with desk_at(tmp_path) as desk:
            found = records(await desk.pull("Now", queue_offset=1, sys_flag=SUSPEND))
            assert [message.body for message in found] == [b"2"], "the first is not delivered a second time"

    asyncio.run(work())


@pytest.mark.parametrize("has_queue", [True, False])
def test_message_sent_after_the_offset_of_its_level_was_past_the_end_is_delivered(
    has_queue: bool, tmp_path: Path
) -> None:
    async def work() -> None:
        async with desk_at(tmp_path) as desk:
            await desk.send("Now", b"1", properties={"DELAY": "1"} if has_queue else {})
            await until(lambda: desk.broker.state.max_offset("Now", 0) == 1)
        (tmp_path / "config/delayOffset.json.bak").unlink(missing_ok=True)
        (tmp_path / "config/delayOffset.json").write_text('{"offsetTable":{1:1000}}')
        async with desk_at(tmp_path) as desk:
            await asyncio.sleep(0.2)
            await desk.send("Now", b"2", properties={"DELAY": "1"})
            found = records(await desk.pull("Now", queue_offset=1, sys_flag=SUSPEND))
            assert [message.body for message in found] == [b"2"]

    asyncio.run(work())


def test_message_sent_back_is_redelivered_until_it_becomes_a_dead_letter(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        await desk.send(body=b"hard", properties={"TAGS": "t"})
        (message,) = records(await desk.pull())
        for attempt in (1, 2):
            answer = await desk.ask(
                RequestCode.CONSUMER_SEND_MSG_BACK,
                offset=message.physical_offset,
                group="G",
                delayLevel=0,
                originTopic="Orders",
                maxReconsumeTimes=2,
            )
            assert answer.code == ResponseCode.SUCCESS
            found = records(await desk.pull("%RETRY%G", queue_offset=attempt - 1, sys_flag=SUSPEND))
            (message,) = found
            assert (message.body, message.reconsume_times) == (b"hard", attempt)
            assert message.properties["RETRY_TOPIC"] == "Orders" and message.properties["TAGS"] == "t"
        fields = {"offset": message.physical_offset, "group": "G", "delayLevel": 0, "maxReconsumeTimes": 2}
        await desk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **fields)
        await until(lambda: desk.broker.state.max_offset("%DLQ%G", 0) == 1)
        (dead,) = records(await desk.pull("%DLQ%G"))
        assert dead.body == b"hard" and dead.reconsume_times == 3
        assert dead.properties["ORIGIN_MESSAGE_ID"] == message.properties["ORIGIN_MESSAGE_ID"]

    at_desk(tmp_path, work, messageDelayLevel=QUICK)


def test_sending_back_an_offset_without_message_is_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for place in (0, 12345, -1):
            answer = await desk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, offset=place, group="G", delayLevel=0)
            assert answer.code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, work)


def test_retry_sent_by_a_client_becomes_a_dead_letter(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        answer = await desk.send("%RETRY%G", b"hard", reconsume_times=17, max_reconsume_times=16)
        assert answer.code == ResponseCode.SUCCESS
        assert len(records(await desk.pull("%DLQ%G"))) == 1
        await desk.send("%RETRY%G", b"soft", reconsume_times=1, max_reconsume_times=16)
        assert len(records(await desk.pull("%RETRY%G"))) == 1

    at_desk(tmp_path, work)


def test_delayed_messages_after_a_long_stop_are_delivered_once_in_order(tmp_path: Path) -> None:
    now_ms = 1_800_000_000_000

    async def before(desk: Desk) -> None:
        for number in range(200):
            await desk.send(body=b"%d" % number, properties={"DELAY": str(1 + number % 2)})

    async def after(desk: Desk) -> None:
        await until(lambda: desk.broker.state.max_offset("Orders", 0) == 200)
        found = [
            int(message.body) for start in range(0, 200, 32) for message in records(await desk.pull(queue_offset=start))
        ]
        assert sorted(found) == list(range(200))
        for parity in (0, 1):
            of_level = [number for number in found if number % 2 == parity]
            assert of_level == sorted(of_level)

    at_desk(tmp_path, before, now_ms=lambda: now_ms, messageDelayLevel="1h 2d")
    later_ms = now_ms + 3 * 86_400_000
    at_desk(tmp_path, after, now_ms=lambda: later_ms, messageDelayLevel="1h 2d")
    at_desk(tmp_path, after, now_ms=lambda: later_ms + 86_400_000, messageDelayLevel="1h 2d")


def test_messages_of_removed_levels_are_delivered_when_due(tmp_path: Path) -> None:
    now_ms, hour_ms = 1_800_000_000_000, 3_600_000

    async def before(desk: Desk) -> None:
        await desk.send(body=b"a day", properties={"DELAY": "3"})
        await desk.send(body=b"an hour", properties={"DELAY": "2"})

    async def meanwhile(desk: Desk) -> None:
        await until(lambda: desk.broker.state.max_offset("Orders", 0) == 1)
        await desk.send("Others", b"a second", properties={"DELAY": "3"})
        (waiting,) = records(await desk.pull(SCHEDULE_TOPIC, 0))
        assert waiting.body == b"a second", "the highest level of the setting"

    async def after(desk: Desk) -> None:
        await until(lambda: desk.broker.state.max_offset("Orders", 0) == 2)
        assert [message.body for message in records(await desk.pull())] == [b"an hour", b"a day"]

    at_desk(tmp_path, before, now_ms=lambda: now_ms, messageDelayLevel="1s 1h 1d")
    at_desk(tmp_path, meanwhile, now_ms=lambda: now_ms + hour_ms, messageDelayLevel="1s")
    at_desk(tmp_path, after, now_ms=lambda: now_ms + 25 * hour_ms, messageDelayLevel="1s")
