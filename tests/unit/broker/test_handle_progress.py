"""How far groups are, and where they are sent, over a socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.queue_bodies import ConsumeStats, QueueOffsetTable
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.unit.broker.broker_desk import Desk, at_desk, records, until


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


def test_commits_on_their_way_do_not_undo_a_reset(tmp_path: Path) -> None:
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
