"""Consumer progress and offset resets, over a socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.queue_bodies import ConsumeStats, QueueOffsetTable
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk, records, until


def test_progress_and_reset(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for _ in range(5):
            await desk.send()
        await desk.heartbeat()
        await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", topic="Orders", queueId=0, commitOffset=4)
        stats = decode_body(ConsumeStats, (await desk.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="G")).body)
        first = next(each for queue, each in stats.offsets.items() if queue.queue_id == 0)
        assert (first.broker_queue_offset, first.consumer_queue_offset) == (5, 4)
        waiting = asyncio.ensure_future(desk.pull(queue_offset=5, sys_flag=2, subscription=None))
        await until(lambda: len(desk.broker._pulls.held) == 1)
        reset = await desk.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="Orders", group="G", timestamp=0, isForce="true"
        )
        assert set(decode_body(QueueOffsetTable, reset.body).offsets.values()) == {0}
        moved = await waiting
        assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert moved.ext_fields["nextBeginOffset"] == "0"
        assert len(records(await desk.pull(sys_flag=0, subscription=None))) == 5

    at_desk(tmp_path, work)


def test_progress_of_a_group_online_contains_its_pop_retry_topics(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await desk.heartbeat()
        state = desk.broker.state
        for topic in ("Orders", "%RETRY%G_Orders", "%RETRY%G+Orders", "%RETRY%G_Given-up", "Given-up"):
            state.topics.find_or_create(topic, 1)
            state.offsets.commit(topic, "G", 0, 0)
        stats = decode_body(ConsumeStats, (await desk.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="G")).body)
        assert {queue.topic for queue in stats.offsets} == {"Orders", "%RETRY%G_Orders", "%RETRY%G+Orders"}

    at_desk(tmp_path, work)


def test_new_group_starts_at_zero_if_the_queue_is_empty_or_complete(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        asked = {"consumerGroup": "New", "topic": "Orders", "queueId": 3}
        unknown = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, **asked)
        assert unknown.code == ResponseCode.QUERY_NOT_FOUND, "the topic does not exist yet"
        await desk.send("Orders", queue_id=0)
        for queue_id in (3, 0):
            answer = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, **{**asked, "queueId": queue_id})
            assert (answer.code, answer.ext_fields.get("offset")) == (ResponseCode.SUCCESS, "0")
        wants_to_know = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, **asked, setZeroIfNotFound="false")
        assert wants_to_know.code == ResponseCode.QUERY_NOT_FOUND

    at_desk(tmp_path, work)


def test_commit_in_flight_does_not_undo_an_offset_reset(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await desk.heartbeat()
        fields = {"topic": "Orders", "group": "G", "timestamp": -1}
        await desk.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
        commit = {"consumerGroup": "G", "topic": "Orders", "queueId": 0}
        await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **commit, commitOffset=0)
        answer = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, **commit)
        assert answer.ext_fields["offset"] == "1"

    at_desk(tmp_path, work)


def test_offset_reset_is_exact_online_offline_and_after_a_restart(tmp_path: Path) -> None:
    start_ms = 1_800_000_000_000
    now_ms = [start_ms]
    commit = {"consumerGroup": "G", "topic": "Orders", "queueId": 0}

    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        for _ in range(10):
            await desk.send()
            now_ms[0] += 1_000
        await until(lambda: desk.broker.state.max_offset("Orders", 0) == 10)
        fields = {"topic": "Orders", "group": "G", "isForce": "true"}
        for timestamp, wanted in ((start_ms, 0), (start_ms + 3_000, 3), (start_ms + 3_001, 4), (start_ms + 99_000, 10)):
            answer = await desk.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields, timestamp=timestamp, queueId=0)
            assert list(decode_body(QueueOffsetTable, answer.body).offsets.values()) == [wanted]
            moved = await desk.pull(queue_offset=99, sys_flag=0, subscription=None)
            assert moved.ext_fields["nextBeginOffset"] == str(wanted)
        for offset, code in ((7, ResponseCode.SUCCESS), (11, ResponseCode.SYSTEM_ERROR)):
            answer = await desk.ask(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields, timestamp=-1, queueId=0, offset=offset
            )
            assert answer.code == code
        assert (await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, **commit)).ext_fields["offset"] == "7"

    async def after(desk: Desk) -> None:
        assert (await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, **commit)).ext_fields["offset"] == "7"

    at_desk(tmp_path, work, now_ms=lambda: now_ms[0])
    at_desk(tmp_path, after, now_ms=lambda: now_ms[0])
