"""Poison messages: one that can never be delivered does not stop those after it, and is kept for an operator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitlog.broker.pop.popped_queues import Flight, PopKey
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.formats import names
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message, make_message
from orbitlog.formats.records.properties import PROPERTIES_BYTES_MAX, encode_properties
from orbitlog.store.appending.put_result import PutResult, PutStatus
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk, desk_at, records, until
from tests.support.timed_broker import START_MS, Clock, bodies, settled

UNIQUE_ID = "7F00000100002A9F0000000000000001"
NEAR_LIMIT = PROPERTIES_BYTES_MAX - 230
"""Bytes of a property with which a send is accepted, and the properties that the broker adds later do not fit."""

POISON = [
    {"REAL_TOPIC": "a/b", "REAL_QID": "0"},
    {"REAL_TOPIC": "Orders", "REAL_QID": "9" * 6_000},
    {"REAL_TOPIC": "Orders", "REAL_QID": "-1"},
    {"REAL_TOPIC": "Orders", "REAL_QID": "\u0661"},
    {"REAL_TOPIC": "Orders", "REAL_QID": "70000"},
    {"REAL_TOPIC": "Orders"},
    {"REAL_QID": "0"},
    {"REAL_TOPIC": "x" * 200, "REAL_QID": "0"},
    {"REAL_TOPIC": names.SCHEDULE_TOPIC, "REAL_QID": "0"},
    {"REAL_TOPIC": names.TIMER_TOPIC, "REAL_QID": "0"},
    {"REAL_TOPIC": names.HALF_TOPIC, "REAL_QID": "0"},
    {"REAL_TOPIC": names.OP_HALF_TOPIC, "REAL_QID": "0"},
    {"REAL_TOPIC": names.QUARANTINE_TOPIC, "REAL_QID": "0"},
]


def found_in_store(desk: Desk, topic: str, body: bytes, queue_id: int = 0, **properties: str) -> Message:
    """Append a record as a Java broker or an earlier version may have left it, past all rules for sends."""
    state = desk.broker.state
    raw = encode_properties({"UNIQ_KEY": UNIQUE_ID, **properties})
    message = make_message(topic, body, queue_id=queue_id, properties=raw, born_timestamp_ms=state.now_ms())
    assert MessageWriter(state).put(message).is_stored
    return message


def quarantined(desk: Desk) -> list[Message]:
    store = desk.broker.state.store
    queue = store.queue(names.QUARANTINE_TOPIC, 0)
    entries = [queue.entry(queue_offset) for queue_offset in range(queue.max_offset)] if queue is not None else []
    messages = [store.read_at(entry.physical_offset) for entry in entries if entry is not None]
    return [message for message in messages if message is not None]


SYSTEM_TOPICS = (
    *(names.TIMER_TOPIC, names.SCHEDULE_TOPIC, names.HALF_TOPIC, names.OP_HALF_TOPIC, names.QUARANTINE_TOPIC),
    *(names.revive_topic("DefaultCluster"), "rmq_sys_anything", names.CHECK_MAX_TIME_TOPIC),
)


def test_send_to_a_system_topic_is_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for topic in SYSTEM_TOPICS:
            desk.broker.state.topics.find_or_create(topic, 1)
            for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
                for batch in (False, True):
                    answer = await desk.send(topic, code=code, batch=batch)
                    assert answer.code == ResponseCode.NO_PERMISSION and "system topic" in str(answer.remark)
        assert desk.broker.state.store.written_to == 0

    at_desk(tmp_path, work)


def test_send_to_a_topic_meant_for_clients_is_accepted(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for topic in ("RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_cn", "BenchmarkTest", "%RETRY%G"):
            assert (await desk.send(topic)).code == ResponseCode.SUCCESS

    at_desk(tmp_path, work, traceTopicEnable="true")


def test_reply_to_a_system_topic_is_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat(client_id="one")
        before = desk.broker.state.store.written_to
        for topic in (names.SCHEDULE_TOPIC, names.TIMER_TOPIC):
            answer = await desk.send(topic, code=RequestCode.SEND_REPLY_MESSAGE, properties={"REPLY_TO_CLIENT": "one"})
            assert answer.code == ResponseCode.NO_PERMISSION
        assert desk.broker.state.store.written_to == before

    at_desk(tmp_path, work)


def test_poisoned_timer_messages_do_not_stop_the_timer(tmp_path: Path) -> None:
    clock = Clock()

    async def first(desk: Desk) -> None:
        for poison in POISON:
            found_in_store(desk, names.TIMER_TOPIC, b"poison", TIMER_OUT_MS=str(START_MS), **poison)
        await desk.send(body=b"honest", properties={"TIMER_DELAY_MS": "1000"})
        clock.now_ms += 5_000
        await settled(desk)
        assert await bodies(desk) == [b"honest"]
        await until(lambda: len(quarantined(desk)) == len(POISON))

    async def after_a_restart(desk: Desk) -> None:
        await desk.send(body=b"later", properties={"TIMER_DELAY_MS": "1000"})
        clock.now_ms += 5_000
        await settled(desk)
        assert await bodies(desk) == [b"honest", b"later"]
        messages = quarantined(desk)
        assert len(messages) == len(POISON)
        for message in messages:
            assert (message.body, message.properties[props.QUARANTINE_TOPIC]) == (b"poison", names.TIMER_TOPIC)
        assert names.QUARANTINE_TOPIC in desk.broker.state.topics.table

    at_desk(tmp_path, first, now_ms=clock)
    at_desk(tmp_path, after_a_restart, now_ms=clock)


def test_timer_messages_without_a_valid_time_do_not_stop_the_timer(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        for times in ({}, {"TIMER_OUT_MS": "x"}, {"TIMER_OUT_MS": "9" * 5_000}):
            found_in_store(desk, names.TIMER_TOPIC, b"poison", REAL_TOPIC="Orders", REAL_QID="0", **times)
        await desk.send(body=b"honest", properties={"TIMER_DELAY_MS": "1000"})
        clock.now_ms += 5_000
        await settled(desk)
        assert await bodies(desk) == [b"honest"]
        assert len(quarantined(desk)) == 3

    at_desk(tmp_path, work, now_ms=clock)


def test_poisoned_delayed_messages_do_not_stop_their_level(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for poison in POISON:
            found_in_store(desk, names.SCHEDULE_TOPIC, b"poison", DELAY="1", **poison)
        await desk.send(body=b"honest", properties={"DELAY": "1"})
        await until(lambda: len(quarantined(desk)) == len(POISON) and desk.broker.state.max_offset("Orders", 0) == 1)
        assert await bodies(desk) == [b"honest"]

    at_desk(tmp_path, work, messageDelayLevel="1s")


def test_timer_message_with_no_room_for_more_properties_is_delivered(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        big = {"TIMER_DELAY_MS": "1000", "filler": "x" * NEAR_LIMIT}
        assert (await desk.send(body=b"big", properties=big)).code == ResponseCode.SUCCESS
        await desk.send(body=b"honest", properties={"TIMER_DELAY_MS": "1000"})
        clock.now_ms += 5_000
        await settled(desk)
        assert await bodies(desk) == [b"big", b"honest"]
        assert not quarantined(desk)

    at_desk(tmp_path, work, now_ms=clock)


def test_half_message_with_no_room_for_more_properties_does_not_stop_checks(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        half = {"TRAN_MSG": "true", "PGROUP": "P"}
        for filler_bytes in range(PROPERTIES_BYTES_MAX, 0, -16):  # the largest one that a send may have
            big = half | {"filler": "x" * filler_bytes}
            answer = await desk.send(body=b"big", properties=big, born_timestamp_ms=START_MS)
            if answer.code == ResponseCode.SUCCESS:
                break
        await desk.send(body=b"honest", properties=half, born_timestamp_ms=START_MS)
        await desk.heartbeat()
        state = desk.broker.state
        await until(lambda: state.max_offset(names.HALF_TOPIC, 0) == 2)
        clock.now_ms += 60_000
        desk.broker._check_transactions()
        await until(lambda: any(command.code == RequestCode.CHECK_TRANSACTION_STATE for command in desk.heard))
        await until(lambda: [message.body for message in quarantined(desk)] == [b"big"])
        assert state.offsets.find(names.HALF_TOPIC, names.TRANSACTION_GROUP, 0) == 2

    at_desk(tmp_path, work, now_ms=clock, transactionCheckInterval="3600000")


def test_poisoned_half_messages_do_not_stop_checks(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        half = {"TRAN_MSG": "true", "PGROUP": "P"}
        for poison in POISON[:4]:
            found_in_store(desk, names.HALF_TOPIC, b"poison", **half, **poison)
        await desk.send(body=b"honest", properties=half, born_timestamp_ms=START_MS)
        await desk.heartbeat()
        state = desk.broker.state
        await until(lambda: state.max_offset(names.HALF_TOPIC, 0) == 5)
        clock.now_ms += 60_000
        desk.broker._check_transactions()
        await until(lambda: any(b"honest" in command.body for command in desk.heard))
        queue = state.store.queue(names.HALF_TOPIC, 0)
        for queue_offset in range(4):
            entry = queue.entry(queue_offset) if queue is not None else None
            assert entry is not None
            answer = await desk.ask(
                RequestCode.END_TRANSACTION,
                producerGroup="P",
                tranStateTableOffset=queue_offset,
                commitLogOffset=entry.physical_offset,
                commitOrRollback=8,
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR and "no valid target" in str(answer.remark)

    at_desk(tmp_path, work, now_ms=clock, transactionCheckInterval="3600000")


def test_popped_message_with_no_room_for_more_properties_is_revived(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        big = {"filler": "x" * (PROPERTIES_BYTES_MAX - 180)}
        assert (await desk.send(body=b"big", properties=big)).code == ResponseCode.SUCCESS
        await desk.send(body=b"honest")
        await pop(desk)
        clock.now_ms += 60_000
        desk.broker._pops.tick(clock.now_ms)
        retry = names.pop_retry_topic("G", "Orders")
        await until(lambda: desk.broker.state.max_offset(retry, 0) == 2)
        assert not quarantined(desk)

    at_desk(tmp_path, work, now_ms=clock)


async def pop(desk: Desk, topic: str = "Orders") -> None:
    await desk.ask(
        RequestCode.POP_MESSAGE,
        consumerGroup="G",
        topic=topic,
        queueId=-1,
        maxMsgNums=32,
        invisibleTime=10_000,
        pollTime=0,
        bornTime=desk.broker.state.now_ms(),
        initMode=0,
    )


def test_popped_message_that_cannot_be_revived_does_not_stop_revival(tmp_path: Path) -> None:
    """A topic and a group with the longest names have no valid retry topic; a checkpoint of another broker has them."""
    clock = Clock()

    async def work(desk: Desk) -> None:
        long_topic, long_group = "t" * 120, "g" * 250
        desk.broker.state.groups.find_or_create(long_group, auto_create=True)
        found_in_store(desk, long_topic, b"poison")
        await desk.send(body=b"honest")
        await pop(desk)
        popped = desk.broker._pops.popped
        key = PopKey(long_topic, long_group, 0)
        popped.start(key, 0)
        popped.pop(key, [0], 1, Flight(START_MS, START_MS + 1_000))
        clock.now_ms += 60_000
        desk.broker._pops.tick(clock.now_ms)
        await until(lambda: desk.broker.state.max_offset(names.pop_retry_topic("G", "Orders"), 0) == 1)
        await until(lambda: [message.body for message in quarantined(desk)] == [b"poison"])
        assert popped.in_flight(key) == 0

    at_desk(tmp_path, work, now_ms=clock)


def test_sent_back_message_with_no_room_for_more_properties_is_quarantined(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        big = {"filler": "x" * (PROPERTIES_BYTES_MAX - 180)}
        assert (await desk.send(body=b"big", properties=big)).code == ResponseCode.SUCCESS
        (message,) = records(await desk.pull())
        answer = await desk.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK, offset=message.physical_offset, group="G", delayLevel=0
        )
        assert answer.code == ResponseCode.SUCCESS
        await until(lambda: [message.body for message in quarantined(desk)] == [b"big"])
        (copy,) = quarantined(desk)
        assert copy.properties[props.QUARANTINE_OMITTED] == "filler"
        assert copy.properties[props.QUARANTINE_PHYSICAL_OFFSET] == str(message.physical_offset)

    at_desk(tmp_path, work)


def test_quarantine_waits_while_the_store_refuses_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk does not make the broker pass a message over."""
    clock = Clock()

    async def work(desk: Desk) -> None:
        out_ms = str(START_MS + 10_000)
        found_in_store(desk, names.TIMER_TOPIC, b"poison", TIMER_OUT_MS=out_ms, REAL_TOPIC="a/b", REAL_QID="0")
        timed = desk.broker._timed
        await until(lambda: len(timed) == 1)
        clock.now_ms += 20_000
        with monkeypatch.context() as patch:
            full = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="the disk is full")
            patch.setattr(MessageWriter, "put", lambda *_: full)
            timed.step(clock.now_ms)
            timed.step(clock.now_ms)
            assert len(timed) == 1
        await settled(desk)
        assert len(timed) == 0 and len(quarantined(desk)) == 1

    at_desk(tmp_path, work, now_ms=clock)


def test_poison_written_by_an_earlier_run_is_quarantined_after_a_restart(tmp_path: Path) -> None:
    async def run(work: Callable[[Desk], Awaitable[None]]) -> None:
        async with desk_at(tmp_path, messageDelayLevel="1s") as desk:
            await work(desk)

    async def write(desk: Desk) -> None:
        found_in_store(desk, names.SCHEDULE_TOPIC, b"poison", DELAY="1", REAL_TOPIC="a/b", REAL_QID="0")
        await desk.send(body=b"honest", properties={"DELAY": "1"})

    async def read(desk: Desk) -> None:
        await until(lambda: desk.broker.state.max_offset("Orders", 0) == 1 and len(quarantined(desk)) == 1)

    asyncio.run(run(write))
    asyncio.run(run(read))
