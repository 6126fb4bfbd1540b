"""Pulls over a socket: all response codes of Java, tag filters and long polling."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitlog.errors import StoreError
from orbitlog.store.reads.queue_reader import GetResult, ReadRequest
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk, client_of, records, until

SUSPEND = 6  # with a subscription of its own


def test_pull_of_every_offset_gets_the_code_of_java(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for _ in range(3):
            await desk.send()
        found = await desk.pull()
        assert (found.code, found.remark, found.ext_fields["nextBeginOffset"]) == (ResponseCode.SUCCESS, "FOUND", "3")
        assert {"suggestWhichBrokerId", "minOffset", "maxOffset"} <= set(found.ext_fields)
        end = await desk.pull(queue_offset=3)
        assert (end.code, end.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
        behind = await desk.pull(queue_offset=9)
        assert (behind.code, behind.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY")
        assert behind.ext_fields["nextBeginOffset"] == "3"
        before = await desk.pull(queue_offset=-1)
        assert (before.code, before.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
        empty = await desk.pull(queue_id=1)
        assert (empty.code, empty.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
        assert (await desk.pull(queue_id=1, queue_offset=5)).code == ResponseCode.PULL_OFFSET_MOVED

    at_desk(tmp_path, work)


def test_pull_without_permission_is_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        assert (await desk.pull("Nowhere")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await desk.pull("../x")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await desk.pull(queue_id=4)).code == ResponseCode.INVALID_PARAMETER
        assert (await desk.pull(group="a/../b")).code == ResponseCode.INVALID_PARAMETER
        assert (await desk.pull(sys_flag=0)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert (await desk.pull(subscription="a > 1", expression_type="SQL92")).code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, work)


def test_pull_without_subscription_uses_that_of_the_heartbeat(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await desk.heartbeat()
        assert len(records(await desk.pull(sys_flag=0, subscription=None, subscription_version=1))) == 1
        newer = await desk.pull(sys_flag=0, subscription=None, subscription_version=2)
        assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        other = await desk.pull("BenchmarkTest", sys_flag=0, subscription=None)
        assert other.code == ResponseCode.SUBSCRIPTION_NOT_EXIST

    at_desk(tmp_path, work)


@pytest.mark.parametrize(
    ("expression", "bodies"), [("a", [b"1"]), ("a || b", [b"1", b"2"]), ("c", []), (" ", [b"1", b"2"])]
)
def test_pull_with_tags_filters_messages(tmp_path: Path, expression: str, bodies: list[bytes]) -> None:
    async def work(desk: Desk) -> None:
        await desk.send(body=b"1", properties={"TAGS": "a"})
        await desk.send(body=b"2", properties={"TAGS": "b"})
        answer = await desk.pull(subscription=expression)
        assert [message.body for message in records(answer)] == bodies
        assert answer.ext_fields["nextBeginOffset"] == "2"
        assert answer.code == (ResponseCode.SUCCESS if bodies else ResponseCode.PULL_RETRY_IMMEDIATELY)

    at_desk(tmp_path, work)


def test_held_pull_waits_for_a_matching_message(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send(body=b"0", properties={"TAGS": "x"})
        waiting = asyncio.ensure_future(desk.pull(queue_offset=1, sys_flag=SUSPEND, subscription="b"))
        await until(lambda: len(desk.broker._pulls.held) == 1)
        await desk.send(body=b"1", properties={"TAGS": "a"})
        await desk.send(body=b"2", properties={"TAGS": "b"})
        answer = await waiting
        assert [message.body for message in records(answer)] == [b"2"]
        assert len(desk.broker._pulls.held) == 0

    at_desk(tmp_path, work)


def test_held_pull_ends_at_its_timeout(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        answer = await desk.pull(queue_offset=1, sys_flag=SUSPEND, suspend_timeout_ms=1)
        assert answer.code == ResponseCode.PULL_NOT_FOUND and answer.ext_fields["nextBeginOffset"] == "1"

    at_desk(tmp_path, work)


def test_held_pulls_of_a_lost_connection_are_dropped(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        async with client_of(desk) as other:
            waiting = asyncio.ensure_future(other.pull(queue_offset=1, sys_flag=SUSPEND))
            await until(lambda: len(desk.broker._pulls.held) == 1)
        await asyncio.gather(waiting, return_exceptions=True)
        await until(lambda: len(desk.broker._pulls.held) == 0)

    at_desk(tmp_path, work)


def test_pull_with_commit_flag_commits_the_offset(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await desk.pull(sys_flag=5, commit_queue_offset=1)
        answer = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="G", topic="Orders", queueId=0)
        assert answer.ext_fields["offset"] == "1"

    at_desk(tmp_path, work)


def test_pull_returns_at_most_the_limits(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await asyncio.gather(*(desk.send(body=b"x" * 1000) for _ in range(40)))
        assert len(records(await desk.pull(message_count_max=1000))) == 32
        assert len(records(await desk.pull(message_count_max=3))) == 3
        desk.broker.state.settings.change({"maxTransferBytesOnMessageInMemory": "3000"})
        assert len(records(await desk.pull())) == 2

    at_desk(tmp_path, work)


def test_held_pulls_for_the_same_message_share_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk) -> None:
        await desk.send(body=b"0")
        await desk.send(body=b"0", queue_id=1)
        asked = [
            *({"group": f"G{number}", "subscription": "*"} for number in range(4)),
            {"group": "tagged", "subscription": "b"},
            {"group": "other", "subscription": "c"},
            {"group": "one", "subscription": "*", "message_count_max": 1},
            {"group": "G0", "subscription": "*", "queue_id": 1},
        ]
        waiting = [asyncio.ensure_future(desk.pull(queue_offset=1, sys_flag=SUSPEND, **each)) for each in asked]
        held = desk.broker._pulls.held
        await until(lambda: len(held) == len(asked))
        store, reads = desk.broker.state.store, []
        get = store.get
        monkeypatch.setattr(store, "get", lambda *request: reads.append(request) or get(*request))
        await desk.send(body=b"1", properties={"TAGS": "b"})
        *answers, other, one, second = waiting
        for answer in [*(await asyncio.gather(*answers)), await one]:
            assert [message.body for message in records(answer)] == [b"1"]
            assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.SUCCESS, "2")
        assert len(reads) == 3, "everything, one tag, and one message at most"
        assert len(held) == 2
        monkeypatch.undo()
        await asyncio.gather(desk.send(properties={"TAGS": "c"}), desk.send(body=b"2", queue_id=1))
        assert [len(records(await each)) for each in (other, second)] == [1, 1]

    at_desk(tmp_path, work)


def test_woken_pull_with_a_failing_read_gets_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        waiting = [
            asyncio.ensure_future(desk.pull(queue_offset=1, sys_flag=SUSPEND, message_count_max=count))
            for count in (1, 2)
        ]
        await until(lambda: len(desk.broker._pulls.held) == 2)
        store = desk.broker.state.store
        get = store.get

        def fail_for_one(topic: str, queue_id: int, request: ReadRequest) -> GetResult:
            if request.max_count == 1:
                raise StoreError("the disk is gone")
            return get(topic, queue_id, request)

        monkeypatch.setattr(store, "get", fail_for_one)
        await desk.send(body=b"1")
        failed, found = await asyncio.gather(*waiting)
        assert failed.code == ResponseCode.SYSTEM_ERROR and (failed.remark or "").startswith("internal error ")
        assert "the disk is gone" in caplog.text
        assert [message.body for message in records(found)] == [b"1"]

    at_desk(tmp_path, work)
