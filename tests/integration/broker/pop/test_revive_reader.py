"""POP checkpoints of a Java broker taken over: stores left by Apache's broker 5.5.0 (java_pops/README.md)."""

from __future__ import annotations

import asyncio
import tarfile
from collections import Counter
from pathlib import Path
from zlib import crc32

import pytest

from orbitlog.formats.names import REVIVE_GROUP, REVIVE_TOPIC_PREFIX
from orbitlog.formats.records.message import BODY_CRC_MASK, MAGIC_V1, Message, decode_message, encode_message
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.queue_bodies import ConsumeStats
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk, records, until

MAGIC = MAGIC_V1.to_bytes(4, "big")
ARCHIVES = Path(__file__).parent / "java_pops"
OWED = [b"m3", b"m4", b"m5", b"m6", b"m8", b"m9", b"m10", b"m11"]
REVIVE_TOPIC = REVIVE_TOPIC_PREFIX + "InteropCluster"
STORED_MS = 1_794_856_800_000  # after both stores were written
SIZES = {
    "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "compat": "5.5",
}
SETTINGS = {"brokerClusterName": "InteropCluster", "brokerName": "interop-broker", **SIZES}


class Clock:
    def __init__(self, ms: int = STORED_MS) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


def unpacked(name: str, directory: Path) -> Path:
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "store"


