"""A whole broker: restarts, start-up saves, invalid requests, dispatch by another process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from orbitlog.broker.runtime import broker_node
from orbitlog.formats.tables.loose_json import read_json
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk, desk_at, records, until


def test_offsets_and_topics_survive_a_restart(tmp_path: Path) -> None:
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


def test_send_that_creates_a_topic_waits_for_one_save_and_one_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_node, "_FIRST_SAVE_S", 3600.0)
    saved: list[str] = []
    told: list[int] = []

    async def work(desk: Desk) -> None:
        broker = desk.broker
        encode, register = broker._saver._directory.encode, broker._registration._announcements._step

        def count_save(file: Any, table: Any) -> bytes:
            saved.append(file.name)
            return encode(file, table)

        def count_registration() -> Awaitable[None]:
            told.append(1)
            return register()

        monkeypatch.setattr(broker._saver._directory, "encode", count_save)
        monkeypatch.setattr(broker._registration._announcements, "_step", count_registration)
        assert (await desk.send("Fresh")).code == ResponseCode.SUCCESS
        assert saved == ["topics.json", "subscriptionGroup.json"] and told == [1]
        assert b"Fresh" in (tmp_path / "config" / "topics.json").read_bytes(), "before the response"

    at_desk(tmp_path, work)


def test_tables_are_saved_after_the_start_without_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_node, "_FIRST_SAVE_S", 0.0)

    async def work(_: Desk) -> None:
        await until((tmp_path / "config" / "topics.json").exists)

    at_desk(tmp_path, work)


def test_unknown_codes_are_answered_at_once(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for code in (9_999, 200_056, 52, 1_001, -1, 0):
            assert (await desk.ask(code)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    at_desk(tmp_path, work)


def test_missing_and_invalid_fields_are_named(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        answer = await desk.ask(RequestCode.GET_MAX_OFFSET, topic="T")
        assert answer.code == ResponseCode.SYSTEM_ERROR and "queueId" in (answer.remark or "")
        answer = await desk.ask(RequestCode.GET_MAX_OFFSET, topic="T", queueId="many")
        assert answer.code == ResponseCode.SYSTEM_ERROR and "queueId" in (answer.remark or "")

    at_desk(tmp_path, work)


ENGINE = """
import sys, time
from pathlib import Path
from orbitlog.errors import LeaseLost
from orbitlog.store.dispatch.external_dispatch import ExternalDispatch

owner = ExternalDispatch.take(Path(sys.argv[1]), "test")
try:
    while True:
        owner.dispatch_once()
        time.sleep(0.001)
except LeaseLost:
    owner.hand_back()
"""


def test_broker_follows_an_external_engine_and_takes_dispatch_back(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        store = desk.broker.state.store
        assert not store.is_dispatch_inline
        await desk.send(body=b"1")
        assert (await desk.pull()).code == ResponseCode.PULL_NOT_FOUND, "no process dispatches yet"
        engine = await asyncio.create_subprocess_exec(sys.executable, "-c", ENGINE, str(tmp_path))
        try:
            assert len(records(await desk.pull(sys_flag=6))) == 1
            waiting = asyncio.ensure_future(desk.pull(queue_offset=1, sys_flag=6))
            await until(lambda: len(desk.broker._pulls.held) == 1)
            await desk.send(body=b"2")
            assert [message.body for message in records(await waiting)] == [b"2"]
            assert not store.take_back_dispatch()
            assert await engine.wait() == 0
        finally:
            if engine.returncode is None:
                engine.kill()
                await engine.wait()

    at_desk(tmp_path, work, dispatchEngine="spark")
