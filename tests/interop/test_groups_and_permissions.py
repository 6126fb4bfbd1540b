"""What operators do under running clients: offsets reset, groups switched off, topics without permission or deleted."""

from __future__ import annotations

import re
import time

import pytest

from tests.interop import test_pulling, test_push_consumers, test_sending
from tests.interop.harness.clients import Client, Push
from tests.interop.harness.drivers import Refused
from tests.interop.harness.matrix import JAVA_497, java_550_client, java_binary_client, java_clients

pytestmark = pytest.mark.interop

# Java stops a queue that is reset, waits ten seconds, and continues.
RESET_SECONDS_MAX = 90
QUIET_SECONDS = 3


def times(push: Push, body: str) -> int:
    return sum(one["body"] == body for one in push.messages)


@java_clients
def test_offsets_are_reset_under_a_running_consumer(client: Client) -> None:
    topic, group = client.topic("Reset", queues=2), client.group("reset")
    push = client.push(topic, group)
    client.send(client.producer(), topic, count=10, body="one")
    push.wait_for(10)
    printed = client.mqadmin(f"resetOffsetByTime -g {group} -t {topic} -s 0")
    assert re.search(rf"{client.system.broker_name}\s+0\s+0", printed), printed
    push.wait(lambda: all(times(push, f"one {n}") >= 2 for n in range(10)), RESET_SECONDS_MAX, "all of them again")


@java_clients
def test_a_message_is_consumed_at_a_wish(client: Client) -> None:
    topic, group = client.topic("Wish", queues=1), client.group("wish")
    push = client.push(topic, group)
    [sent] = client.send(client.producer(), topic, body="wished for")
    push.wait_for(1)
    connection = client.mqadmin(f"consumerConnection -g {group}")
    found = re.search(r"^(\S+@\S+)\s", connection, re.MULTILINE)
    assert found, connection
    where = "" if client.driver.name == JAVA_497 else f" -t {topic}"
    printed = client.mqadmin(f"queryMsgById -i {sent['offsetMsgId']}{where} -g {group} -d {found[1]}")
    assert "consumeResult=CR_SUCCESS" in printed, printed
    assert times(push, "wished for") == 2


@java_clients
def test_a_group_that_is_switched_off_gets_nothing(client: Client) -> None:
    topic, group = client.topic("Off", queues=1), client.group("off")
    broker = client.system.broker_address
    client.mqadmin(f"updateSubGroup -b {broker} -g {group} -s false")
    push = client.push(topic, group)
    client.send(client.producer(), topic, body="waits")
    time.sleep(QUIET_SECONDS)
    assert push.messages == []
    client.mqadmin(f"updateSubGroup -b {broker} -g {group} -s true")
    push.wait_for(1)


@java_clients
def test_a_group_that_may_not_broadcast_does_not(client: Client) -> None:
    topic, group = client.topic("NoBroadcast", queues=1), client.group("nobroadcast")
    broker = client.system.broker_address
    client.mqadmin(f"updateSubGroup -b {broker} -g {group} -d false")
    push = client.push(topic, group, broadcasting=True)
    client.send(client.producer(), topic, body="waits")
    time.sleep(QUIET_SECONDS)
    assert push.messages == []
    client.mqadmin(f"updateSubGroup -b {broker} -g {group} -d true")
    push.wait_for(1)


@java_clients
def test_a_topic_that_may_not_be_read_is_not(client: Client) -> None:
    topic = client.topic("WriteOnly", queues=1)
    reader = client.pull_consumer(client.group("reads"))
    place = {"name": reader, "topic": topic, "broker": client.system.broker_name, "queue": 0}
    client.send(client.producer(), topic, body="one")
    client.eventually(lambda: client.call("pull", **place)["status"] == "FOUND", "it can be read")
    client.mqadmin(f"updateTopicPerm -b {client.system.broker_address} -t {topic} -p 2")
    with pytest.raises(Refused) as refused:
        client.call("pull", **place)
    assert refused.value.code == 16


@java_clients
def test_a_topic_that_may_not_be_written_has_no_route_for_senders(client: Client) -> None:
    topic = client.topic("ReadOnly", queues=1, perm=4)
    with pytest.raises(Refused, match=r"No route info|Can not find Message Queue"):
        client.send(client.producer(retries=0), topic, body="one")


@java_clients
def test_deleted_topic_restarts_at_offset_zero(client: Client) -> None:
    topic = client.topic("Deleted", queues=1)
    client.send(client.producer(), topic, count=5, body="before")
    printed = client.mqadmin(f"deleteTopic -c {client.system.cluster_name} -t {topic}")
    assert "success" in printed, printed
    with pytest.raises(Refused):
        client.call("pullQueues", name=client.pull_consumer(client.group("gone")), topic=topic)
    again = client.topic("Deleted", queues=1)
    [sent] = client.send(client.producer(), again, body="after")
    assert sent["queueOffset"] == 0
    push = client.push(again, client.group("after"))
    push.wait_for(1)
    assert [one["body"] for one in push.messages] == ["after"]


@java_550_client
def test_messages_that_the_client_gathers_into_batches(client: Client) -> None:
    topic = client.topic("Gathered", queues=2)
    sent = client.send(client.producer(autoBatch=True), topic, mode="async", count=60, body="one", keys="key-{}")
    assert len(sent) == 60 and {one["status"] for one in sent} == {"SEND_OK"}
    found = test_sending.stored(client, topic, 2, 60)
    assert {one["bodySha256"] for one in found} == {one["bodySha256"] for one in sent}


@java_550_client
def test_heartbeats_that_leave_out_what_did_not_change(client: Client) -> None:
    topic, group = client.topic("Beats", queues=4), client.group("beats")
    pushes = [client.push(topic, group, heartbeatV2=True) for _ in range(2)]
    producer = client.producer()

    def shared() -> bool:
        body = f"turn {time.monotonic_ns()}"
        for queue_id in range(4):
            client.send(producer, topic, body=body, queue=queue_id, broker=client.system.broker_name)
        pushes[0].wait(lambda: times(pushes[0], body) + times(pushes[1], body) >= 4, 60, "one from each queue")
        return times(pushes[0], body) == times(pushes[1], body) == 2

    client.eventually(shared, "two queues each", seconds_max=90)


@java_binary_client
@pytest.mark.parametrize(
    "scenario",
    [
        test_sending.test_a_batch_is_stored_as_its_members,
        test_sending.test_a_message_too_large_is_refused_and_the_connection_lives,
        test_pulling.test_pulling_by_position,
        test_pulling.test_looking_up_by_id_and_by_key,
        test_push_consumers.test_a_message_reaches_a_waiting_consumer,
        test_push_consumers.test_a_refused_message_comes_back_as_the_same_message,
    ],
)
def test_headers_as_bytes(client: Client, scenario: object) -> None:
    assert callable(scenario)
    scenario(client)
