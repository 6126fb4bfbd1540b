"""Ways around access control: repeated fields, foreign groups and client ids, light queues, ambiguous names.

Each attacker has an account with few rights. A request that is refused must have no effect, on the slow path and on
fast paths.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from orbitlog.access.credentials import Credentials
from orbitlog.access.request_signature import signature_of
from orbitlog.broker.sending.handle_reply import REPLY_TO_CLIENT
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.formats.records.properties import encode_properties
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, Serialization, encode_command, response_to
from tests.support.broker_desk import TIMEOUT_S, Desk, client_of, until
from tests.support.raw_peer import framed
from tests.support.secured_broker import (
    NOBODY,
    ROOT,
    WRITER,
    allow,
    ask,
    end_of,
    heartbeat,
    secured,
    send,
    send_command,
)

PULL = {"consumerGroup": "G", "topic": "Orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4"}
PULL |= {"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}
HEADER_START = 8


# Headers


async def raw_answers(desk: Desk, frames: list[bytes]) -> list[int]:
    """Send frames over one connection; return the code of each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", desk.broker.address[1])
    codes = []
    try:
        writer.write(b"".join(frames))
        for _ in frames:
            async with asyncio.timeout(TIMEOUT_S):
                total, header_bytes = struct.unpack(">II", await reader.readexactly(8))
                content = await reader.readexactly(total - 4)
            codes.append(orjson.loads(content[: header_bytes & 0xFFFFFF])["code"])
    except asyncio.IncompleteReadError:
        codes += [-1] * (len(frames) - len(codes))  # the connection was closed
    finally:
        writer.close()
        await writer.wait_closed()
    return codes


def json_frame(fields: list[tuple[str, str]], *, opaque: int = 1, body: bytes = b"hello") -> bytes:
    """Return a send whose header has these ext fields in this order, repeated ones included."""
    pairs = b",".join(orjson.dumps(name) + b":" + orjson.dumps(text) for name, text in fields)
    start = b'{"code":310,"extFields":{%b},"flag":0,"language":"JAVA","opaque":%d,' % (pairs, opaque)
    return framed(start + b'"serializeTypeCurrentRPC":"JSON","version":479}', body)


def signed(fields: list[tuple[str, str]], user: Credentials = WRITER, body: bytes = b"hello") -> list[tuple[str, str]]:
    """Sign the fields as a reader understands them: the last one of a name counts."""
    fields = [*fields, ("AccessKey", user.access_key)]
    return [*fields, ("Signature", signature_of(user.secret_key, dict(fields), body))]


