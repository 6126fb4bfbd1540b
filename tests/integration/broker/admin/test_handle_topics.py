"""Topic requests of operators, over a socket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitlog.formats.tables.topic_config import decode_topic_queue_mapping
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.queue_bodies import TopicStats
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk, records, until


async def make_topic(desk: Desk, topic: str = "Made", **more: object) -> int:
    fields = {"readQueueNums": 2, "writeQueueNums": 3, "perm": 6, "defaultTopic": "TBW102", **more}
    return (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, **fields)).code


def test_topic_is_created_changed_and_deleted(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        assert await make_topic(desk, attributes="+a=1,+b=2") == ResponseCode.SUCCESS
        assert await make_topic(desk, attributes="-b", perm=4) == ResponseCode.SUCCESS
        config = json.loads((await desk.ask(RequestCode.GET_TOPIC_CONFIG, topic="Made")).body)
        assert (config["perm"], config["writeQueueNums"], config["attributes"]) == (4, 3, {"a": "1"})
        assert "Made" in (tmp_path / "config" / "topics.json").read_text(), "acknowledged means saved"
        await desk.send("Made", queue_id=2)
        stats = decode_body(TopicStats, (await desk.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="Made")).body)
        assert {queue.queue_id: each.max_queue_offset for queue, each in stats.offsets.items()} == {0: 0, 1: 0, 2: 1}
        assert (await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Made")).code == ResponseCode.SUCCESS
        assert (await desk.ask(RequestCode.GET_TOPIC_CONFIG, topic="Made")).code == ResponseCode.TOPIC_NOT_EXIST
        assert list((tmp_path / "consumequeue" / "Made" / "2").iterdir()) == []
        again = await desk.send("Made", queue_id=2)
        assert again.ext_fields["queueOffset"] == "0"

    at_desk(tmp_path, work)


def test_invalid_topics_are_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for topic in ("a/b", "..", "", "TBW102", "DefaultCluster", "rmq_sys_x"):
            assert await make_topic(desk, topic) == ResponseCode.INVALID_PARAMETER
        assert await make_topic(desk, readQueueNums=-1) == ResponseCode.INVALID_PARAMETER
        assert await make_topic(desk, attributes="nonsense") == ResponseCode.INVALID_PARAMETER
        for attributes in (
            "+queue.type=BatchCQ",
            "+cleanup.policy=COMPACTION",
            "+a=1,+queue.type=Other",
            "+message.type=LITE",
        ):
            assert await make_topic(desk, attributes=attributes) == ResponseCode.INVALID_PARAMETER
        assert await make_topic(desk, attributes="+queue.type=SimpleCQ") == ResponseCode.SUCCESS
        answer = await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="../../config")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        await until((tmp_path / "config" / "topics.json").is_file)

    at_desk(tmp_path, work)


@pytest.mark.parametrize("is_enabled", [False, True])
def test_message_type_mixed_needs_its_setting(is_enabled: bool, tmp_path: Path) -> None:
    expected = ResponseCode.SUCCESS if is_enabled else ResponseCode.SYSTEM_ERROR

    async def work(desk: Desk) -> None:
        assert await make_topic(desk, attributes="+message.type=MIXED") == expected

    at_desk(tmp_path, work, enableMixedMessageType=str(is_enabled).lower())


async def _popped(desk: Desk, invisible_ms: int = 60_000, group: str = "G") -> list[bytes]:
    wish = {"consumerGroup": group, "topic": "Orders", "queueId": -1, "maxMsgNums": 32, "invisibleTime": invisible_ms}
    answer = await desk.ask(RequestCode.POP_MESSAGE, **wish, pollTime=0, bornTime=0, initMode=0)
    return [message.body for message in records(answer)]


async def _retried(desk: Desk, topic: str) -> None:
    """Send, pop and wait until the message is in the retry topic."""
    await desk.send(body=b"deleted")
    await until(lambda: desk.broker.state.max_offset("Orders", 0) == 1)
    assert await _popped(desk, invisible_ms=1) == [b"deleted"]
    await until(lambda: desk.broker.state.max_offset(topic, 0) == 1)


@pytest.mark.parametrize("is_v2", [False, True])
def test_deleted_topic_takes_its_pop_retry_topics_with_it(is_v2: bool, tmp_path: Path) -> None:
    retry_topic = "%RETRY%G+Orders" if is_v2 else "%RETRY%G_Orders"

    async def work(desk: Desk) -> None:
        await _retried(desk, retry_topic)
        await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
        assert retry_topic not in (tmp_path / "config" / "topics.json").read_text()
        await desk.send(body=b"new")
        await until(lambda: desk.broker.state.max_offset("Orders", 0) == 1)
        assert await _popped(desk) == [b"new"]

    at_desk(tmp_path, work, enableRetryTopicV2=str(is_v2).lower())


def test_deleted_topic_keeps_its_pop_retry_topics_if_the_setting_says_so(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await _retried(desk, "%RETRY%G_Orders")
        await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
        await make_topic(desk, "Orders")
        assert await _popped(desk) == [b"deleted"]

    at_desk(tmp_path, work, clearRetryTopicWhenDeleteTopic="false")


def test_deleted_topic_leaves_no_delivery_in_flight(tmp_path: Path) -> None:
    """Neither does one of the deleted topic expire in a re-created one, nor does an ordered batch block its queue."""

    async def work(desk: Desk) -> None:
        await desk.send(body=b"deleted")
        await until(lambda: desk.broker.state.max_offset("Orders", 0) == 1)
        assert await _popped(desk) == [b"deleted"]
        ordered = {"consumerGroup": "Ordered", "topic": "Orders", "queueId": 0, "maxMsgNums": 1, "order": "true"}
        times = {"invisibleTime": 3_600_000, "pollTime": 0, "bornTime": 0, "initMode": 0}
        assert len(records(await desk.ask(RequestCode.POP_MESSAGE, **ordered, **times))) == 1
        await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
        assert not desk.broker._pops.popped._queues and not desk.broker._pops.ordered._batches
        await desk.send(body=b"new")
        await until(lambda: desk.broker.state.max_offset("Orders", 0) == 1)
        assert [one.body for one in records(await desk.ask(RequestCode.POP_MESSAGE, **ordered, **times))] == [b"new"]

    at_desk(tmp_path, work)


def test_deleted_static_topic_leaves_the_table_of_a_java_broker(tmp_path: Path) -> None:
    def mapping(topic: str) -> str:
        item = '{"queueId":0,"bname":"broker-a"}'
        return f'"{topic}":{{"topic":"{topic}","bname":"broker-a","totalQueues":1,"hostedQueues":{{0:[{item}]}}}}'

    table = tmp_path / "config" / "topicQueueMapping.json"
    table.parent.mkdir()
    table.write_text(f'{{"topicQueueMappingInfoMap":{{{mapping("Made")},{mapping("Kept")}}}}}')

    async def work(desk: Desk) -> None:
        await make_topic(desk)
        await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Made")
        assert list(decode_topic_queue_mapping(table.read_text()).mappings) == ["Kept"]

    at_desk(tmp_path, work)


def test_topic_created_by_a_send_is_saved_before_the_response(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send("Fresh")
        assert "Fresh" in (tmp_path / "config" / "topics.json").read_text()

    at_desk(tmp_path, work)
