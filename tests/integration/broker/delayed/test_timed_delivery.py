"""Messages scheduled at a timestamp, on a clock that the test sets: months pass in milliseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.broker.delayed import timed_delivery
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.formats import names
from orbitlog.formats.records.message import make_message
from orbitlog.formats.records.timer_message import ROLL_WINDOW_MS, parse_recall_handle
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import Desk, at_desk, records
from tests.support.timed_broker import START_MS, Clock, bodies, settled

DAY_MS = 86_400_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(
    "properties",
    [{"TIMER_DELAY_MS": "90500"}, {"TIMER_DELAY_SEC": "90"}, {"TIMER_DELIVER_MS": str(START_MS + 90_000)}],
)
def test_timer_message_is_delivered_when_due(tmp_path: Path, clock: Clock, properties: dict[str, str]) -> None:
    async def work(desk: Desk) -> None:
        sent = await desk.send(properties=properties)
        assert sent.code == ResponseCode.SUCCESS and sent.ext_fields["queueId"] == "0"
        await settled(desk)
        clock.now_ms = START_MS + 89_000
        await settled(desk)
        assert await bodies(desk) == []
        clock.now_ms = START_MS + 90_500
        await settled(desk)
        (message,) = records(await desk.pull())
        assert (message.body, message.topic, message.queue_id) == (b"hello", "Orders", 0)
        assert "REAL_TOPIC" not in message.properties and properties.items() <= message.properties.items()

    at_desk(tmp_path, work, now_ms=clock)


def test_timer_message_is_due_to_the_millisecond(tmp_path: Path, clock: Clock) -> None:
    async def work(desk: Desk) -> None:
        await desk.send(properties={"TIMER_DELIVER_MS": str(START_MS + 1_700)})
        for offset_ms, expected in ((1_699, []), (1_700, [b"hello"])):
            clock.now_ms = START_MS + offset_ms
            await settled(desk)
            assert await bodies(desk) == expected

    at_desk(tmp_path, work, now_ms=clock)


def test_timer_message_in_the_past_is_delivered_now(tmp_path: Path, clock: Clock) -> None:
    async def work(desk: Desk) -> None:
        await desk.send(properties={"TIMER_DELIVER_MS": str(START_MS - 1)})
        assert await bodies(desk) == [b"hello"]

    at_desk(tmp_path, work, now_ms=clock)


def test_timer_messages_are_delivered_in_the_order_of_their_timestamps(tmp_path: Path, clock: Clock) -> None:
    async def work(desk: Desk) -> None:
        for seconds in (50, 10, 40, 20, 30):
            await desk.send(body=str(seconds).encode(), properties={"TIMER_DELAY_SEC": str(seconds)})
        await settled(desk)
        clock.now_ms += 60_000
        await settled(desk)
        assert await bodies(desk) == [b"10", b"20", b"30", b"40", b"50"]

    at_desk(tmp_path, work, now_ms=clock)


def test_timer_message_of_forty_days_is_delivered_once_over_restarts(tmp_path: Path, clock: Clock) -> None:
    due_ms = START_MS + 40 * DAY_MS

    async def send(desk: Desk) -> None:
        await desk.send(properties={"TIMER_DELIVER_MS": str(due_ms)})
        await settled(desk)

    async def wait(desk: Desk) -> None:
        await settled(desk)
        assert await bodies(desk) == []
        queue = desk.broker.state.store.queue(names.TIMER_TOPIC, 0)
        assert queue is not None
        entry = queue.entry(queue.max_offset - 1)
        assert entry is not None
        record = desk.broker.state.store.read_at(entry.physical_offset)
        # Its record is never older than the retention of the log.
        assert record is not None and clock.now_ms - record.store_timestamp_ms <= ROLL_WINDOW_MS

    async def receive(desk: Desk) -> None:
        await settled(desk)
        assert await bodies(desk) == [b"hello"]
        assert len(desk.broker._timed) == 0

    at_desk(tmp_path, send, now_ms=clock)
    for _ in range(39):
        clock.now_ms += DAY_MS
        at_desk(tmp_path, wait, now_ms=clock)
    clock.now_ms = due_ms
    at_desk(tmp_path, receive, now_ms=clock)
    at_desk(tmp_path, receive, now_ms=clock)


def test_timer_message_due_during_a_stop_is_delivered_after_it(tmp_path: Path, clock: Clock) -> None:
    async def send(desk: Desk) -> None:
        for days in (1, 30):
            await desk.send(body=str(days).encode(), properties={"TIMER_DELAY_SEC": str(days * 86_400)})

    async def receive(desk: Desk) -> None:
        await settled(desk)
        assert await bodies(desk) == [b"1", b"30"]

    at_desk(tmp_path, send, now_ms=clock)
    clock.now_ms += 365 * DAY_MS
    at_desk(tmp_path, receive, now_ms=clock)


def test_clock_set_back_delays_timer_messages_and_loses_none(tmp_path: Path, clock: Clock) -> None:
    async def work(desk: Desk) -> None:
        await desk.send(properties={"TIMER_DELAY_SEC": "10"})
        await settled(desk)
        clock.now_ms = START_MS - DAY_MS
        await settled(desk)
        assert await bodies(desk) == []
        clock.now_ms = START_MS + 10_000
        await settled(desk)
        assert await bodies(desk) == [b"hello"]

    at_desk(tmp_path, work, now_ms=clock)


async def recall(desk: Desk, handle: str, topic: str = "Orders") -> Command:
    return await desk.ask(RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=handle)


@pytest.mark.parametrize("days", [0, 5])
def test_recalled_message_is_not_delivered(tmp_path: Path, clock: Clock, days: int) -> None:
    async def work(desk: Desk) -> None:
        unwanted = {"UNIQ_KEY": "A" * 32, "TIMER_DELAY_SEC": str(days * 86_400 + 60)}
        sent = await desk.send(body=b"unwanted", properties=unwanted)
        await desk.send(body=b"wanted", properties=unwanted | {"UNIQ_KEY": "B" * 32})
        handle = sent.ext_fields["recallHandle"]
        assert parse_recall_handle(handle).unique_id == "A" * 32
        await settled(desk)
        assert [each.unique_id[0] for each in desk.broker._timed.waiting()] == ["A", "B"]
        answer = await recall(desk, handle)
        assert (answer.code, answer.ext_fields["msgId"]) == (ResponseCode.SUCCESS, "A" * 32)
        for _ in range(days + 1):
            clock.now_ms += DAY_MS
            await settled(desk)
        assert await bodies(desk) == [b"wanted"]
        assert (await recall(desk, handle)).code == ResponseCode.ILLEGAL_OPERATION

    at_desk(tmp_path, work, now_ms=clock)


@pytest.mark.parametrize(("names_topic", "key"), [("false", "A" * 32), ("true", "Orders+" + "A" * 32)])
def test_recall_is_stored_with_the_key_that_apache_broker_looks_for(
    tmp_path: Path, clock: Clock, names_topic: str, key: str
) -> None:
    async def work(desk: Desk) -> None:
        for name in "AB":
            timed = {"UNIQ_KEY": name * 32, "TIMER_DELAY_SEC": "60"}
            sent = await desk.send(body=name.encode(), properties=timed)
            if name == "A":
                await recall(desk, sent.ext_fields["recallHandle"])
        clock.now_ms += DAY_MS
        await settled(desk)
        assert await bodies(desk) == [b"B"]

    at_desk(tmp_path, work, now_ms=clock, appendTopicForTimerDeleteKey=names_topic)
    log = b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir()))
    assert f"TIMER_DEL_UNIQKEY\x01{key}\x02".encode() in log


def test_invalid_recalls_are_refused(tmp_path: Path, clock: Clock) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        assert (await recall(desk, "no handle")).code == ResponseCode.ILLEGAL_OPERATION
        assert (await recall(desk, "x", topic="Nowhere")).code == ResponseCode.TOPIC_NOT_EXIST

    at_desk(tmp_path, work, now_ms=clock)


@pytest.mark.parametrize("value", ["soon", "1.5", "9" * 30])
def test_invalid_delivery_timestamps_are_refused(tmp_path: Path, clock: Clock, value: str) -> None:
    async def work(desk: Desk) -> None:
        assert (await desk.send(properties={"TIMER_DELAY_SEC": value})).code == ResponseCode.MESSAGE_ILLEGAL

    at_desk(tmp_path, work, now_ms=clock)


def test_timer_message_past_the_maximum_delay_is_refused(tmp_path: Path, clock: Clock) -> None:
    async def work(desk: Desk) -> None:
        assert (await desk.send(properties={"TIMER_DELAY_SEC": "61"})).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await desk.send(properties={"TIMER_DELAY_SEC": "60"})).code == ResponseCode.SUCCESS

    at_desk(tmp_path, work, now_ms=clock, timerMaxDelaySec="60")


@pytest.mark.parametrize("form", ["{id}", "Orders+{id}"])
def test_message_recalled_at_a_java_broker_is_not_delivered(tmp_path: Path, clock: Clock, form: str) -> None:
    """5.5.0 names the recalled message by its id, 5.3 by topic and id."""

    async def before(desk: Desk) -> None:
        for name in "AB":
            await desk.send(body=name.encode(), properties={"UNIQ_KEY": name * 32, "TIMER_DELAY_SEC": "60"})
        moment = str(START_MS + 59_001)
        told = {"UNIQ_KEY": "A" * 32, "TIMER_DELIVER_MS": moment, "TIMER_DEL_UNIQKEY": form.format(id="A" * 32)}
        writer = MessageWriter(desk.broker.state)
        message = make_message("Orders", b"0", properties=writer.encode(told), sys_flag=0)
        host_raw = desk.broker.state.store_host_raw(None)
        writer.put(writer.schedule(message._replace(born_host_raw=host_raw, store_host_raw=host_raw), told))

    async def after(desk: Desk) -> None:
        await settled(desk)
        assert await bodies(desk) == [b"B"]

    at_desk(tmp_path, before, now_ms=clock)
    clock.now_ms += DAY_MS
    at_desk(tmp_path, after, now_ms=clock)


def test_recall_long_before_the_timestamp_survives_restarts(tmp_path: Path, clock: Clock) -> None:
    async def first(desk: Desk) -> None:
        delay_s = ROLL_WINDOW_MS * 14 // 10 // 1000
        sent = await desk.send(properties={"UNIQ_KEY": "A" * 32, "TIMER_DELAY_SEC": str(delay_s)})
        clock.now_ms += ROLL_WINDOW_MS // 10
        assert (await recall(desk, sent.ext_fields["recallHandle"])).code == ResponseCode.SUCCESS

    async def later(desk: Desk) -> None:
        await settled(desk)

    at_desk(tmp_path, first, now_ms=clock)
    for _ in range(20):
        clock.now_ms += ROLL_WINDOW_MS // 10
        at_desk(tmp_path, later, now_ms=clock)

    async def last(desk: Desk) -> None:
        assert (await desk.pull()).code != ResponseCode.SUCCESS
        assert len(desk.broker._timed) == 0

    at_desk(tmp_path, last, now_ms=clock)


@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELAY_SEC"])
def test_re_appended_message_is_not_delivered_early(tmp_path: Path, clock: Clock, name: str) -> None:
    clock.now_ms += 345
    due_ms = clock.now_ms + 5 * DAY_MS
    delay = 5 * DAY_MS if name == "TIMER_DELAY_MS" else 5 * DAY_MS // 1000

    async def work(desk: Desk) -> None:
        await desk.send(properties={name: str(delay)})
        for moment_ms in (due_ms - 3 * DAY_MS, due_ms - DAY_MS, due_ms - 1):
            clock.now_ms = moment_ms
            await settled(desk)
            assert await bodies(desk) == []
        clock.now_ms = due_ms
        await settled(desk)
        (message,) = records(await desk.pull())
        assert message.properties[name] == str(delay) and "TIMER_DELIVER_MS" not in message.properties

    at_desk(tmp_path, work, now_ms=clock)


def test_delivery_after_a_stop_waits_until_recalls_are_read(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(desk: Desk) -> None:
        sent = await desk.send(body=b"A", properties={"UNIQ_KEY": "A" * 32, "TIMER_DELAY_SEC": "60"})
        for number in range(5):
            await desk.send(body=b"B", properties={"UNIQ_KEY": f"{number}" * 32, "TIMER_DELAY_SEC": "60"})
        assert (await recall(desk, sent.ext_fields["recallHandle"])).code == ResponseCode.SUCCESS
        await settled(desk)
        assert {each.unique_id[0] for each in desk.broker._timed.waiting()} == set("01234")

    async def after(desk: Desk) -> None:
        await settled(desk)
        assert await bodies(desk) == [b"B"] * 5

    at_desk(tmp_path, before, now_ms=clock)
    clock.now_ms += DAY_MS
    monkeypatch.setattr(timed_delivery, "TAKE_IN_MAX", 2)
    at_desk(tmp_path, after, now_ms=clock)
