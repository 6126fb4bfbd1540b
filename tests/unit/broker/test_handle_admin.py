"""What operators ask of a broker, over a socket: topics, groups, progress, settings, numbers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from orbitlog.broker.broker_settings import BROKER_SETTINGS, RUNTIME_KEYS
from orbitlog.formats.loose_json import read_json
from orbitlog.wire.bodies.body_json import decode_body, write_body
from orbitlog.wire.bodies.queue_bodies import ConsumeStats, QueueOffsetTable, TopicStats
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.unit.broker.broker_desk import Desk, at_desk, client_of, desk_at, records, until


async def make_topic(desk: Desk, topic: str = "Made", **more: object) -> int:
    fields = {"readQueueNums": 2, "writeQueueNums": 3, "perm": 6, "defaultTopic": "TBW102", **more}
    return (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, **fields)).code


def test_a_topic_is_made_changed_and_deleted(tmp_path: Path) -> None:
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


def test_topics_that_are_not_possible_are_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for topic in ("a/b", "..", "", "TBW102", "DefaultCluster", "rmq_sys_x"):
            assert await make_topic(desk, topic) == ResponseCode.INVALID_PARAMETER
        assert await make_topic(desk, readQueueNums=-1) == ResponseCode.INVALID_PARAMETER
        assert await make_topic(desk, attributes="nonsense") == ResponseCode.INVALID_PARAMETER
        answer = await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="../../config")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        await until((tmp_path / "config" / "topics.json").is_file)

    at_desk(tmp_path, work)


def test_groups_are_made_listed_and_deleted(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        body = write_body({"groupName": "Mine", "retryMaxTimes": 3})
        assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == ResponseCode.SUCCESS
        one = json.loads((await desk.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="Mine")).body)
        assert one["retryMaxTimes"] == 3
        table = json.loads((await desk.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert {"Mine", "TOOLS_CONSUMER"} <= set(table["subscriptionGroupTable"])
        await desk.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="Mine", cleanOffset="true")
        gone = await desk.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="Mine")
        assert gone.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        bad = await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"../x"}')
        assert bad.code == ResponseCode.INVALID_PARAMETER

    at_desk(tmp_path, work)


def test_a_group_may_be_kept_from_a_topic(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await desk.heartbeat()
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        await desk.ask(code, group="G", topic="Orders", readable="false")
        assert (await desk.pull(sys_flag=0, subscription=None)).code == ResponseCode.NO_PERMISSION
        await desk.ask(code, group="G", topic="Orders", readable="true")
        assert (await desk.pull(sys_flag=0, subscription=None)).code == ResponseCode.SUCCESS

    at_desk(tmp_path, work)


def test_progress_and_reset(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for _ in range(5):
            await desk.send()
        await desk.heartbeat()
        await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", topic="Orders", queueId=0, commitOffset=4)
        stats = decode_body(ConsumeStats, (await desk.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="G")).body)
        first = next(each for queue, each in stats.offsets.items() if queue.queue_id == 0)
        assert (first.broker_queue_offset, first.consumer_queue_offset) == (5, 4)
        waiting = asyncio.ensure_future(desk.pull(queue_offset=5, sys_flag=2, subscription=None))
        await until(lambda: len(desk.broker._pulls.held) == 1)
        reset = await desk.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="Orders", group="G", timestamp=0, isForce="true"
        )
        assert set(decode_body(QueueOffsetTable, reset.body).offsets.values()) == {0}
        moved = await waiting
        assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert moved.ext_fields["nextBeginOffset"] == "0"
        assert len(records(await desk.pull(sys_flag=0, subscription=None))) == 5

    at_desk(tmp_path, work)


def test_commits_on_their_way_do_not_undo_a_reset(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await desk.heartbeat()
        fields = {"topic": "Orders", "group": "G", "timestamp": -1}
        await desk.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
        commit = {"consumerGroup": "G", "topic": "Orders", "queueId": 0}
        await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **commit, commitOffset=0)
        answer = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, **commit)
        assert answer.ext_fields["offset"] == "1"

    at_desk(tmp_path, work)


@pytest.mark.parametrize(
    "text",
    [
        "storePathRootDir=/elsewhere",
        "bindAddress=0.0.0.0",
        "brokerIP1=10.0.0.1",
        "namesrvAddr=evil:9876",
        "rocketmqHome=$(touch x)",
        "filterServerNums=1",
        "maxMessageSize=2048\nlistenPort=1",
    ],
)
def test_settings_that_could_do_harm_stay(tmp_path: Path, text: str) -> None:
    async def work(desk: Desk) -> None:
        before = desk.broker.state.settings.effective()
        answer = await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, text.encode())
        assert answer.code == ResponseCode.NO_PERMISSION
        assert desk.broker.state.settings.effective() == before

    at_desk(tmp_path, work)


def test_settings_that_may_be_changed_are(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        changed = await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, b"maxMessageSize=2048\nbrokerPermission=2\n")
        assert changed.code == ResponseCode.SUCCESS
        shown = await desk.ask(RequestCode.GET_BROKER_CONFIG)
        assert b"\nmaxMessageSize=2048\n" in shown.body and "counter" in shown.ext_fields["version"]
        assert (await desk.pull()).code == ResponseCode.NO_PERMISSION
        assert (await desk.send(body=b"x" * 2049)).code == ResponseCode.MESSAGE_ILLEGAL
        wrong = await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, b"maxMessageSize=many")
        assert wrong.code == ResponseCode.INVALID_PARAMETER

    at_desk(tmp_path, work)


def test_no_runtime_setting_is_a_path_an_address_or_a_name() -> None:
    for key in RUNTIME_KEYS:
        assert isinstance(BROKER_SETTINGS[key].default, int | bool), key


def test_numbers_that_tools_read_are_there(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await desk.pull()
        numbers = json.loads((await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        for key in ("putTps", "getTransferedTps", "getTransferredTps", "getTotalTps"):
            assert len([float(part) for part in numbers[key].split(" ")]) == 3
        assert int(numbers["earliestMessageTimeStamp"]) > 0 and 0 < float(numbers["commitLogDiskRatio"]) < 1
        assert numbers["msgPutTotalTodayNow"] == numbers["msgGetTotalTodayNow"] == "1"
        put = await desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="Orders")
        assert json.loads(put.body)["statsMinute"]["sum"] == 1
        none = await desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="None")
        assert none.code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, work)


def test_a_question_is_passed_on_to_the_client(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async with client_of(desk) as other:
            await other.heartbeat(client_id="asked")
            asking = asyncio.ensure_future(
                desk.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="G", clientId="asked")
            )
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            await until(lambda: any(each.code == code for each in other.heard))
            asking.cancel()
        gone = await desk.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="G", clientId="nobody")
        assert gone.code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, work)


def test_offsets_and_topics_outlive_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_at(tmp_path) as desk:
            await desk.send("Kept")
            await desk.heartbeat(topics=("Kept",))
            await desk.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", topic="Kept", queueId=0, commitOffset=1
            )
        async with desk_at(tmp_path) as desk:
            answer = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="G", topic="Kept", queueId=0)
            assert answer.ext_fields["offset"] == "1"
            assert desk.broker.state.topics.find("%RETRY%G") is not None
            offsets = read_json((await desk.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)).body.decode())
            assert isinstance(offsets, dict) and offsets["offsetTable"] == {"Kept@G": {"0": 1}}

    asyncio.run(work())


def test_unknown_codes_are_answered_at_once(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for code in (9_999, 200_050, 52, 1_001, -1, 0):
            assert (await desk.ask(code)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    at_desk(tmp_path, work)


def test_missing_and_unreadable_fields_are_named(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        answer = await desk.ask(RequestCode.GET_MAX_OFFSET, topic="T")
        assert answer.code == ResponseCode.SYSTEM_ERROR and "queueId" in (answer.remark or "")
        answer = await desk.ask(RequestCode.GET_MAX_OFFSET, topic="T", queueId="many")
        assert answer.code == ResponseCode.SYSTEM_ERROR and "queueId" in (answer.remark or "")

    at_desk(tmp_path, work)
