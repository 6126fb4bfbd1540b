"""Topic requests of operators, over a socket."""

from __future__ import annotations

import json
from pathlib import Path

from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.queue_bodies import TopicStats
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk, until


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
        for attributes in ("+queue.type=BatchCQ", "+cleanup.policy=COMPACTION", "+a=1,+queue.type=Other"):
            assert await make_topic(desk, attributes=attributes) == ResponseCode.INVALID_PARAMETER
        assert await make_topic(desk, attributes="+queue.type=SimpleCQ") == ResponseCode.SUCCESS
        answer = await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="../../config")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        await until((tmp_path / "config" / "topics.json").is_file)

    at_desk(tmp_path, work)


def test_topic_created_by_a_send_is_saved_before_the_response(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send("Fresh")
        assert "Fresh" in (tmp_path / "config" / "topics.json").read_text()

    at_desk(tmp_path, work)