def variants() -> dict[str, list[tuple[str, str]]]:
    """Sends of the writer to a topic that is not its own, each with a header that could be understood differently."""
    own = list(send_command(None).ext_fields.items())
    foreign = list(send_command(None, "Secret").ext_fields.items())
    by_root = [("AccessKey", ROOT.access_key)]
    return {
        "own topic, then the foreign one": signed([*own, ("b", "Secret")]),
        "foreign topic, then the own one": [*signed([("b", "Secret"), *own])[1:], ("b", "Secret")],
        "long name of the topic": signed([*foreign, ("topic", "Orders")]),
        "upper case name of the topic": signed([*foreign, ("B", "Orders")]),
        "account repeated": [*signed(foreign), *by_root],
        "account in lower case": [*signed(foreign), ("accesskey", ROOT.access_key), ("ACCESSKEY", ROOT.access_key)],
        "signature repeated": [*signed(foreign), ("Signature", "")],
        "signature of another account": [*signed(foreign)[:-1], *by_root, signed(foreign)[-1]],
        "unsigned field names another topic": [
            *signed(foreign),
            ("_UNIQUE_KEY_QUERY", "true"),
            ("__ZONE_NAME", "Orders"),
        ],
        "security token names the account": [*signed(foreign), ("SecurityToken", ROOT.secret_key)],
        "topic with a blank": signed([*own, ("b", "Secret ")]),
        "escaped name of the topic": signed([*own, ("b", "Secret")]),
    }


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("is_learnt", [False, True], ids=["slow path", "fast path"])
def test_header_that_can_be_read_in_two_ways_reaches_no_foreign_topic(
    variant: str, is_learnt: bool, tmp_path: Path
) -> None:
    async def work(desk: Desk) -> None:
        for topic in ("Orders", "Secret"):
            assert (await send(desk, ROOT, topic)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Orders", "Pub"))
        own = signed(list(send_command(None).ext_fields.items()))
        frames = [json_frame(own, opaque=number) for number in range(40 if is_learnt else 0)]
        attack = json_frame(variants()[variant], opaque=99)
        if variant.startswith("escaped"):
            attack = attack.replace(b'"b":"Secret"', b'"\\u0062":"Secret"')
            attack = framed(attack[HEADER_START : len(attack) - 5], b"hello")
        codes = await raw_answers(desk, [*frames, attack])
        assert set(codes[:-1]) <= {ResponseCode.SUCCESS}
        assert codes[-1] != ResponseCode.SUCCESS
        assert end_of(desk, "Secret") == 1
        assert end_of(desk, "Orders") == 1 + len(frames)

    secured(tmp_path, work)


def test_repeated_field_of_a_binary_header_counts_once(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for topic in ("Orders", "Secret"):
            assert (await send(desk, ROOT, topic)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Orders", "Pub"))
        for first, second in (("Orders", "Secret"), ("Secret", "Orders")):
            command = send_command(None, first)
            command.serialization = Serialization.BINARY
            for understood in (first, second):
                command.ext_fields = {**send_command(None, understood).ext_fields}
                WRITER.sign(command)
                command.ext_fields |= {"b": first, "z": second}
                frame = encode_command(command).replace(b"\0\1z", b"\0\1b")
                writer = (await asyncio.open_connection("127.0.0.1", desk.broker.address[1]))[1]
                writer.write(frame)
                await writer.drain()
                writer.close()
        assert (await send(desk, ROOT)).code == ResponseCode.SUCCESS
        assert end_of(desk, "Secret") == 1

    secured(tmp_path, work)


# Pulls


def test_repeated_pull_is_verified_each_time(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        assert (await send(desk, ROOT)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Orders", "Sub"), ("Group:G", "Sub"))
        for _ in range(40):  # until the connection has a pattern for them
            assert (await ask(desk, RequestCode.PULL_MESSAGE, WRITER, fields=PULL)).code == ResponseCode.SUCCESS
        moved = {**PULL, "commitOffset": "7", "sysFlag": "5"}
        signature = signature_of(WRITER.secret_key, {**PULL, "AccessKey": WRITER.access_key}, b"")
        stolen = await ask(desk, RequestCode.PULL_MESSAGE, WRITER, fields=moved, signature=signature)
        other_body = await ask(desk, RequestCode.PULL_MESSAGE, WRITER, fields=PULL, body=b"x", signature=signature)
        forged = await ask(desk, RequestCode.PULL_MESSAGE, Credentials("writer", "wrong"), fields=PULL)
        unsigned = await ask(desk, RequestCode.PULL_MESSAGE, fields=PULL)
        for answer in (stolen, other_body, forged, unsigned):
            assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b"")
        assert desk.broker.state.offsets.find("Orders", "G", 0) is None
        allow(desk, WRITER, ("Topic:Orders", "Sub"))
        revoked = await ask(desk, RequestCode.PULL_MESSAGE, WRITER, fields=PULL)
        assert (revoked.code, revoked.body) == (ResponseCode.NO_PERMISSION, b"")

    secured(tmp_path, work)


FOREIGN_NAMES = (
    {"topic": "%RETRY%other"},
    {"topic": "%RETRY%other+Orders"},
    {"topic": "%DLQ%other"},
    {"topic": "SCHEDULE_TOPIC_XXXX"},
    {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"},
    {"topic": "rmq_sys_wheel_timer"},
    {"topic": "Orders", "consumerGroup": "other"},
    {"topic": "Orders", "consumerGroup": "CID_RMQ_SYS_TRANS"},
    {"topic": "orders"},
    {"topic": "Orders\u200b"},
    {"topic": ""},
    {"topic": "*"},
    {"topic": "%LMQ%other"},
)


@pytest.mark.parametrize("code", [11, 361, 14, 15, 200050, 200051, 200052, 200053])
def test_names_with_another_meaning_are_not_covered_by_a_permission(code: int, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        assert (await send(desk, ROOT)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Orders", "All"), ("Group:G", "All"))
        given = {**PULL, "invisibleTime": "1000", "extraInfo": "0 0 60000 0 0 broker-a 0 0", "offset": "0"}
        for fields in FOREIGN_NAMES:
            answer = await ask(desk, code, WRITER, fields={**given, **fields})
            assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b""), fields
        assert (await ask(desk, code, WRITER, fields=given)).code != ResponseCode.NO_PERMISSION

    secured(tmp_path, work)


# Clients that the broker sends messages to


def test_check_of_a_transaction_goes_to_producers_with_a_permission_only(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        assert (await send(desk, ROOT)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Orders", "Pub"))
        allow(desk, NOBODY)
        half = {"UNIQ_KEY": "7F00000100002A9F0000000000000001", "TRAN_MSG": "true", "PGROUP": "P"}
        assert (await send(desk, WRITER, properties=half, sys_flag=4)).code == ResponseCode.SUCCESS
        store = desk.broker.state.store
        await until(lambda: store.dispatched_to == store.written_to)
        check = desk.broker._transaction_check
        async with client_of(desk) as stranger, client_of(desk) as producer:
            assert (await heartbeat(stranger, NOBODY, "stranger", "P")).code == ResponseCode.SUCCESS
            assert check.check_once(100_000) == 0
            assert (await heartbeat(producer, WRITER, "producer", "P")).code == ResponseCode.SUCCESS
            for minute in range(2, 6):
                assert check.check_once(minute * 100_000) == 1
                await until(lambda: store.dispatched_to == store.written_to)
            await until(lambda: len(producer.heard) == 4)
            assert [request.code for request in producer.heard] == [RequestCode.CHECK_TRANSACTION_STATE] * 4
            assert stranger.heard == []

    secured(tmp_path, work, transactionTimeOut="6000")


def answering(heard: list[bytes]) -> Callable[[Connection, Command], Answer]:
    def take(_: Connection, request: Command) -> Answer:
        heard.append(request.body)
        return response_to(request, ResponseCode.SUCCESS)

    return take


def test_reply_goes_to_the_account_that_uses_the_client_id(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        allow(desk, WRITER, ("Topic:Orders", "Pub"))
        allow(desk, NOBODY)
        heard: dict[str, list[bytes]] = {"asker": [], "stranger": [], "asker anew": []}
        desks = {name: Desk(desk.broker, RemotingClient(answering(bodies)), []) for name, bodies in heard.items()}

        async def reply(body: bytes) -> int:
            command = send_command(
                None, "DefaultCluster_REPLY_TOPIC", body=body, properties={REPLY_TO_CLIENT: "10.0.0.1@1"}
            )
            command.code = RequestCode.SEND_REPLY_MESSAGE_V2
            ROOT.sign(command)
            return (await desk.client.invoke(desk.address, command, TIMEOUT_S)).code

        try:
            await heartbeat(desks["asker"], WRITER, "10.0.0.1@1", "askers")
            await heartbeat(desks["stranger"], NOBODY, "10.0.0.1@1", "a-group", "askers")
            assert await reply(b"one") == ResponseCode.SUCCESS
            await heartbeat(desks["asker anew"], WRITER, "10.0.0.1@1", "askers")
            assert await reply(b"two") == ResponseCode.SUCCESS
            assert heard == {"asker": [b"one"], "stranger": [], "asker anew": [b"two"]}
            await desks["asker"].client.close()
            assert await reply(b"three") == ResponseCode.SUCCESS
            assert heard["asker anew"] == [b"two", b"three"]
        finally:
            for client in desks.values():
                await client.client.close()

    secured(tmp_path, work)


# Light queues


@pytest.mark.parametrize("compat", ["4.9", "5.5"])
def test_message_enters_only_light_queues_of_its_account(compat: str, tmp_path: Path) -> None:
    def light(queues: str) -> dict[str, str]:
        unique = {"UNIQ_KEY": "7F00000100002A9F0000000000000001"}
        return {**unique, "INNER_MULTI_DISPATCH": queues, "INNER_MULTI_QUEUE_OFFSET": "5"}

    async def work(desk: Desk) -> None:
        assert (await send(desk, ROOT)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Orders", "Pub"), ("Topic:%LMQ%mine*", "Pub"))
        state = desk.broker.state
        end = state.store.written_to
        for queues in ("%LMQ%other", "%LMQ%mine,%LMQ%other", " %LMQ%other", "Secret"):
            assert (await send(desk, WRITER, properties=light(queues))).code == ResponseCode.NO_PERMISSION
            member = BatchMember(b"one", encode_properties(light(queues)))
            command = send_command(None, body=encode_batch([member]), properties={}, batch=True)
            command.code = RequestCode.SEND_BATCH_MESSAGE
            WRITER.sign(command)
            answer = await desk.client.invoke(desk.address, command, TIMEOUT_S)
            assert answer.code == ResponseCode.NO_PERMISSION, queues
        assert state.store.written_to == end
        assert (await send(desk, WRITER, properties=light("%LMQ%mine"))).code == ResponseCode.SUCCESS
        await until(lambda: state.store.dispatched_to == state.store.written_to)
        assert (end_of(desk, "%LMQ%mine"), end_of(desk, "%LMQ%other")) == (1, 0)

    secured(tmp_path, work, enableLmq="true", enableMultiDispatch="true", compat=compat)


# Replays


def test_repeated_request_is_the_senders_again_and_nothing_more(tmp_path: Path) -> None:
    """A recorded send can be repeated as it is, which only TLS prevents; no part of it can be changed."""

    async def work(desk: Desk) -> None:
        assert (await send(desk, ROOT)).code == ResponseCode.SUCCESS
        allow(desk, WRITER, ("Topic:Orders", "Pub"), ("Topic:Other", "Pub"))
        recorded = send_command(WRITER)
        for _ in range(2):
            again = Command(recorded.code, ext_fields=dict(recorded.ext_fields), body=recorded.body)
            assert (await desk.client.invoke(desk.address, again, TIMEOUT_S)).code == ResponseCode.SUCCESS
        for change in ({"b": "Other"}, {"e": "1"}, {"i": "KEYS\x01k"}, {"AccessKey": "nobody"}, {"extra": "1"}):
            changed = Command(recorded.code, ext_fields={**recorded.ext_fields, **change}, body=recorded.body)
            assert (await desk.client.invoke(desk.address, changed, TIMEOUT_S)).code == ResponseCode.NO_PERMISSION
        for code in (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.AUTH_CREATE_USER, RequestCode.PULL_MESSAGE):
            other = Command(code, ext_fields=dict(recorded.ext_fields), body=recorded.body)
            assert (await desk.client.invoke(desk.address, other, TIMEOUT_S)).code == ResponseCode.NO_PERMISSION

    secured(tmp_path, work)