async def popped(desk: Desk, clock: Clock, count: int) -> list[Message]:
    """Pop and acknowledge until N messages arrived."""
    found: list[Message] = []
    wish = {"consumerGroup": "Gpop", "topic": "Plain", "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000}
    async with asyncio.timeout(20):
        while len(found) < count:
            clock.ms += 200
            await asyncio.sleep(0.01)
            answer = await desk.ask(RequestCode.POP_MESSAGE, **wish, pollTime=0, bornTime=0, initMode=0)
            for message in records(answer):
                found.append(message)
                receipt = message.properties["POP_CK"].split(" ")
                separator = {"1": "_", "2": "+"}[receipt[4]]
                place = {"topic": f"%RETRY%Gpop{separator}Plain", "queueId": receipt[6], "offset": receipt[7]}
                ack = {"consumerGroup": "Gpop", "extraInfo": message.properties["POP_CK"]}
                answer = await desk.ask(RequestCode.ACK_MESSAGE, **place, **ack)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
    return found


async def passed(clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        clock.ms += 1_000
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("is_v2_set", [False, True])
@pytest.mark.parametrize("archive", ["v1", "v2"])
def test_messages_unacknowledged_at_java_are_redelivered_once(archive: str, is_v2_set: bool, tmp_path: Path) -> None:
    """Also with a retry topic of the other form: both are read."""
    root, clock = unpacked(archive, tmp_path), Clock()
    settings = {**SETTINGS, "enableRetryTopicV2": str(is_v2_set).lower()}

    async def take_over(desk: Desk) -> None:
        found = await popped(desk, clock, len(OWED))
        assert Counter(message.body for message in found) == Counter(OWED)
        counts = {message.body: message.reconsume_times for message in found}
        assert counts == {body: 2 if body in (b"m6", b"m8") else 1 for body in OWED}
        firsts = {message.body: message.properties["1ST_POP_TIME"] for message in found}
        assert len(set(firsts.values())) == 4, "each pop, and the extended m3, has its own"
        assert all(message.properties["ORIGIN_GROUP"] == "Gpop" for message in found)
        await passed(clock, 15)
        assert await popped(desk, clock, 0) == []
        offsets = desk.broker.state.offsets
        assert len(offsets.queues(REVIVE_TOPIC, REVIVE_GROUP)) == 3, "as Java commits them"

    async def afterwards(desk: Desk) -> None:
        await passed(clock, 15)
        answer = await desk.ask(
            *(RequestCode.POP_MESSAGE,),
            **{"consumerGroup": "Gpop", "topic": "Plain", "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000},
            **{"pollTime": 0, "bornTime": 0, "initMode": 0},
        )
        assert answer.code == ResponseCode.POLLING_TIMEOUT, "a restart revives no message a second time"

    at_desk(root, take_over, now_ms=clock, **settings)
    at_desk(root, afterwards, now_ms=clock, **settings)


def test_messages_invisible_at_java_wait_for_their_timeout(tmp_path: Path) -> None:
    root, clock = unpacked("v2", tmp_path), Clock(1_794_856_700_000)

    async def work(desk: Desk) -> None:
        await passed(clock, 10)
        assert desk.broker.state.max_offset("%RETRY%Gpop+Plain", 0) == 2, "those that Java appended"
        clock.ms = STORED_MS
        found = await popped(desk, clock, len(OWED))
        assert Counter(message.body for message in found) == Counter(OWED)

    at_desk(root, work, now_ms=clock, enableRetryTopicV2="true", **SETTINGS)


def test_receipt_of_java_acknowledges_at_orbitlog(tmp_path: Path) -> None:
    root, clock = unpacked("v2", tmp_path), Clock(1_794_856_700_000)
    ack = {"consumerGroup": "Gpop", "queueId": 0}

    async def work(desk: Desk) -> None:
        receipt = "9 1794856689629 30000 2 0 interop-broker 0 10"
        answer = await desk.ask(RequestCode.ACK_MESSAGE, **ack, topic="Plain", offset=10, extraInfo=receipt)
        assert answer.code == ResponseCode.SUCCESS
        clock.ms = STORED_MS
        found = await popped(desk, clock, len(OWED) - 1)
        assert Counter(message.body for message in found) == Counter(set(OWED) - {b"m10"})
        await passed(clock, 5)
        assert await popped(desk, clock, 0) == []

    at_desk(root, work, now_ms=clock, enableRetryTopicV2="true", **SETTINGS)


def test_revive_topic_of_another_cluster_name_is_read(tmp_path: Path) -> None:
    root, clock = unpacked("v1", tmp_path), Clock()

    async def work(desk: Desk) -> None:
        found = await popped(desk, clock, len(OWED))
        assert Counter(message.body for message in found) == Counter(OWED)

    at_desk(root, work, now_ms=clock, **SIZES)


def test_invalid_checkpoint_is_skipped_with_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root, clock = unpacked("v1", tmp_path), Clock()
    segment = root / "commitlog" / "00000000000000000000"
    whole = segment.read_bytes()
    start = whole.rindex(MAGIC, 0, whole.rindex(b'"so":9,')) - 4  # the last checkpoint, in the revive topic
    record = decode_message(whole, start)
    assert record.topic == REVIVE_TOPIC
    body = record.body.replace(b'"so":9,', b'"so":x,')
    raw = encode_message(record._replace(body=body, body_crc=crc32(body) & BODY_CRC_MASK))
    segment.write_bytes(whole[:start] + raw + whole[start + len(raw) :])

    async def work(desk: Desk) -> None:
        found = await popped(desk, clock, len(OWED) - 3)
        assert Counter(message.body for message in found) == Counter(OWED[:-3])
        await until(lambda: "invalid POP record at offset 1 of rmq_sys_REVIVE_LOG_InteropCluster" in caplog.text)

    at_desk(root, work, now_ms=clock, **SETTINGS)


def test_retry_topic_with_a_plus_sign_refuses_sends_of_clients(tmp_path: Path) -> None:
    root, topic = unpacked("v2", tmp_path), "%RETRY%Gpop+Plain"

    async def work(desk: Desk) -> None:
        assert not desk.broker.state.store.damage
        pulled = await desk.pull(topic, group="Gpop")
        assert [message.body for message in records(pulled)] == [b"m6", b"m8"]
        assert (await desk.send(topic)).code == ResponseCode.INVALID_PARAMETER
        wish = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"}
        wish |= {"defaultTopic": "TBW102", "topicSysFlag": 0}
        made = await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic="%RETRY%Gpop+Other", **wish)
        assert made.code == ResponseCode.INVALID_PARAMETER
        stats = await desk.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="Gpop")
        queues = decode_body(ConsumeStats, stats.body).offsets
        assert {(queue.topic, each.broker_queue_offset) for queue, each in queues.items()} == {
            ("Plain", 12),
            (topic, 2),
        }

    at_desk(root, work, now_ms=Clock(1_794_856_700_000), **SETTINGS)
