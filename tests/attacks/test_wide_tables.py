"""Very many groups, queues and topics: statistics and POP take short steps, and tables have limits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from orbitlog.broker.admin.queue_statistics import STEP_QUEUES
from orbitlog.broker.pop import pop_service, queue_search
from orbitlog.broker.pop.queue_search import IsUsed, QueueSearch
from orbitlog.broker.tables.committed_offsets import CommittedOffsets
from orbitlog.formats.tables.group_config import GroupConfig
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.remoting import whole_tables
from orbitlog.remoting.loop_slices import COUNTERS
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.bodies.config_lists import TopicConfigList
from orbitlog.wire.bodies.queue_bodies import ConsumeStats, ConsumeStatsList, TopicStats
from orbitlog.wire.bodies.registration_body import TopicWrapper
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import Desk, at_desk, until
from tests.support.work_counters import steps_of

WIDE = 5_000


async def pop(desk: Desk, topic: str, group: str, poll_ms: int = 0) -> Command:
    return await desk.ask(
        RequestCode.POP_MESSAGE,
        consumerGroup=group,
        topic=topic,
        queueId=-1,
        maxMsgNums=32,
        invisibleTime=10_000,
        pollTime=poll_ms,
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


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Topics with more than 20 queues are wide; the list has the number of queues that each window covered."""
    monkeypatch.setattr(pop_service, "NARROW_QUEUES", 20)
    monkeypatch.setattr(queue_search, "WINDOW_QUEUES", 50)
    monkeypatch.setattr(queue_search, "WINDOW_USED_QUEUES", 10)
    covered: list[int] = []
    cover = QueueSearch.next_window

    def counted(search: QueueSearch, spans: list[tuple[str, int]], is_used: IsUsed) -> list[tuple[str, int]]:
        looked: list[int] = []
        used = cover(search, spans, lambda *queue: looked.append(1) or is_used(*queue))
        covered.append(len(looked))
        assert len(looked) <= 50 and len(used) <= 10
        return used

    monkeypatch.setattr(QueueSearch, "next_window", counted)
    return covered


async def fill_wide(desk: Desk, left: int) -> None:
    """Send a message to each of 100 queues of 200; group G has consumed all of them but one."""
    desk.broker.state.topics.put(TopicConfig("Wide", 200, 200))
    for queue_id in range(100):
        await desk.send("Wide", queue_id=queue_id)
    store = desk.broker.state.store
    await until(lambda: store.dispatched_to == store.written_to)
    for queue_id in range(100):
        desk.broker.state.offsets.commit("Wide", "G", queue_id, 0 if queue_id == left else 1)


def test_pop_of_a_wide_topic_finds_the_only_message_in_short_steps(tmp_path: Path, small_windows: list[int]) -> None:
    async def work(desk: Desk) -> None:
        await fill_wide(desk, left=77)
        peeked = await desk.ask(RequestCode.PEEK_MESSAGE, topic="Wide", consumerGroup="G", queueId=-1, maxMsgNums=8)
        assert peeked.code == ResponseCode.SUCCESS and peeked.body
        fields = {"topic": "Wide", "consumerGroup": "G", "queueId": -1, "pollTime": 0, "bornTime": 0}
        noticed = await desk.ask(RequestCode.NOTIFICATION, **fields)
        assert noticed.ext_fields["hasMsg"] == "true"
        small_windows.clear()
        answer = await pop(desk, "Wide", "G")
        assert answer.code == ResponseCode.SUCCESS and answer.ext_fields["msgOffsetInfo"].startswith("0 77 ")
        small_windows.clear()
        assert (await pop(desk, "Wide", "G")).code == ResponseCode.POLLING_TIMEOUT
        assert sum(small_windows) >= 200 and len(small_windows) >= 10, "all queues are searched before it gives up"

    at_desk(tmp_path, work)


def test_held_pop_of_a_wide_topic_gets_a_message_of_any_queue(tmp_path: Path, small_windows: list[int]) -> None:
    async def work(desk: Desk) -> None:
        await fill_wide(desk, left=-1)
        waiting = asyncio.ensure_future(pop(desk, "Wide", "G", poll_ms=15_000))
        await until(lambda: sum(small_windows) >= 200)
        await desk.send("Wide", queue_id=150)
        answer = await waiting
        assert answer.code == ResponseCode.SUCCESS and answer.ext_fields["msgOffsetInfo"].startswith("0 150 ")

    at_desk(tmp_path, work)


def test_whole_tables_are_encoded_in_a_thread_one_at_a_time(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        state = desk.broker.state
        state.topics._topics.update({f"T{number}": TopicConfig(f"T{number}", 4, 4) for number in range(WIDE)})
        state.groups._groups.update({f"g{number}": GroupConfig(f"g{number}") for number in range(WIDE)})
        for queue_id in range(WIDE):
            state.offsets.commit("Wide", "G", queue_id, 1)
        topics, groups = state.topics.snapshot(), state.groups.snapshot()
        wrapper = TopicWrapper(topics=topics.topics, data_version=topics.data_version)
        answers = await asyncio.gather(*(desk.ask(RequestCode.GET_ALL_TOPIC_CONFIG) for _ in range(3)))
        assert {answer.body for answer in answers} == {encode_body(wrapper)}
        answer = await desk.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert answer.body == encode_body(groups)
        answer = await desk.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert len(orjson.loads(answer.body)["offsetTable"]["Wide@G"]) == WIDE

    encoded: list[str] = []
    running = 0

    async def in_thread(encode: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal running
        if encode.__module__ != whole_tables.__name__:
            return await to_thread(encode, *arguments)  # the shutdown of the broker
        running += 1
        assert running == 1
        encoded.append(threading.current_thread().name)
        body = await to_thread(encode)
        running -= 1
        return body

    to_thread = asyncio.to_thread
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_tables.asyncio, "to_thread", in_thread)
        at_desk(tmp_path, work)
    assert len(encoded) == 5


def test_table_that_does_not_fit_a_frame_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk) -> None:
        answer = await desk.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert answer.code == ResponseCode.SYSTEM_ERROR and "ask for single entries" in str(answer.remark)

    monkeypatch.setattr(whole_tables, "BODY_BYTES_MAX", 100)
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
