"""POP from a client's view: pop, acknowledge, extend, expire, restart. The test sets the clock."""

from __future__ import annotations

import asyncio
import base64
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orbitlog.broker.pop.held_pops import HeldPop, HeldPops
from orbitlog.broker.pulling.held_requests import HeldRequests
from orbitlog.formats.records.message import Message
from orbitlog.settings.limits import Limits
from orbitlog.wire.bodies.body_json import write_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.pop_headers import PopMessageResponse
from orbitlog.wire.pop_receipt import ORDERED_REVIVE_QUEUE, PopReceipt, parse_receipt
from tests.support.broker_desk import Desk, at_desk, client_of, records, until

HOUR_MS = 3_600_000
INVISIBLE_MS = 60_000
RETRY_TOPIC = "%RETRY%G_Orders"


class Clock:
    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.ms


async def pop(desk: Desk, **more: Any) -> Command:
    fields: dict[str, Any] = {
        "consumerGroup": "G",
        "topic": "Orders",
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": INVISIBLE_MS,
        "pollTime": 0,
        "bornTime": 0,
        "initMode": 0,
        **more,
    }
    return await desk.ask(RequestCode.POP_MESSAGE, **fields)


def receipts(answer: Command) -> list[tuple[Message, PopReceipt]]:
    """Return the receipt of each message as a client does: its own if it has one, else that of the header."""
    header = PopMessageResponse.from_ext_fields(answer.ext_fields)
    starts = dict(_pairs(header.start_offset_info or ""))
    found = []
    for message in records(answer):
        own = message.properties.get("POP_CK")
        if own is None:
            start = int(starts[("0", str(message.queue_id))])
            flights = (header.pop_timestamp_ms, header.invisible_ms, header.revive_queue_id)
            own = str(PopReceipt(start, *flights, "0", "broker-a", message.queue_id, message.queue_offset))
        found.append((message, parse_receipt(own)))
    return found


def _pairs(info: str) -> list[tuple[tuple[str, str], str]]:
    parts = [part.split(" ") for part in info.split(";") if part]
    return [((part[0], part[1]), part[2]) for part in parts]


async def revived(desk: Desk, clock: Clock, count: int) -> None:
    """End the invisibility timeout, and wait until N messages of the revive log are in the retry topic."""
    clock.ms += INVISIBLE_MS

    def are_there() -> bool:
        clock.ms += 10
        return desk.broker.state.max_offset(RETRY_TOPIC, 0) == count

    await until(are_there)


def named(receipt: PopReceipt) -> dict[str, Any]:
    topic = RETRY_TOPIC if receipt.retry == "1" else "Orders"
    return {
        "consumerGroup": "G",
        "topic": topic,
        "queueId": receipt.queue_id,
        "extraInfo": str(receipt),
        "offset": receipt.queue_offset,
    }


async def acknowledge(desk: Desk, receipt: PopReceipt) -> Command:
    return await desk.ask(RequestCode.ACK_MESSAGE, **named(receipt))


async def send_numbered(desk: Desk, count: int, **more: Any) -> None:
    for number in range(count):
        await desk.send(body=str(number).encode(), **more)
    await until(lambda: desk.broker.state.max_offset("Orders", 0) >= count)


def bodies(answer: Command) -> list[bytes]:
    return [message.body for message in records(answer)]


def committed(desk: Desk) -> int | None:
    return desk.broker.state.offsets.find("Orders", "G", 0)


