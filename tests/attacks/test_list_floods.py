"""Lists in one request: counted before their entries are decoded, and carried out in short steps."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from orbitlog.access.request_needs import RequestParts, needs_of
from orbitlog.errors import LimitExceeded
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.bodies.body_json import read_request_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import Desk, at_desk
from tests.support.work_counters import steps_of, watched_loops

MANY = 2_000


def topics(count: int, **more: object) -> bytes:
    return orjson.dumps({"topicConfigList": [{"topicName": f"T{number}", **more} for number in range(count)]})


def groups(count: int, **more: object) -> bytes:
    return orjson.dumps({"groupConfigList": [{"groupName": f"g{number}", **more} for number in range(count)]})


async def refused(desk: Desk, limit: str, code: int, body: bytes, **fields: object) -> Command:
    answer = await desk.ask(code, body, **fields)
    assert answer.code != ResponseCode.SUCCESS and limit in str(answer.remark), (code, answer.remark)
    assert desk.broker.state.limits.reached[limit] > 0
    return answer


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics(MANY)),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups(MANY)),
    ],
    ids=["topics", "groups"],
)
def test_long_list_is_created_in_short_steps(code: int, body: bytes, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        with watched_loops() as steps:
            assert (await desk.ask(code, body)).code == ResponseCode.SUCCESS
        tables = desk.broker.state.topics.table, desk.broker.state.groups.table
        assert sum(name.startswith(("T", "g")) for table in tables for name in table) >= MANY
        # To put them into the table is one step, so that others see all of them or none: a quarter of the work.
        assert steps.longest < 150 * MANY, steps.longest_callback

    at_desk(tmp_path, work)


def test_list_over_its_limit_changes_nothing(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        state = desk.broker.state
        before = len(state.topics.table), len(state.groups.table)
        await refused(desk, "listEntriesMax", RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics(20))
        await refused(desk, "listEntriesMax", RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups(20))
        assert (len(state.topics.table), len(state.groups.table)) == before

    at_desk(tmp_path, work, listEntriesMax="10")


def test_attributes_and_unknown_fields_of_a_topic_or_group_are_limited(tmp_path: Path) -> None:
    large = {"x": "y" * 20_000}

    async def work(desk: Desk) -> None:
        limit = "configBytesMax"
        await refused(desk, limit, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics(1, attributes=large))
        await refused(desk, limit, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics(1, future=large))
        await refused(desk, limit, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups(1, attributes=large))
        await refused(
            desk, limit, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, orjson.dumps({"groupName": "g", "z": large})
        )
        fields = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        attributes = ",".join(f"+k{number}={'v' * 100}" for number in range(200))
        await refused(
            desk,
            limit,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            b"",
            **fields,
            topicFilterType="SINGLE_TAG",
            attributes=attributes,
        )
        assert not any(name in desk.broker.state.topics.table for name in ("T", "T0"))

    at_desk(tmp_path, work)


@pytest.mark.parametrize(
    ("limit", "code", "body"),
    [
        ("lockQueuesMax", 41, {"consumerGroup": "g", "clientId": "c", "mqSet": [{"queueId": 1}] * 5_000}),
        ("lockQueuesMax", 42, {"consumerGroup": "g", "clientId": "c", "mqSet": [{"queueId": 1}] * 5_000}),
        ("batchAckReceiptsMax", 200151, {"acks": [{"c": "g", "t": "T"}] * 5_000}),
        ("heartbeatSubscriptionsMax", 34, {"clientID": "c", "producerDataSet": [{"groupName": "p"}] * 5_000}),
    ],
)
def test_entries_are_counted_before_they_are_decoded(
    limit: str, code: int, body: dict[str, object], tmp_path: Path
) -> None:
    async def work(desk: Desk) -> None:
        await refused(desk, limit, code, orjson.dumps(body))  # imports the handler
        with watched_loops() as steps:
            await refused(desk, limit, code, orjson.dumps(body))
        assert steps.longest < 3_000, steps.longest_callback

    at_desk(tmp_path, work)


def test_receipts_of_a_large_batch_are_taken_in_short_steps(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        acks = [{"c": "g", "t": "Orders", "b": "/" * 1_000, "pt": 1, "it": 1_000} for _ in range(20)]
        with watched_loops() as steps:
            answer = await desk.ask(RequestCode.BATCH_ACK_MESSAGE, orjson.dumps({"brokerName": "b", "acks": acks}))
        assert answer.code == ResponseCode.SUCCESS
        assert steps.longest < 100_000, steps.longest_callback  # one receipt has 6,000 messages

    at_desk(tmp_path, work)


def test_messages_of_a_batch_are_counted_before_they_are_stored(tmp_path: Path) -> None:
    """A body of 4 MiB has room for 190,000 messages."""

    def batch(count: int, body: bytes = b"x") -> bytes:
        return encode_batch([BatchMember(body)] * count)

    async def work(desk: Desk) -> None:
        store = desk.broker.state.store
        assert (await desk.send(body=batch(50), code=320, batch=True)).code == ResponseCode.SUCCESS
        end = store.written_to
        for code in (310, 320):
            answer = await desk.send(body=batch(51), code=code, batch=True)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "batchMessagesMax" in str(answer.remark)
        answer = await desk.send(body=batch(21, b""), code=320, batch=True)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "splitBatchMessagesMax" in str(answer.remark)
        assert store.written_to == end
        reached = desk.broker.state.limits.reached
        assert (reached["batchMessagesMax"], reached["splitBatchMessagesMax"]) == (2, 1)

    at_desk(tmp_path, work, batchMessagesMax="50", splitBatchMessagesMax="20")


def test_queues_of_a_wide_topic_are_assigned_and_reset_in_short_steps(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        desk.broker.state.topics.put(TopicConfig("Wide", MANY, MANY))
        await desk.heartbeat("g", ("Wide",))
        asked = {"topic": "Wide", "consumerGroup": "g", "clientId": "none", "messageModel": "BROADCASTING"}
        with watched_loops() as steps:
            answer = await desk.ask(RequestCode.QUERY_ASSIGNMENT, orjson.dumps(asked))
            assert len(orjson.loads(answer.body)["messageQueueAssignments"]) == MANY
            reset = await desk.ask(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="Wide", group="g", timestamp=-1, isForce="true"
            )
            assert reset.body.count(b'"queueId":') == MANY and reset.body.startswith(b'{"offsetTable":{{')
        assert steps.longest < 60 * MANY, steps.longest_callback

    at_desk(tmp_path, work)


def test_values_of_a_body_are_counted_before_it_is_read() -> None:
    for body in (b"[" + b"{}," * 60_000 + b"{}]", b"[" + b"1," * 100_001 + b"1]"):
        with pytest.raises(LimitExceeded, match="values in a body"):
            read_request_body(body)


def test_short_loose_body_with_very_many_values_is_refused_without_work() -> None:
    body = b'{clientID:"c",x:[' + b"1," * 20_000 + b"1]}"

    def read() -> None:
        with pytest.raises(LimitExceeded):
            read_request_body(body)

    read()  # the first call imports the reader of loose JSON
    assert len(body) < 64 * 1024 and steps_of(read) < 500


def test_brokers_of_a_registered_topic_are_counted_before_they_are_decoded() -> None:
    body = orjson.dumps({"queueDatas": [{"brokerName": f"b{number}"} for number in range(5_000)]})

    async def ask() -> Command:
        names, client = NameServer(NameServerSettings(listen_port=0)), RemotingClient()
        await names.start()
        try:
            command = Command(RequestCode.REGISTER_TOPIC_IN_NAMESRV, ext_fields={"topic": "T"}, body=body)
            return await client.invoke(f"127.0.0.1:{names.address[1]}", command, 10.0)
        finally:
            await client.close()
            await names.stop()

    answer = asyncio.run(ask())
    assert answer.code != ResponseCode.SUCCESS and "values in a body" in str(answer.remark)


@pytest.mark.parametrize(
    ("code", "body"),
    [(18, topics(MANY)), (225, groups(MANY)), (200151, orjson.dumps({"acks": [{"c": "g", "t": "T"}] * MANY}))],
    ids=["topics", "groups", "receipts"],
)
def test_needs_of_a_list_are_found_without_decoding_its_entries(code: int, body: bytes) -> None:
    request = RequestParts(code, {}, body)
    assert len(needs_of(request, "cluster", lambda _: None)) >= 2
    assert steps_of(lambda: needs_of(request, "cluster", lambda _: None)) < 50 * MANY


def heartbeat(count: int, *, subscriptions: int, topic: str = "T", **more: object) -> bytes:
    wanted = [{"topic": f"{topic}{number}", "subString": "*", **more} for number in range(subscriptions)]
    groups = [{"groupName": f"g{number}", "subscriptionDataSet": wanted} for number in range(count)]
    return orjson.dumps({"clientID": "c", "consumerDataSet": groups})


@pytest.mark.parametrize(("count", "subscriptions"), [(900, 1), (2, 900)])
def test_heartbeat_with_many_groups_is_registered_in_short_steps(
    count: int, subscriptions: int, tmp_path: Path
) -> None:
    sql = {"subString": "a = 1", "expressionType": "SQL92"}

    async def work(desk: Desk) -> None:
        with watched_loops() as steps:
            answer = await desk.ask(RequestCode.HEART_BEAT, heartbeat(count, subscriptions=subscriptions, **sql))
        assert answer.code == ResponseCode.SUCCESS
        registered = desk.broker.state.clients.consumer_group(f"g{count - 1}")
        assert registered is not None and len(registered.subscriptions) == subscriptions
        # A tenth of the work, or less.
        assert steps.longest < 80_000, steps.longest_callback

    at_desk(tmp_path, work, enablePropertyFilter="true")


def test_filters_of_heartbeats_are_limited(tmp_path: Path) -> None:
    """A filter is kept for a day after its last consumer: each heartbeat could leave two thousand of them."""

    async def work(desk: Desk) -> None:
        state = desk.broker.state
        for number in range(5):
            body = heartbeat(1, subscriptions=60, topic=f"T{number}_", subString="a = 1", expressionType="SQL92")
            assert (await desk.ask(RequestCode.HEART_BEAT, body)).code == ResponseCode.SUCCESS
            assert len(state.filters) <= 100
        assert state.filters.find("T4_0", "g0") is not None, "the older ones made room"
        assert state.limits.reached["sqlFiltersMax"] > 0
        body = heartbeat(3, subscriptions=60, subString="a = 1", expressionType="SQL92")
        assert (await desk.ask(RequestCode.HEART_BEAT, body)).code == ResponseCode.SUCCESS
        assert len(state.filters) == 100, "those with a consumer are kept"
        member = state.clients.consumer_group("g2")
        assert member is not None and member.subscriptions["T59"].record_filter is not None, "and filter all the same"

    at_desk(tmp_path, work, enablePropertyFilter="true", sqlFiltersMax="100")


def test_offsets_of_all_groups_and_queues_are_limited(tmp_path: Path) -> None:
    """Each group can commit an offset of each queue of each topic: fifty thousand groups times a thousand queues."""

    async def work(desk: Desk) -> None:
        state = desk.broker.state

        async def commit(group: str, queue_id: int) -> int:
            fields = {"consumerGroup": group, "topic": "BenchmarkTest", "queueId": queue_id, "commitOffset": 0}
            return (await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)).code

        codes = [await commit(f"g{number % 3}", number) for number in range(60)]
        assert codes[0] == ResponseCode.SUCCESS and codes[-1] == ResponseCode.INVALID_PARAMETER
        assert state.offsets.queue_count <= 50
        assert state.limits.reached["queueOffsetsMax"] > 0
        assert await commit("g0", 0) == ResponseCode.SUCCESS, "those that it has can change"
        pull = {"topic": "BenchmarkTest", "queueOffset": 0, "maxMsgNums": 1, "commitOffset": 0, "subscription": "*"}
        pull |= {"suspendTimeoutMillis": 0, "subVersion": 0, "sysFlag": 5}
        for queue_id in range(100, 200):
            await desk.ask(RequestCode.PULL_MESSAGE, consumerGroup="g1", queueId=queue_id, **pull)
        saved = state.offsets.snapshot()
        assert sum(map(len, saved.offsets.values())) + sum(map(len, saved.pull_offsets.values())) <= 50
        state.offsets.forget_group("g0")
        state.offsets.snapshot()
        assert await commit("g2", 999) == ResponseCode.SUCCESS, "there is room again"

    at_desk(tmp_path, work, queueOffsetsMax="50")


def test_request_modes_are_limited(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async def put(group: str) -> int:
            body = orjson.dumps({"topic": "BenchmarkTest", "consumerGroup": group, "mode": "POP"})
            return (await desk.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body)).code

        codes = [await put(f"g{number}") for number in range(7)]
        assert codes == [ResponseCode.SUCCESS] * 5 + [ResponseCode.INVALID_PARAMETER] * 2
        assert desk.broker.state.limits.reached["requestModesMax"] == 2
        assert await put("g4") == ResponseCode.SUCCESS, "those that it has can change"
        answer = await desk.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert answer.code == ResponseCode.SUCCESS and answer.body.count(b'"POP"') == 5

    at_desk(tmp_path, work, requestModesMax="5")
