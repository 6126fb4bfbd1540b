"""Quotas of users on both paths of sends, of connections and of topics; failed authentications are slowed down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitlog.access import failed_attempts
from orbitlog.access.access_file import load_access_file
from orbitlog.access.access_settings import QuotaLimits
from orbitlog.access.credentials import Credentials
from orbitlog.errors import ConnectionLost
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import TIMEOUT_S, Desk
from tests.support.secured_broker import (
    ROOT,
    WRITER,
    add_writer,
    ask,
    quota_clock,
    secured,
    send,
    send_command,
)

HUGE = 10**9


def test_message_rate_holds_on_both_paths_and_for_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk) -> None:
        now = quota_clock(desk, monkeypatch)
        await add_writer(desk, QuotaLimits(messages_per_second=50))
        # One after another, so that most take the fast path, and then many at once.
        codes = [(await send(desk, WRITER)).code for _ in range(40)]
        answers = await asyncio.gather(*(send(desk, WRITER) for _ in range(40)))
        codes += [answer.code for answer in answers]
        assert codes.count(ResponseCode.SUCCESS) == 50
        assert codes.count(ResponseCode.SYSTEM_BUSY) == 30
        assert "quota of 50 messages a second" in (answers[-1].remark or "")
        end = desk.broker.state.store.written_to
        assert (await send(desk, WRITER)).code == ResponseCode.SYSTEM_BUSY
        assert desk.broker.state.store.written_to == end
        assert (await send(desk, ROOT)).code == ResponseCode.SUCCESS
        now[0] += 1000
        batch = send_command(None, body=encode_batch([BatchMember(b"one")] * 60), batch=True)
        batch.code = RequestCode.SEND_BATCH_MESSAGE
        WRITER.sign(batch)
        assert (await desk.client.invoke(desk.address, batch, TIMEOUT_S)).code == ResponseCode.SUCCESS
        assert (await send(desk, WRITER)).code == ResponseCode.SYSTEM_BUSY
        now[0] += 200
        assert (await send(desk, WRITER)).code == ResponseCode.SYSTEM_BUSY
        now[0] += 1
        assert (await send(desk, WRITER)).code == ResponseCode.SUCCESS
        numbers = await ask(desk, RequestCode.GET_BROKER_RUNTIME_INFO, ROOT)
        assert b'"quotaReached_writer":"33"' in numbers.body.replace(b" ", b"")

    secured(tmp_path, work)


def test_byte_rate_and_changed_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk) -> None:
        quota_clock(desk, monkeypatch)
        await add_writer(desk, QuotaLimits(bytes_per_second=1000))
        assert (await send(desk, WRITER, body=bytes(2000))).code == ResponseCode.SUCCESS
        answer = await send(desk, WRITER)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "send again in 1001 ms" in (answer.remark or "")
        access = desk.broker._access
        assert access is not None
        access.change_users(lambda table: table.set_limits("writer", QuotaLimits(0, 0)))
        assert (await send(desk, WRITER)).code == ResponseCode.SUCCESS

    secured(tmp_path, work)


def test_connections_and_topics_of_a_user_are_limited(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await add_writer(desk, QuotaLimits(HUGE, HUGE, connections=2, topics=2))
        clients = [desk.client, RemotingClient(), RemotingClient()]
        try:
            answers = [await one.invoke(desk.address, send_command(WRITER, "First"), TIMEOUT_S) for one in clients]
            assert [answer.code for answer in answers] == [0, 0, ResponseCode.SYSTEM_BUSY]
            assert "2 connections" in (answers[2].remark or "")
            root = send_command(ROOT, "First")
            assert (await clients[2].invoke(desk.address, root, TIMEOUT_S)).code == 0
        finally:
            await clients[1].close()
            await clients[2].close()
        fields = {"topic": "Second", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        assert (await ask(desk, RequestCode.UPDATE_AND_CREATE_TOPIC, WRITER, fields=fields)).code == 0
        assert (await ask(desk, RequestCode.UPDATE_AND_CREATE_TOPIC, WRITER, fields=fields)).code == 0
        refused = await send(desk, WRITER, "Third")
        assert (refused.code, refused.remark) == (
            ResponseCode.NO_PERMISSION,
            "account writer has created 2 topics, its quota is 2; delete unused ones",
        )
        third = {**fields, "topic": "Third"}
        assert (await ask(desk, RequestCode.UPDATE_AND_CREATE_TOPIC, WRITER, fields=third)).code == 16
        assert desk.broker.state.topics.find("Third") is None
        assert (await ask(desk, RequestCode.DELETE_TOPIC_IN_BROKER, ROOT, fields={"topic": "First"})).code == 0
        assert (await send(desk, WRITER, "Third")).code == 0

    async def after_restart(desk: Desk) -> None:
        assert (await send(desk, WRITER, "Fourth")).code == ResponseCode.NO_PERMISSION

    secured(tmp_path, work)
    assert load_access_file(tmp_path / "config" / "access.json").topic_owners == {"Second": "writer", "Third": "writer"}
    secured(tmp_path, after_restart)


def test_failed_authentications_are_delayed_then_closed_and_others_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failed_attempts, "DELAY_S", 0.2)

    async def work(desk: Desk) -> None:
        wrong = Credentials("root-user", "wrong-secret")
        attacker = RemotingClient()
        try:
            for _ in range(2):
                answer = await attacker.invoke(desk.address, send_command(wrong), TIMEOUT_S)
                assert answer.code == ResponseCode.NO_PERMISSION
            answers = await asyncio.gather(
                *(attacker.invoke(desk.address, send_command(wrong), TIMEOUT_S) for _ in range(18))
            )
            assert {answer.code for answer in answers} == {ResponseCode.NO_PERMISSION}
            assert (await send(desk, ROOT)).code == ResponseCode.SUCCESS  # from the same address
            with pytest.raises(ConnectionLost):
                await attacker.invoke(desk.address, send_command(wrong), TIMEOUT_S)
        finally:
            await attacker.close()
        access = desk.broker._access
        assert access is not None
        assert access.numbers() == {"accessRefused": 21, "accessFailuresDelayed": 18, "accessFailuresClosed": 1}
        assert (await send(desk, ROOT)).code == ResponseCode.SUCCESS

    secured(tmp_path, work, authenticationFailuresPerMinuteMax="2")
