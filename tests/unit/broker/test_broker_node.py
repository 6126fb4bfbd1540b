"""A broker as a whole: restarts, and what it answers to nonsense."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbitlog.formats.loose_json import read_json
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.unit.broker.broker_desk import Desk, at_desk, desk_at


def test_offsets_and_topics_outlive_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_at(tmp_path) as desk:
            await desk.send("Kept")
            await desk.heartbeat(topics=("Kept",))
            await desk.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", topic="Kept", queueId=0, commitOffset=1
            )
        async with desk_at(tmp_path) as desk:
            answer = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="G", topic="Kept", queueId=0)
            assert answer.ext_fields["offset"] == "1"
            assert desk.broker.state.topics.find("%RETRY%G") is not None
            offsets = read_json((await desk.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)).body.decode())
            assert isinstance(offsets, dict) and offsets["offsetTable"] == {"Kept@G": {"0": 1}}

    asyncio.run(work())


def test_unknown_codes_are_answered_at_once(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for code in (9_999, 200_050, 52, 1_001, -1, 0):
            assert (await desk.ask(code)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    at_desk(tmp_path, work)


def test_missing_and_unreadable_fields_are_named(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        answer = await desk.ask(RequestCode.GET_MAX_OFFSET, topic="T")
        assert answer.code == ResponseCode.SYSTEM_ERROR and "queueId" in (answer.remark or "")
        answer = await desk.ask(RequestCode.GET_MAX_OFFSET, topic="T", queueId="many")
        assert answer.code == ResponseCode.SYSTEM_ERROR and "queueId" in (answer.remark or "")

    at_desk(tmp_path, work)
