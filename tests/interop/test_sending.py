"""Official Java clients send in every mode; what is stored is what was sent, at the acknowledged offsets."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Refused
from tests.interop.harness.matrix import java_clients
from tests.interop.harness.processes import JsonObject
from tests.interop.harness.stored_messages import stored

pytestmark = pytest.mark.interop

MIB = 1 << 20


def places(messages: list[JsonObject]) -> dict[tuple[int, int], str]:
    return {(one["queueId"], one["queueOffset"]): one["bodySha256"] for one in messages}


@java_clients
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_acknowledged_sends_are_where_the_answer_states(client: Client, mode: str) -> None:
    topic = client.topic("Sends")
    sent = client.send(client.producer(), topic, mode=mode, count=40, body="one", tags="A,B", keys="key-{}")
    assert {one["status"] for one in sent} == {"SEND_OK"}
    assert {one["brokerName"] for one in sent} == {client.system.broker_name}
    assert {one["queueId"] for one in sent} == {0, 1, 2, 3}, "queues take turns"
    found = stored(client, topic, 4, 40)
    assert places(found) == places(sent)
    assert {one["msgId"] for one in found} == {one["msgId"] for one in sent}
    assert {one["keys"] for one in found} == {f"key-{number}" for number in range(40)}
    assert Counter(one["tags"] for one in found) == {"A": 20, "B": 20}


@java_clients
def test_one_way_sends_arrive(client: Client) -> None:
    topic = client.topic("OneWay")
    client.send(client.producer(), topic, mode="oneway", count=20, body="unanswered", pauseMs=2)
    found = stored(client, topic, 4, 20)
    assert len(found) == 20 and len({one["bodySha256"] for one in found}) == 20


@java_clients
def test_a_batch_is_stored_as_its_members(client: Client) -> None:
    topic = client.topic("Batch", queues=1)
    producer = client.producer()
    client.send(producer, topic, body="before")
    sent = client.send(producer, topic, verb="batch", count=7, body="member", tags="T", keys="member-{}")
    assert [one["queueOffset"] for one in sent] == list(range(1, 8))
    assert len({one["offsetMsgId"] for one in sent}) == 7
    found = stored(client, topic, 1, 8)[1:]
    assert places(found) == places(sent)
    assert [one["msgId"] for one in found] == [one["msgId"] for one in sent]
    assert [one["keys"] for one in found] == [f"member-{number}" for number in range(7)]
    ids = [client.call("viewById", topic=topic, id=one["offsetMsgId"])["found"]["bodySha256"] for one in sent]
    assert ids == [one["bodySha256"] for one in sent]


@java_clients
def test_a_selector_keeps_each_shard_in_one_queue_in_order(client: Client) -> None:
    topic = client.topic("Shards", queues=4)
    sent = client.send(client.producer(), topic, count=30, body="step", shards=3)
    for shard in range(3):
        part = sent[shard::3]
        assert {one["queueId"] for one in part} == {shard}
        assert [one["queueOffset"] for one in part] == list(range(10))
    assert places(stored(client, topic, 4, 30)) == places(sent)


@java_clients
def test_properties_flags_and_odd_texts_are_kept(client: Client) -> None:
    topic = client.topic("Odd", queues=1)
    words: dict[str, object] = {
        "tags": "Größe", "keys": "ключ 注文 🛰", "property.имя": "значение 🛰", "property.long": "x" * 9000
    }  # fmt: skip
    [sent] = client.send(client.producer(), topic, body="注文 🛰", **words)
    [found] = stored(client, topic, 1, 1)
    assert (found["tags"], found["keys"]) == ("Größe", "ключ 注文 🛰")
    assert found["properties"]["имя"] == "значение 🛰" and found["properties"]["long"] == "x" * 9000
    assert found["bodySha256"] == sent["bodySha256"]


@java_clients
def test_a_topic_is_made_by_the_first_send(client: Client) -> None:
    topic = f"Fresh_{client.mark}"
    sent = client.send(client.producer(), topic, count=8, body="first")
    assert {one["queueId"] for one in sent} == {0, 1, 2, 3}, "four queues of the default topic's eight"
    assert places(stored(client, topic, 4, 8)) == places(sent)


@java_clients
def test_a_compressed_megabyte_comes_back_whole(client: Client) -> None:
    topic = client.topic("Large", queues=1)
    producer = client.producer()
    sent = client.send(producer, topic, count=3, bytes=MIB, compressible=True)
    sent += client.send(producer, topic, count=2, bytes=MIB, seed=7)
    found = stored(client, topic, 1, 5)
    assert places(found) == places(sent)
    assert [one["storeSize"] < 100_000 for one in found] == [True, True, True, False, False], "stored as it was sent"
    push = client.push(topic, client.group("large"))
    assert {one["bodySha256"] for one in push.wait_for(5)} == {one["bodySha256"] for one in sent}


@java_clients
def test_a_message_too_large_is_refused_and_the_connection_lives(client: Client) -> None:
    topic = client.topic("TooLarge", queues=1)
    producer = client.producer(bytesMax=16 * MIB, retries=0)
    with pytest.raises(Refused) as refused:
        client.send(producer, topic, bytes=4 * MIB + 1, seed=3)
    assert (refused.value.kind, refused.value.code) == ("MQBrokerException", 13)
    assert "msg body length limit 4194304B, msg properties length limit 32KB" in refused.value.text
    # The client compresses whatever is long, and bytes by chance grow a little by that.
    [sent] = client.send(producer, topic, bytes=4 * MIB - 8192, seed=4)
    assert places(stored(client, topic, 1, 1)) == places([sent])


@java_clients
def test_properties_too_long_are_refused(client: Client) -> None:
    topic = client.topic("TooLong", queues=1)
    with pytest.raises(Refused) as refused:
        client.send(client.producer(retries=0), topic, body="small", **{"property.long": "x" * 40_000})
    assert (refused.value.kind, refused.value.code) == ("MQBrokerException", 13)


@java_clients
def test_ten_thousand_messages_of_any_size_in_queue_order(client: Client) -> None:
    topic = client.topic("Many", queues=4)
    producer = client.producer()
    sent: list[JsonObject] = []
    for part in range(5):
        sent += client.send(producer, topic, mode="async", count=2000, bytesMax=3000, seed=part, seconds_max=120)
    assert len(sent) == 10_000
    push = client.push(topic, client.group("ordered"), orderly=True, batch=16)
    came = push.wait_for(10_000, seconds_max=120)
    expected = places(sent)
    assert len(expected) == 10_000, "two messages were acknowledged at one offset"
    for queue_id in range(4):
        of_queue = [one for one in came if one["queueId"] == queue_id]
        assert [one["queueOffset"] for one in of_queue] == list(range(len(of_queue)))
    assert places(came) == expected
