"""Ways around access control through newer paths: recalls, one-way requests, responses, and names inside messages.

Each attacker has an account with few rights. What another account stored must stay as it was, and come when it is due.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitlog.access.request_needs import ROWS
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.formats.records.properties import encode_properties
from orbitlog.formats.records.timer_message import RecallHandle
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, Command, Serialization, encode_command, response_to
from tests.support.all_requests import BODIES, CODES, FIELDS, add_users, state_of
from tests.support.broker_desk import TIMEOUT_S, Desk, at_desk, until
from tests.support.secured_broker import (
    NOBODY,
    ROOT,
    SECURE,
    WRITER,
    allow,
    ask,
    end_of,
    heartbeat,
    secured,
    send,
    send_command,
)
from tests.support.timed_broker import START_MS, Clock, settled

SECRET_ID = "A" * 32


# Recalls


@pytest.mark.parametrize("form", ["handle", "id", "topic and id"])
@pytest.mark.parametrize("has_right", [False, True], ids=["foreign topic", "own topic"])
def test_recall_cancels_messages_of_its_own_topic_only(form: str, has_right: bool, tmp_path: Path) -> None:
    clock = Clock()

    async def attack(desk: Desk) -> None:
        topic = "Secret" if has_right else "Orders"
        if form == "handle":
            handle = RecallHandle(topic, desk.broker.state.broker_name, START_MS + 60_000, SECRET_ID)
            fields = {"topic": topic, "recallHandle": str(handle)}
            answer = await ask(desk, RequestCode.RECALL_MESSAGE, WRITER, fields=fields)
        else:
            key = SECRET_ID if form == "id" else f"Secret+{SECRET_ID}"
            recall = {"UNIQ_KEY": "B" * 32, "TIMER_DELIVER_MS": str(START_MS + 59_001), "TIMER_DEL_UNIQKEY": key}
            answer = await send(desk, WRITER, topic, properties=recall)
        assert answer.code == ResponseCode.SUCCESS

    async def work(desk: Desk) -> None:
        for topic in ("Orders", "Secret"):
            assert (await send(desk, ROOT, topic)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Secret" if has_right else "Topic:Orders", "Pub"))
        timed = {"UNIQ_KEY": SECRET_ID, "TIMER_DELAY_MS": "60000"}
        assert (await send(desk, ROOT, "Secret", properties=timed)).code == ResponseCode.SUCCESS
        await settled(desk)
        await attack(desk)
        await settled(desk)
        clock.now_ms += 120_000
        await settled(desk)
        assert end_of(desk, "Secret") == (1 if has_right else 2)

    at_clock(tmp_path, work, clock)


def at_clock(tmp_path: Path, work: Callable[[Desk], Awaitable[None]], clock: Clock) -> None:
    at_desk(tmp_path, work, now_ms=clock, **SECURE)


# One-way requests and responses


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("flag", [FLAG_ONEWAY, FLAG_RESPONSE, FLAG_ONEWAY | FLAG_RESPONSE, 4, 0x7FFFFFFC])
def test_request_without_an_answer_has_no_effect(flag: int, serialization: int, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await add_users(desk)
        before = state_of(desk)
        _, writer = await asyncio.open_connection("127.0.0.1", desk.broker.address[1])
        try:
            for user in (None, NOBODY):
                for opaque, code in enumerate(CODES):
                    body = json.dumps(BODIES[code]).encode() if code in BODIES else b"traceOn=false"
                    command = Command(code, ext_fields=dict(FIELDS), body=body, serialization=serialization)
                    if user is not None:
                        user.sign(command)
                    command.opaque, command.flag = opaque, flag
                    writer.write(encode_command(command))
            await writer.drain()
            access = desk.broker._access
            assert access is not None
            if not flag & FLAG_RESPONSE:
                await until(lambda: access.guard.refused_count == 2 * len(CODES))
        finally:
            writer.close()
            await writer.wait_closed()
        assert (await ask(desk, RequestCode.GET_BROKER_CONFIG, ROOT)).code == ResponseCode.SUCCESS
        assert state_of(desk) == before

    secured(tmp_path, work)


def test_response_on_another_connection_answers_no_request(tmp_path: Path) -> None:
    """The broker relays 307 to a consumer; an attacker answers with every likely opaque number first."""

    async def work(desk: Desk) -> None:
        assert (await send(desk, ROOT)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Orders", "Sub"), ("Group:G", "Sub"))
        allow(desk, NOBODY)
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        released = asyncio.Event()

        async def answer(request: Command) -> Answer:
            if request.code != RequestCode.GET_CONSUMER_RUNNING_INFO:
                return None  # the members of the group have changed
            asked.set_result(None)
            await released.wait()
            return response_to(request, ResponseCode.SUCCESS, body=b'{"of":"the consumer"}')

        def take(_: Connection, request: Command) -> object:
            return answer(request)

        consumer = RemotingClient(take)  # type: ignore[arg-type]
        beat = {"groupName": "G", "subscriptionDataSet": [{"topic": "Orders", "subString": "*", "subVersion": 1}]}
        data = {"clientID": "client-1", "consumerDataSet": [beat], "producerDataSet": []}
        try:
            consuming = Desk(desk.broker, consumer, [])
            await ask(consuming, RequestCode.HEART_BEAT, WRITER, body=json.dumps(data).encode())
            fields = {"consumerGroup": "G", "clientId": "client-1", "jstackEnable": "false"}
            relayed = asyncio.create_task(ask(desk, RequestCode.GET_CONSUMER_RUNNING_INFO, ROOT, fields=fields))
            await asked
            assert (await heartbeat(desk, NOBODY, "client-1", "P")).code == ResponseCode.SUCCESS
            _, writer = await asyncio.open_connection("127.0.0.1", desk.broker.address[1])
            for opaque in range(200):
                forged = Command(ResponseCode.SUCCESS, flag=FLAG_RESPONSE, opaque=opaque, body=b'{"of":"a stranger"}')
                writer.write(encode_command(forged))
            await writer.drain()
            await asyncio.sleep(0.1)
            assert not relayed.done(), relayed.result()
            released.set()
            assert (await relayed).body == b'{"of":"the consumer"}'
            writer.close()
            await writer.wait_closed()
        finally:
            await consumer.close()

    secured(tmp_path, work)


# Names inside messages


def named_elsewhere() -> dict[str, dict[str, str]]:
    unique = {"UNIQ_KEY": "C" * 32, "PGROUP": "P"}
    target = {"REAL_TOPIC": "Secret", "REAL_QID": "0", "RETRY_TOPIC": "Secret", "ORIGIN_MESSAGE_ID": SECRET_ID}
    return {
        "plain": {**unique, **target},
        "delayed": {**unique, **target, "DELAY": "1"},
        "timer": {**unique, **target, "TIMER_DELAY_MS": "1000"},
        "timer that rolled": {**unique, **target, "TIMER_DELAY_MS": "1000", "TIMER_ROLL_TIMES": "3"},
        "half": {**unique, **target, "TRAN_MSG": "true"},
        "half and delayed": {**unique, **target, "TRAN_MSG": "true", "DELAY": "1"},
    }


@pytest.mark.parametrize("kind", named_elsewhere())
@pytest.mark.parametrize("is_learnt", [False, True], ids=["slow path", "fast path"])
def test_message_that_names_another_topic_stays_in_its_own(kind: str, is_learnt: bool, tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        for topic in ("Orders", "Secret"):
            assert (await send(desk, ROOT, topic)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Orders", "Pub,Sub"), ("Group:G", "Sub"))
        properties = named_elsewhere()[kind]
        flags = 4 if "TRAN_MSG" in properties else 0
        usual = {"UNIQ_KEY": "D" * 32, **({"TRAN_MSG": "true", "PGROUP": "P"} if flags else {})}
        for _ in range(40 if is_learnt else 0):
            assert (await send(desk, WRITER, sys_flag=flags, properties=usual)).code == ResponseCode.SUCCESS
        sent = await send(desk, WRITER, sys_flag=flags, properties=properties)
        assert sent.code == ResponseCode.SUCCESS
        if flags:
            end = {"producerGroup": "P", "tranStateTableOffset": sent.ext_fields["queueOffset"], "msgId": "C" * 32}
            end |= {"commitLogOffset": str(int(sent.ext_fields["msgId"][-16:], 16)), "commitOrRollback": "8"}
            end |= {"transactionId": "C" * 32, "topic": "Secret"}
            refused = await ask(desk, RequestCode.END_TRANSACTION, WRITER, fields=end)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert (await ask(desk, RequestCode.END_TRANSACTION, WRITER, fields={**end, "topic": "Orders"})).code == 0
        await settled(desk)
        clock.now_ms += 3_600_000
        await settled(desk)
        store = desk.broker.state.store
        desk.broker._delayed.deliver_due(clock.now_ms)
        await until(lambda: store.dispatched_to == store.written_to)
        sent_before = 1 + (40 if is_learnt and not flags else 0)
        assert (end_of(desk, "Orders"), end_of(desk, "Secret")) == (sent_before + 1, 1)

    at_clock(tmp_path, work, clock)


def test_members_of_a_batch_stay_in_its_topic(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for topic in ("Orders", "Secret"):
            assert (await send(desk, ROOT, topic)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Orders", "Pub"))
        members = [BatchMember(b"one", encode_properties(properties)) for properties in named_elsewhere().values()]
        for code in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2):
            command = send_command(None, body=encode_batch(members), properties={}, batch=True)
            command.code = code
            WRITER.sign(command)
            await desk.client.invoke(desk.address, command, TIMEOUT_S)
        store = desk.broker.state.store
        await until(lambda: store.dispatched_to == store.written_to)
        assert end_of(desk, "Secret") == 1

    secured(tmp_path, work)


def test_message_that_is_sent_back_stays_with_its_group(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for topic in ("Orders", "Secret"):
            assert (await send(desk, ROOT, topic)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Orders", "Pub,Sub"), ("Group:G", "Sub"))
        sent = await send(desk, WRITER, properties=named_elsewhere()["plain"])
        offset = str(int(sent.ext_fields["msgId"][-16:], 16))
        back = {"offset": offset, "group": "G", "delayLevel": "-1", "originTopic": "Secret", "originMsgId": SECRET_ID}
        for changes in ({}, {"unitMode": "true"}, {"maxReconsumeTimes": "0"}, {"delayLevel": "0"}):
            await ask(desk, RequestCode.CONSUMER_SEND_MSG_BACK, WRITER, fields={**back, **changes})
        for group in ("other", "%RETRY%other", "", "CID_RMQ_SYS_TRANS"):
            refused = await ask(desk, RequestCode.CONSUMER_SEND_MSG_BACK, WRITER, fields={**back, "group": group})
            assert refused.code == ResponseCode.NO_PERMISSION
        store = desk.broker.state.store
        await until(lambda: store.dispatched_to == store.written_to)
        assert end_of(desk, "Secret") == 1
        names = set(desk.broker.state.topics.table)
        assert not {name for name in names if "other" in name} and "%DLQ%G" in names

    secured(tmp_path, work)


def test_every_row_of_a_code_with_two_names_checks_both() -> None:
    """A group without its topic, or a topic without its group, is never enough to read messages."""
    for code in (11, 361, 200050, 200051, 200052, 200053, 200054):
        assert [item.kind.value for item in ROWS[code].fields] == ["Group", "Topic"], code
