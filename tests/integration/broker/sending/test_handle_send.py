"""Sends, over a socket: where messages go, what is refused and with which code."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.broker.sending.send_answer import SendAnswers
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.formats.records.message_id import parse_offset_message_id
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, Serialization, encode_command, response_to
from orbitlog.wire.frames import FrameDecoder
from tests.support.broker_desk import Desk, at_desk, records


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
def test_stored_message_can_be_pulled(tmp_path: Path, code: int) -> None:
    async def work(desk: Desk) -> None:
        sent = await desk.send(code=code, properties={"TAGS": "a", "KEYS": "k"}, flag=7)
        assert sent.code == ResponseCode.SUCCESS
        assert sent.ext_fields["queueId"] == "0" and sent.ext_fields["queueOffset"] == "0"
        assert sent.ext_fields["MSG_REGION"] == "DefaultRegion" and sent.ext_fields["TRACE_ON"] == "true"
        (message,) = records(await desk.pull())
        assert (message.topic, message.body, message.flag) == ("Orders", b"hello", 7)
        assert message.properties["CLUSTER"] == "DefaultCluster" and message.properties["TAGS"] == "a"
        assert message.properties["WAIT"] == "true"

    at_desk(tmp_path, work)


def test_message_id_contains_the_dialled_address(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        sent = await desk.send()
        place = parse_offset_message_id(sent.ext_fields["msgId"])
        assert str(place.store_host) == desk.address and place.physical_offset == 0
        (message,) = records(await desk.pull())
        assert str(message.store_host) == desk.address

    at_desk(tmp_path, work)


def test_message_id_contains_the_configured_address(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        sent = await desk.send()
        assert parse_offset_message_id(sent.ext_fields["msgId"]).store_host.ip == "10.1.2.3"

    at_desk(tmp_path, work, brokerIP1="10.1.2.3", bindAddress="127.0.0.1")


def test_send_to_a_missing_topic_creates_it_from_the_template(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send("Fresh", default_topic_queue_count=3)
        made = desk.broker.state.topics.find("Fresh")
        assert made is not None and (made.write_queue_count, made.permission) == (3, 6)
        await desk.send("Many", default_topic_queue_count=100)
        many = desk.broker.state.topics.find("Many")
        assert many is not None and many.read_queue_count == 8

    at_desk(tmp_path, work)


def test_send_to_a_missing_topic_without_auto_create_is_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        answer = await desk.send("Fresh")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert desk.broker.state.topics.find("Fresh") is None

    at_desk(tmp_path, work, autoCreateTopicEnable="false")


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("../../etc/passwd", ResponseCode.INVALID_PARAMETER),
        ("a/b", ResponseCode.INVALID_PARAMETER),
        ("", ResponseCode.INVALID_PARAMETER),
        ("x" * 128, ResponseCode.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION),
    ],
)
def test_invalid_topic_name_is_refused(tmp_path: Path, topic: str, code: int) -> None:
    async def work(desk: Desk) -> None:
        before = sorted(path.name for path in tmp_path.parent.iterdir())
        assert (await desk.send(topic)).code == code
        assert sorted(path.name for path in tmp_path.parent.iterdir()) == before
        assert desk.broker.state.store.written_to == 0

    at_desk(tmp_path, work)


def test_body_over_the_limit_is_refused_and_the_connection_stays_open(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        assert (await desk.send(body=b"x" * 2000)).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await desk.send(body=b"")).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await desk.send(body=b"x" * 1024)).code == ResponseCode.SUCCESS

    at_desk(tmp_path, work, maxMessageSize="1024")


def test_queue_id_is_checked_or_chosen_by_the_broker(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        assert (await desk.send(queue_id=4)).code == ResponseCode.INVALID_PARAMETER
        queues = {(await desk.send(queue_id=-1)).ext_fields["queueId"] for _ in range(60)}
        assert queues == {"0", "1", "2", "3"}

    at_desk(tmp_path, work)


def test_batch_is_stored_as_single_messages(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        members = [BatchMember(f"body {i}".encode(), b"TAGS\x01t\x02") for i in range(5)]
        answer = await desk.send(body=encode_batch(members), code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
        assert answer.code == ResponseCode.SUCCESS
        assert len(answer.ext_fields["msgId"].split(",")) == 5 and answer.ext_fields["queueOffset"] == "0"
        pulled = records(await desk.pull())
        assert [message.body for message in pulled] == [f"body {i}".encode() for i in range(5)]
        assert [message.queue_offset for message in pulled] == list(range(5))
        broken = await desk.send(body=b"no batch at all, but long enough", code=RequestCode.SEND_BATCH_MESSAGE)
        assert broken.code == ResponseCode.MESSAGE_ILLEGAL

    at_desk(tmp_path, work)


@pytest.mark.parametrize("sys_flag", [4, 8, 12, 0x40, 0x80])
def test_sys_flag_of_a_commit_or_inner_batch_is_refused(tmp_path: Path, sys_flag: int) -> None:
    async def work(desk: Desk) -> None:
        answer = await desk.send(sys_flag=sys_flag)
        assert answer.code in (ResponseCode.NO_PERMISSION, ResponseCode.MESSAGE_ILLEGAL)

    at_desk(tmp_path, work)


def test_message_without_unique_id_gets_one(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send(properties={"UNIQ_KEY": ""})
        (message,) = records(await desk.pull())
        assert len(message.properties["UNIQ_KEY"]) == 32

    at_desk(tmp_path, work)


def test_sends_with_sync_flush_are_answered(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        sent = await desk.send()
        assert sent.code == ResponseCode.SUCCESS
        store = desk.broker.state.store
        assert store.flushed_to == store.written_to > 0
        assert len(records(await desk.pull(sys_flag=6))) == 1

    at_desk(tmp_path, work, flushDiskType="SYNC_FLUSH")


@pytest.mark.parametrize("serialization", list(Serialization))
def test_send_response_equals_the_encoded_command(serialization: int) -> None:
    request = Command(310, opaque=-7, serialization=serialization)
    frame = SendAnswers('a "quoted" % region', "true").stored(request, b"\x7f\0\0\x01\0\0\x2a\x9f", 5, 2, 9)
    long_way = encode_command(
        response_to(
            request,
            ResponseCode.SUCCESS,
            ext_fields={
                "msgId": "7F00000100002A9F0000000000000005",
                "queueId": "2",
                "queueOffset": "9",
                "MSG_REGION": 'a "quoted" % region',
                "TRACE_ON": "true",
            },
        )
    )
    assert frame == long_way
    (answer,) = FrameDecoder().receive_data(frame)
    assert answer.opaque == -7 and answer.is_response
