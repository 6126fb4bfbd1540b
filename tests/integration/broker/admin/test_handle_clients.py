"""Heartbeats, group membership, change notifications and queue locks, over a socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from orbitlog.broker.tables.queue_locks import LEASE_MS, QueueLocks, QueueName
from orbitlog.wire.bodies.body_json import write_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, encode_command
from orbitlog.wire.frames import FrameDecoder
from tests.support.broker_desk import Desk, at_desk, client_of, until

NOTICE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


def test_heartbeat_creates_group_and_retry_topic(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        answer = await desk.heartbeat()
        assert answer.code == ResponseCode.SUCCESS and answer.version >= 232
        retry = desk.broker.state.topics.find("%RETRY%G")
        assert desk.broker.state.groups.find("G") is not None
        assert retry is not None and (retry.read_queue_count, retry.permission) == (1, 6)
        ids = await desk.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="G")
        assert json.loads(ids.body) == {"consumerIdList": ["one"]}
        nobody = await desk.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="nobody")
        assert nobody.code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, work)


def test_members_are_notified_when_others_join_and_leave(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        await until(lambda: len(desk.heard) == 1)
        await desk.heartbeat()
        async with client_of(desk) as other:
            await other.heartbeat(client_id="two")
            await until(lambda: len(desk.heard) == 2 and len(other.heard) == 1)
            assert [(each.code, each.ext_fields["consumerGroup"]) for each in desk.heard] == [(NOTICE, "G")] * 2
        await until(lambda: len(desk.heard) == 3)
        ids = await desk.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="G")
        assert json.loads(ids.body) == {"consumerIdList": ["one"]}

    at_desk(tmp_path, work)


def test_new_member_is_notified_after_its_heartbeat_is_answered(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", desk.broker.address[1])
        consumer = {"groupName": "New", "subscriptionDataSet": [{"topic": "Orders", "subString": "*", "subVersion": 1}]}
        body = write_body({"clientID": "raw", "consumerDataSet": [consumer], "producerDataSet": []})
        writer.write(encode_command(Command(RequestCode.HEART_BEAT, opaque=7, body=body)))
        decoder, heard = FrameDecoder(), list[Command]()
        async with asyncio.timeout(60):
            while len(heard) < 2:
                heard += decoder.receive_data(await reader.read(65536))
        # Its retry topic is saved before the response leaves: long enough for a notification to arrive first.
        assert [(each.is_response, each.code) for each in heard] == [(True, ResponseCode.SUCCESS), (False, NOTICE)]
        writer.close()
        await writer.wait_closed()

    at_desk(tmp_path, work)


def test_unregistered_client_is_removed(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        await desk.ask(RequestCode.UNREGISTER_CLIENT, clientID="one", producerGroup="P", consumerGroup="G")
        answer = await desk.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="G")
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert (await desk.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="P")).code != 0

    at_desk(tmp_path, work)


def test_client_without_heartbeats_is_removed(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async with client_of(desk) as other:
            await other.heartbeat()
            state = desk.broker.state
            desk.broker._clients.scan(state.now_ms() + 119_000)
            assert state.clients.consumer_group("G") is not None
            desk.broker._clients.scan(state.now_ms() + 121_000)
            assert state.clients.consumer_group("G") is None

    at_desk(tmp_path, work)


def test_last_heartbeat_sets_the_subscription_of_a_group(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat(topics=("A", "B"))
        await desk.heartbeat(topics=("B", "C"))
        group = desk.broker.state.clients.consumer_group("G")
        assert group is not None and set(group.subscriptions) == {"B", "C"}

    at_desk(tmp_path, work)


def test_invalid_heartbeats_are_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for body in (b"", b"{", b"[]", b'{"clientID":1}', b'{"clientID":"x","consumerDataSet":[{"groupName":"../x"}]}'):
            assert (await desk.ask(RequestCode.HEART_BEAT, body)).code != ResponseCode.SUCCESS
        assert (await desk.heartbeat()).code == ResponseCode.SUCCESS

    at_desk(tmp_path, work)


def test_check_client_config_reports_an_invalid_expression(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        def body(expression: str) -> bytes:
            data = {"topic": "T", "subString": expression, "expressionType": "SQL92"}
            return write_body({"clientId": "one", "group": "G", "subscriptionData": data})

        assert (await desk.ask(RequestCode.CHECK_CLIENT_CONFIG, body("a > 1"))).code == ResponseCode.SUCCESS
        wrong = await desk.ask(RequestCode.CHECK_CLIENT_CONFIG, body("a >"))
        assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    at_desk(tmp_path, work, enablePropertyFilter="true")


def test_queue_lock_is_held_by_one_client(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        def body(client_id: str, *queue_ids: int) -> bytes:
            queues = [{"brokerName": "broker-a", "topic": "T", "queueId": each} for each in queue_ids]
            return write_body({"consumerGroup": "G", "clientId": client_id, "mqSet": queues})

        async def locked(client_id: str, *queue_ids: int) -> list[int]:
            answer = await desk.ask(RequestCode.LOCK_BATCH_MQ, body(client_id, *queue_ids))
            return [queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"]]

        assert await locked("one", 0, 1) == [], "the topic does not exist"
        desk.broker.state.topics.find_or_create("T", 4)
        assert await locked("one", 0, 1) == [0, 1]
        assert await locked("two", 1, 2) == [2]
        await desk.ask(RequestCode.UNLOCK_BATCH_MQ, body("two", 0, 1))
        assert await locked("two", 1) == []
        await desk.ask(RequestCode.UNLOCK_BATCH_MQ, body("one", 1))
        assert await locked("two", 1) == [1]

    at_desk(tmp_path, work)


def test_queue_lock_expires_with_its_lease() -> None:
    locks = QueueLocks()
    queue = QueueName("T", 0)
    assert locks.lock("G", [queue], "one", 0) == [queue]
    assert locks.lock("G", [queue], "two", LEASE_MS - 1) == [] and locks.is_held("G", LEASE_MS - 1)
    assert locks.lock("G", [queue], "two", LEASE_MS) == [queue]
    locks.drop_expired(3 * LEASE_MS)
    assert not locks.is_held("G", 0)
