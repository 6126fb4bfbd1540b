"""Very many groups, queues and topics: statistics and POP take short steps, and tables have limits."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from orbitlog.broker.admin.queue_statistics import STEP_QUEUES
from orbitlog.broker.tables.committed_offsets import CommittedOffsets
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.remoting.loop_slices import COUNTERS
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.bodies.config_lists import TopicConfigList
from orbitlog.wire.bodies.queue_bodies import ConsumeStats, ConsumeStatsList, TopicStats
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import Desk, at_desk
from tests.support.work_counters import steps_of

WIDE = 5_000


async def pop(desk: Desk, topic: str, group: str) -> Command:
    return await desk.ask(
        RequestCode.POP_MESSAGE,
        consumerGroup=group,
        topic=topic,
        queueId=-1,
        maxMsgNums=32,
        invisibleTime=10_000,
        pollTime=0,
        bornTime=0,
        initMode=0,
    )


def test_statistics_of_a_wide_topic_are_computed_in_short_steps(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        desk.broker.state.topics.put(TopicConfig("Wide", WIDE, WIDE))
        await desk.send("Wide", queue_id=7)
        await desk.ask(15, consumerGroup="G", topic="Wide", queueId=7, commitOffset=1)
        for code, fields in (
            (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G", "topic": "Wide"}),
            (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
            (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Wide"}),
            (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "Wide", "group": "G"}),
            (
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                {"topic": "Wide", "group": "G", "timestamp": "-1", "isForce": "true"},
            ),
        ):
            COUNTERS.reset()
            answer = await desk.ask(code, **fields)
            assert answer.code == ResponseCode.SUCCESS, (code, answer.remark)
            assert COUNTERS.steps >= WIDE // STEP_QUEUES and COUNTERS.items_max <= STEP_QUEUES, code
            assert answer.body.count(b"queueId") == WIDE, code

    at_desk(tmp_path, work)


def test_statistics_in_steps_have_the_content_of_their_records(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        for _ in range(3):
            await desk.send()
        await desk.ask(15, consumerGroup="G", topic="Orders", queueId=0, commitOffset=2)
        answer = await desk.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="G", topic="Orders")
        stats = decode_body(ConsumeStats, answer.body)
        assert {queue.queue_id: offset.broker_queue_offset for queue, offset in stats.offsets.items()}[0] == 3
        answer = await desk.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
        everything = decode_body(ConsumeStatsList, answer.body)
        assert everything.total_diff == 1
        topic = decode_body(TopicStats, (await desk.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="Orders")).body)
        assert max(offset.max_queue_offset for offset in topic.offsets.values()) == 3

    at_desk(tmp_path, work)


def test_repeated_topics_of_a_request_count_once_and_too_many_queues_are_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        answer = await desk.ask(
            RequestCode.GET_CONSUME_STATS, consumerGroup="G", topicList=";".join(["BenchmarkTest"] * 1_000)
        )
        assert answer.body.count(b"queueId") == 1_024
        desk.broker.state.topics.put(TopicConfig("Wide", 1_500, 1_500))
        answer = await desk.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="G", topicList="BenchmarkTest;Wide")
        assert answer.code == ResponseCode.INVALID_PARAMETER and "consumeStatsQueuesMax" in str(answer.remark)
        assert desk.broker.state.limits.reached["consumeStatsQueuesMax"] == 1

    at_desk(tmp_path, work, consumeStatsQueuesMax="2000")


def test_topics_of_a_group_are_found_without_a_search_of_all_groups() -> None:
    def steps(group_count: int) -> int:
        offsets = CommittedOffsets(lambda: 0)
        for number in range(group_count):
            offsets.commit("T", f"g{number}", 0, 1)
        assert offsets.topics_of("g3") == ["T"]
        return steps_of(lambda: offsets.topics_of("g3"))

    assert steps(10) == steps(2_000)


def test_forgotten_groups_and_topics_leave_no_trace() -> None:
    offsets = CommittedOffsets(lambda: 0)
    for topic in ("T", "U"):
        for group in ("g", "h"):
            offsets.commit(topic, group, 0, 1)
    offsets.forget_group("g")
    assert offsets.topics_of("g") == [] and offsets.groups_of("T") == ["h"]
    offsets.forget_topic("T")
    assert offsets.topics_of("h") == ["U"] and offsets.groups_of("T") == []
    assert offsets.clone("U", "h", "g") and offsets.topics_of("g") == ["U"]


def test_pop_of_a_wide_empty_topic_leaves_no_offsets(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for number in range(20):
            assert (await pop(desk, "BenchmarkTest", f"new{number}")).code == ResponseCode.POLLING_TIMEOUT
            assert desk.broker.state.offsets.queues("BenchmarkTest", f"new{number}") == {}
        await desk.send("BenchmarkTest", queue_id=5)
        await desk.send("BenchmarkTest", queue_id=9)
        answer = await pop(desk, "BenchmarkTest", "new1")
        assert answer.code == ResponseCode.SUCCESS
        assert set(desk.broker.state.offsets.queues("BenchmarkTest", "new1")) == {5, 9}

    at_desk(tmp_path, work)


def test_pop_starts_only_queues_that_it_takes_messages_from(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        desk.broker.state.topics.put(TopicConfig("Wide", 200, 200))
        for queue_id in range(200):
            await desk.send("Wide", queue_id=queue_id)
        answer = await pop(desk, "Wide", "G")
        assert answer.code == ResponseCode.SUCCESS and int(answer.ext_fields["restNum"]) > 0
        assert len(desk.broker.state.offsets.queues("Wide", "G")) == 32

    at_desk(tmp_path, work)


def test_topics_and_groups_are_limited_with_a_warning_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(desk: Desk) -> None:
        state = desk.broker.state
        before = len(state.topics.table)
        bulk = encode_body(TopicConfigList(tuple(TopicConfig(f"T{number}", 1, 1) for number in range(100))))
        answer = await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, bulk)
        assert answer.code == ResponseCode.INVALID_PARAMETER and "topicsMax" in str(answer.remark)
        assert len(state.topics.table) == before, "all of them or none"
        codes = [(await desk.send(f"Auto{number}")).code for number in range(60)]
        assert codes[0] == ResponseCode.SUCCESS and codes[-1] == ResponseCode.INVALID_PARAMETER
        assert len(state.topics.table) == 50 and "delete unused ones or raise topicsMax" in caplog.text
        assert state.limits.reached["topicsMax"] > 0
        numbers = orjson.loads((await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        assert int(numbers["limitReached_topicsMax"]) > 0

    at_desk(tmp_path, work, topicsMax="50")


def test_groups_of_heartbeats_are_limited(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        state = desk.broker.state
        for number in range(30):
            await desk.heartbeat(f"g{number}")
        assert len(state.groups.table) == 20 and state.limits.reached["groupsMax"] > 0
        assert sum(topic.startswith("%RETRY%") for topic in state.topics.table) <= 20

    at_desk(tmp_path, work, groupsMax="20")


def test_queues_of_a_topic_are_limited(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        fields = {"topic": "Wide", "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"}
        answer = await desk.ask(17, **fields, readQueueNums=11, writeQueueNums=11)
        assert answer.code == ResponseCode.INVALID_PARAMETER and "queuesPerTopicMax" in str(answer.remark)

    at_desk(tmp_path, work, queuesPerTopicMax="10")


def test_offset_of_a_queue_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        answer = await desk.ask(15, consumerGroup="G", topic="Orders", queueId=70_000, commitOffset=1)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert desk.broker.state.offsets.queues("Orders", "G") == {}

    at_desk(tmp_path, work)