def test_popped_message_is_invisible_and_committed_when_acknowledged(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await send_numbered(desk, 3)
        answer = await pop(desk)
        assert (answer.code, bodies(answer)) == (ResponseCode.SUCCESS, [b"0", b"1", b"2"])
        assert (await pop(desk)).code == ResponseCode.POLLING_TIMEOUT
        first, second, third = [receipt for _, receipt in receipts(answer)]
        assert (await acknowledge(desk, second)).code == ResponseCode.SUCCESS
        assert committed(desk) == 0  # the first is still in flight
        await acknowledge(desk, first)
        assert committed(desk) == 2
        await acknowledge(desk, third)
        assert committed(desk) == 3

    at_desk(tmp_path, work, now_ms=Clock())


def test_unacknowledged_message_is_redelivered_with_count_and_real_topic(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        await send_numbered(desk, 2)
        first, second = receipts(await pop(desk))
        await acknowledge(desk, first[1])
        clock.ms += INVISIBLE_MS - 1
        assert (await pop(desk)).code == ResponseCode.POLLING_TIMEOUT
        clock.ms += 1
        await until(lambda: desk.broker.state.max_offset(RETRY_TOPIC, 0) == 1)
        assert committed(desk) == 2
        ((again, receipt),) = receipts(await pop(desk))
        assert (again.topic, again.body, again.reconsume_times) == ("Orders", b"1", 1)
        assert again.properties["UNIQ_KEY"] == second[0].properties["UNIQ_KEY"]
        assert (receipt.retry, receipt.queue_offset) == ("1", 0)
        assert (await acknowledge(desk, second[1])).code == ResponseCode.SUCCESS  # too late: without effect
        clock.ms += INVISIBLE_MS
        await until(lambda: desk.broker.state.max_offset(RETRY_TOPIC, 0) == 2)
        ((once_more, receipt),) = receipts(await pop(desk))
        assert once_more.reconsume_times == 2
        await acknowledge(desk, receipt)
        clock.ms += HOUR_MS
        await asyncio.sleep(0.3)
        assert (await pop(desk)).code == ResponseCode.POLLING_TIMEOUT

    at_desk(tmp_path, work, now_ms=clock)


def test_separate_retry_queues_keep_the_queue_of_a_message(tmp_path: Path) -> None:
    """Also for a retry topic with one queue, which an earlier run without the setting left."""
    clock = Clock()

    async def before(desk: Desk) -> None:
        await desk.send(body=b"first", queue_id=2)
        await until(lambda: desk.broker.state.max_offset("Orders", 2) == 1)
        await pop(desk)
        clock.ms += INVISIBLE_MS
        await until(lambda: desk.broker.state.max_offset(RETRY_TOPIC, 0) == 1)

    async def after(desk: Desk) -> None:
        state = desk.broker.state
        await desk.send(body=b"second", queue_id=2)
        await until(lambda: state.max_offset("Orders", 2) == 2)
        assert sorted(bodies(await pop(desk))) == [b"first", b"second"]
        clock.ms += INVISIBLE_MS
        await until(lambda: state.max_offset(RETRY_TOPIC, 0) + state.max_offset(RETRY_TOPIC, 2) == 3)
        retry_topic = state.topics.find(RETRY_TOPIC)
        assert retry_topic is not None and retry_topic.write_queue_count == 4
        found = receipts(await pop(desk))
        assert sorted((message.body, receipt.queue_id) for message, receipt in found) == [(b"first", 0), (b"second", 2)]
        for _, receipt in found:
            assert (await acknowledge(desk, receipt)).code == ResponseCode.SUCCESS

    at_desk(tmp_path, before, now_ms=clock)
    at_desk(tmp_path, after, now_ms=clock, useSeparateRetryQueue="true")


def test_extended_invisibility_has_a_new_receipt(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        await send_numbered(desk, 1)
        ((_, receipt),) = receipts(await pop(desk))
        ask = {**named(receipt), "invisibleTime": 10 * INVISIBLE_MS}
        answer = await desk.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **ask)
        assert answer.code == ResponseCode.SUCCESS
        new = receipt.__class__(
            receipt.start_queue_offset,
            int(answer.ext_fields["popTime"]),
            int(answer.ext_fields["invisibleTime"]),
            *(0, "0", "broker-a", receipt.queue_id, receipt.queue_offset),
        )
        assert (await desk.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **ask)).code == ResponseCode.NO_MESSAGE
        await acknowledge(desk, receipt)  # the old receipt
        assert committed(desk) == 0
        clock.ms += 10 * INVISIBLE_MS - 1
        await asyncio.sleep(0.2)
        assert desk.broker.state.max_offset(RETRY_TOPIC, 0) == 0
        await acknowledge(desk, new)
        assert committed(desk) == 1

    at_desk(tmp_path, work, now_ms=clock)


@pytest.mark.parametrize("queue_id", [-1, 0])
def test_pop_without_message_waits(tmp_path: Path, queue_id: int) -> None:
    async def work(desk: Desk) -> None:
        await desk.send(body=b"makes the topic")
        await acknowledge(desk, receipts(await pop(desk, queueId=queue_id))[0][1])
        waiting = asyncio.create_task(pop(desk, queueId=queue_id, pollTime=20_000))
        held = desk.broker._pops._pops.held
        await until(lambda: len(held) == 1)
        info = await desk.ask(RequestCode.POLLING_INFO, consumerGroup="G", topic="Orders", queueId=queue_id)
        assert info.ext_fields["pollingNum"] == "1"
        await desk.send(body=b"at last")
        assert bodies(await waiting) == [b"at last"]
        assert not len(held)

    at_desk(tmp_path, work)


def test_held_pops_share_new_messages(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send(body=b"makes the topic")
        await acknowledge(desk, receipts(await pop(desk))[0][1])
        async with client_of(desk) as other:
            waiting = [asyncio.create_task(pop(each, pollTime=20_000, maxMsgNums=1)) for each in (desk, other)]
            await until(lambda: len(desk.broker._pops._pops.held) == 2)
            await desk.send(body=b"a")
            await desk.send(body=b"b")
            assert sorted(bodies(await waiting[0]) + bodies(await waiting[1])) == [b"a", b"b"]

    at_desk(tmp_path, work)


def test_held_pop_ends_at_its_timeout(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        await desk.send(topic="Empty")
        waiting = asyncio.create_task(pop(desk, topic="Empty", consumerGroup="H", initMode=1, pollTime=5_000))
        await until(lambda: waiting.done() or len(desk.broker._pops._pops.held) == 1)
        if waiting.done():  # messages in memory are popped even by late requests, as in Java
            assert len(records(await waiting)) == 1
            waiting = asyncio.create_task(pop(desk, topic="Empty", consumerGroup="H", pollTime=5_000))
            await until(lambda: len(desk.broker._pops._pops.held) == 1)
        clock.ms += 5_000
        assert (await waiting).code == ResponseCode.POLLING_TIMEOUT

    at_desk(tmp_path, work, now_ms=clock)


def test_pop_with_tags_skips_other_messages(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for number in range(6):
            await desk.send(body=str(number).encode(), properties={"TAGS": "even" if number % 2 == 0 else "odd"})
        await until(lambda: desk.broker.state.max_offset("Orders", 0) == 6)
        answer = await pop(desk, exp="odd", expType="TAG")
        assert bodies(answer) == [b"1", b"3", b"5"]
        for _, receipt in receipts(answer):
            await acknowledge(desk, receipt)
        assert committed(desk) == 6
        answer = await pop(desk, consumerGroup="S", exp="number > 3", expType="SQL92")
        assert answer.code == ResponseCode.SYSTEM_ERROR  # enablePropertyFilter is off

    at_desk(tmp_path, work, now_ms=Clock())


def test_pop_with_an_expression_filters_by_properties(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for number in range(6):
            await desk.send(body=str(number).encode(), properties={"number": str(number)})
        await until(lambda: desk.broker.state.max_offset("Orders", 0) == 6)
        assert bodies(await pop(desk, exp="number > 3", expType="SQL92")) == [b"4", b"5"]
        assert (await pop(desk, exp="number >", expType="SQL92")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    at_desk(tmp_path, work, now_ms=Clock(), enablePropertyFilter="true")


def test_batch_acknowledges_many_messages(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await send_numbered(desk, 20)
        answer = await pop(desk)
        ((_, first), *_) = receipts(answer)
        bits = sum(1 << each for each in range(20) if each != 11)
        ack = {
            "c": "G",
            "t": "Orders",
            "r": "0",
            "so": first.start_queue_offset,
            "q": 0,
            "rq": 0,
            "pt": first.pop_timestamp_ms,
            "it": first.invisible_ms,
            "b": base64.b64encode(bits.to_bytes(3, "little")).decode(),
        }
        body = write_body({"brokerName": "broker-a", "acks": [ack]})
        assert (await desk.ask(RequestCode.BATCH_ACK_MESSAGE, body)).code == ResponseCode.SUCCESS
        assert committed(desk) == 11
        body = write_body({"brokerName": "broker-a", "acks": [{**ack, "b": "%%"}]})
        assert (await desk.ask(RequestCode.BATCH_ACK_MESSAGE, body)).code == ResponseCode.MESSAGE_ILLEGAL

    at_desk(tmp_path, work, now_ms=Clock())


def test_ordered_pop_delivers_one_batch_at_a_time(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        await send_numbered(desk, 4)
        answer = await pop(desk, order="true", maxMsgNums=2, queueId=0)
        assert bodies(answer) == [b"0", b"1"]
        assert answer.ext_fields["reviveQid"] == str(ORDERED_REVIVE_QUEUE)
        assert answer.ext_fields["orderCountInfo"] == "0 0 0"
        assert (await pop(desk, order="true", queueId=0)).code == ResponseCode.POLLING_TIMEOUT
        (_, first), (_, second) = receipts(answer)
        await acknowledge(desk, first)
        assert committed(desk) == 1
        clock.ms += INVISIBLE_MS
        answer = await pop(desk, order="true", maxMsgNums=2, queueId=0)
        assert bodies(answer) == [b"1", b"2"]  # the second once more, in its order
        assert answer.ext_fields["orderCountInfo"] == "0 qo0%1 1;0 0 0"
        await acknowledge(desk, second)  # an old receipt
        assert committed(desk) == 1
        waiting = asyncio.create_task(pop(desk, order="true", queueId=0, pollTime=20_000))
        await until(lambda: len(desk.broker._pops._pops.held) == 1)
        for _, receipt in receipts(answer):
            await acknowledge(desk, receipt)
        assert bodies(await waiting) == [b"3"]

    at_desk(tmp_path, work, now_ms=clock)


def test_ordered_pop_retried_with_its_attempt_id_gets_the_same_batch(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await send_numbered(desk, 2)
        asked = {"order": "true", "queueId": 0, "attemptId": "a", "maxMsgNums": 1}
        assert bodies(await pop(desk, **asked)) == bodies(await pop(desk, **asked)) == [b"0"]
        assert (await pop(desk, **{**asked, "attemptId": "b"})).code == ResponseCode.POLLING_TIMEOUT

    at_desk(tmp_path, work, now_ms=Clock())


def test_restart_keeps_messages_in_flight_and_acknowledgements(tmp_path: Path) -> None:
    clock = Clock()
    kept: list[PopReceipt] = []

    async def before(desk: Desk) -> None:
        await send_numbered(desk, 3)
        first, second, _ = receipts(await pop(desk))
        await acknowledge(desk, second[1])
        kept.append(first[1])

    async def after(desk: Desk) -> None:
        assert committed(desk) == 3, "messages in flight were handed over as a checkpoint"
        assert (await pop(desk)).code == ResponseCode.POLLING_TIMEOUT
        await acknowledge(desk, kept[0])
        await revived(desk, clock, 1)
        assert bodies(await pop(desk)) == [b"2"]

    at_desk(tmp_path, before, now_ms=clock)
    at_desk(tmp_path, after, now_ms=clock)


def test_message_in_flight_is_redelivered_after_a_restart_without_a_pop(tmp_path: Path) -> None:
    clock = Clock()

    async def before(desk: Desk) -> None:
        assert not desk.broker._pops._is_in_use, "the handlers are imported with the first request"
        await send_numbered(desk, 2)
        await pop(desk)

    async def after(desk: Desk) -> None:
        await revived(desk, clock, 2)

    at_desk(tmp_path, before, now_ms=clock)
    at_desk(tmp_path, after, now_ms=clock)


def test_message_delivered_before_a_restart_can_be_extended(tmp_path: Path) -> None:
    clock = Clock()
    kept: list[PopReceipt] = []

    async def before(desk: Desk) -> None:
        await send_numbered(desk, 2)
        kept.extend(receipt for _, receipt in receipts(await pop(desk)))

    async def after(desk: Desk) -> None:
        longer = {"invisibleTime": 10 * INVISIBLE_MS}
        renewed = []
        for receipt in kept:
            answer = await desk.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **named(receipt), **longer)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            times = {"pop_timestamp_ms": int(answer.ext_fields["popTime"]), "invisible_ms": 10 * INVISIBLE_MS}
            renewed.append(replace(receipt, start_queue_offset=receipt.queue_offset, **times))
        await acknowledge(desk, renewed[0])
        clock.ms += 2 * INVISIBLE_MS
        for _ in range(20):
            clock.ms += 1_000
            await asyncio.sleep(0.02)
        assert desk.broker.state.max_offset(RETRY_TOPIC, 0) == 0, "neither is visible yet"
        clock.ms += 10 * INVISIBLE_MS
        await revived(desk, clock, 1)
        assert bodies(await pop(desk)) == [b"1"]

    at_desk(tmp_path, before, now_ms=clock)
    at_desk(tmp_path, after, now_ms=clock)


def test_saved_offset_passes_messages_acknowledged_after_one_in_flight(tmp_path: Path) -> None:
    """A killed broker leaves its offsets and the log: the message in flight is a checkpoint, as after a stop."""
    clock, killed = Clock(), tmp_path / "killed"

    async def before(desk: Desk) -> None:
        await send_numbered(desk, 4)
        given = [receipt for _, receipt in receipts(await pop(desk))]
        for receipt in (given[0], given[2]):
            await acknowledge(desk, receipt)
        assert committed(desk) == 1
        await desk.broker._saver.save_offsets()
        assert committed(desk) == 4
        shutil.copytree(tmp_path / "store", killed)
        await acknowledge(desk, given[3])
        await revived(desk, clock, 1)
        assert bodies(await pop(desk)) == [b"1"]

    async def after(desk: Desk) -> None:
        assert committed(desk) == 4
        assert (await pop(desk)).code == ResponseCode.POLLING_TIMEOUT
        await revived(desk, clock, 2)
        assert bodies(await pop(desk)) == [b"1", b"3"]

    at_desk(tmp_path / "store", before, now_ms=clock)
    for path in (killed / "config").glob("orbitlogPops.json*"):
        path.unlink()  # a Java broker does not read it
    at_desk(killed, after, now_ms=clock)


def test_save_without_a_gap_appends_no_checkpoint(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await send_numbered(desk, 3)
        first, _, _ = receipts(await pop(desk))
        await acknowledge(desk, first[1])
        written_to = desk.broker.state.store.written_to
        await desk.broker._saver.save_offsets()
        assert (committed(desk), desk.broker.state.store.written_to) == (1, written_to)

    at_desk(tmp_path, work, now_ms=Clock())


def test_restart_without_the_table_redelivers_messages_in_flight(tmp_path: Path) -> None:
    """As after a crash before the table was ever saved: the offsets alone lose nothing.

    Without the timer nothing is handed over when the broker stops.
    """

    async def before(desk: Desk) -> None:
        await send_numbered(desk, 3)
        _, second, _ = receipts(await pop(desk))
        await acknowledge(desk, second[1])

    async def after(desk: Desk) -> None:
        assert bodies(await pop(desk)) == [b"0", b"1", b"2"]

    at_desk(tmp_path, before, now_ms=Clock(), timerWheelEnable="false")
    for path in (tmp_path / "config").glob("orbitlogPops.json*"):
        path.unlink()
    at_desk(tmp_path, after, now_ms=Clock())


def test_ordered_batch_survives_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    kept: list[PopReceipt] = []

    async def before(desk: Desk) -> None:
        await send_numbered(desk, 2)
        ((_, receipt),) = receipts(await pop(desk, order="true", maxMsgNums=1, queueId=0))
        kept.append(receipt)

    async def after(desk: Desk) -> None:
        assert (await pop(desk, order="true", queueId=0)).code == ResponseCode.POLLING_TIMEOUT
        await acknowledge(desk, kept[0])
        assert bodies(await pop(desk, order="true", queueId=0)) == [b"1"]

    at_desk(tmp_path, before, now_ms=clock)
    at_desk(tmp_path, after, now_ms=clock)


def test_offset_reset_applies_to_pops(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await send_numbered(desk, 5)
        await pop(desk)
        ask = {"topic": "Orders", "group": "G", "queueId": 0, "offset": 3, "timestamp": -1, "isForce": "true"}
        assert (await desk.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **ask)).code == ResponseCode.SUCCESS
        assert bodies(await pop(desk)) == [b"3", b"4"]
        assert committed(desk) == 3

    at_desk(tmp_path, work, now_ms=Clock())


def test_notification_and_peek_leave_messages_visible(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await send_numbered(desk, 1)
        asked = {"consumerGroup": "G", "topic": "Orders", "queueId": -1}
        look = await desk.ask(RequestCode.PEEK_MESSAGE, **asked, maxMsgNums=32)
        assert bodies(look) == [b"0"]
        there = await desk.ask(RequestCode.NOTIFICATION, **asked, pollTime=20_000, bornTime=0)
        assert there.ext_fields["hasMsg"] == "true"
        await pop(desk)
        waiting = [
            asyncio.create_task(desk.ask(RequestCode.NOTIFICATION, **asked, pollTime=20_000, bornTime=0))
            for _ in range(2)
        ]
        await until(lambda: len(desk.broker._pops._pops.held) == 2)
        await desk.send(body=b"news")
        assert [(await each).ext_fields["hasMsg"] for each in waiting] == ["true", "true"]

    at_desk(tmp_path, work)


def test_invalid_pops_are_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await send_numbered(desk, 1)
        assert (await pop(desk, topic="None")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await pop(desk, maxMsgNums=33)).code == ResponseCode.INVALID_PARAMETER
        assert (await pop(desk, queueId=99)).code == ResponseCode.INVALID_PARAMETER
        assert (await pop(desk, consumerGroup="..")).code == ResponseCode.INVALID_PARAMETER
        ack = {"consumerGroup": "G", "topic": "Orders", "queueId": 0, "offset": 0}
        assert (await desk.ask(RequestCode.ACK_MESSAGE, **ack, extraInfo="1 2")).code == ResponseCode.INVALID_PARAMETER
        good = "0 1 2 0 0 broker-a 0 0"
        answer = await desk.ask(RequestCode.ACK_MESSAGE, **{**ack, "offset": 7}, extraInfo=good)
        assert answer.code == ResponseCode.NO_MESSAGE
        assert (await desk.ask(RequestCode.BATCH_ACK_MESSAGE, b"{}")).code == ResponseCode.NO_MESSAGE

    async def limited(desk: Desk) -> None:
        await send_numbered(desk, 1)
        groups = desk.broker.state.groups
        config = groups.find_or_create("G", auto_create=True)
        assert config is not None
        groups.put(replace(config, consume_enabled=False))
        assert (await pop(desk)).code == ResponseCode.NO_PERMISSION

    at_desk(tmp_path / "one", work, now_ms=Clock())
    at_desk(tmp_path / "other", limited, now_ms=Clock())


def test_assignment_of_queues_by_the_broker(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await desk.heartbeat(client_id="one")
        ask = {"topic": "Orders", "consumerGroup": "G", "clientId": "one", "strategyName": "AVG"}
        answer = await desk.ask(RequestCode.QUERY_ASSIGNMENT, write_body({**ask, "messageModel": "CLUSTERING"}))
        assert answer.body.count(b'"PULL"') == 4
        mode = {"topic": "Orders", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 2}
        assert (await desk.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, write_body(mode))).code == ResponseCode.SUCCESS
        answer = await desk.ask(RequestCode.QUERY_ASSIGNMENT, write_body({**ask, "messageModel": "CLUSTERING"}))
        assert answer.body.count(b'"POP"') == 1
        assert b'"queueId":-1' in answer.body
        async with client_of(desk) as second, client_of(desk) as third, client_of(desk) as fourth:
            for each, name in ((second, "two"), (third, "three"), (fourth, "four")):
                await each.heartbeat(client_id=name)
            mode = {**mode, "popShareQueueNum": 1}
            await desk.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, write_body(mode))
            answer = await desk.ask(RequestCode.QUERY_ASSIGNMENT, write_body({**ask, "messageModel": "CLUSTERING"}))
            assert answer.body.count(b'"POP"') == 2
        answer = await desk.ask(RequestCode.QUERY_ASSIGNMENT, write_body({**ask, "strategyName": "MINE"}))
        assert answer.body == b"{}"

    async def after(desk: Desk) -> None:
        await desk.heartbeat(client_id="one")
        ask = {"topic": "Orders", "consumerGroup": "G", "clientId": "one", "strategyName": "AVG"}
        answer = await desk.ask(RequestCode.QUERY_ASSIGNMENT, write_body({**ask, "messageModel": "CLUSTERING"}))
        assert b'"POP"' in answer.body

    at_desk(tmp_path, work)
    at_desk(tmp_path, after)


def test_request_mode_is_saved_before_the_response(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        mode = {"topic": "Orders", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 2}
        await desk.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, write_body(mode))
        assert '"POP"' in (tmp_path / "config" / "messageRequestMode.json").read_text()

    at_desk(tmp_path, work)


def test_expired_ordered_batch_answers_a_held_pop(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        await send_numbered(desk, 1)
        await pop(desk, order="true", queueId=0)
        waiting = asyncio.create_task(pop(desk, order="true", queueId=0, pollTime=600_000))
        await until(lambda: len(desk.broker._pops._pops.held) == 1)
        clock.ms += INVISIBLE_MS
        assert bodies(await waiting) == [b"0"]

    at_desk(tmp_path, work, now_ms=clock)


def test_held_pops_are_not_tried_without_new_messages() -> None:
    asked: list[str] = []

    def attempt(name: str) -> Command | None:
        asked.append(name)
        return None

    held = HeldPops(HeldRequests(Limits()))
    for name in ("plain", "ordered"):
        pop_ = HeldPop(
            ("T",), "G", 0, name, 10**9, None, None, lambda name=name: attempt(name), None, name == "ordered"
        )  # type: ignore[arg-type, misc]
        assert held.hold(pop_)
    held.tick(1_000_000)
    asked.clear()
    for now_ms in range(1_000_100, 1_004_900, 100):
        held.tick(now_ms)
    assert set(asked) == {"ordered"}
    held.tick(1_005_000)
    assert "plain" in asked
    asked.clear()
    held.tick(10)  # a clock that was set back
    assert "plain" in asked
