"""Official Java push consumers: sharing queues, taking over, broadcasting, order, where they start, sending back."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.interop.harness.clients import ARRIVES_SECONDS_MAX, Client, Push
from tests.interop.harness.drivers import Refused
from tests.interop.harness.matrix import java_clients

pytestmark = pytest.mark.interop

TAKES_OVER_SECONDS_MAX = 60.0


def send_to_each_queue(client: Client, producer: str, topic: str, queues: int, body: str) -> None:
    for queue_id in range(queues):
        client.send(producer, topic, body=body, queue=queue_id, broker=client.system.broker_name)


def known_group(client: Client, topic: str, name: str) -> str:
    """A group that had a consumer before: the next one finds the route of its retry topic at once, not after 30 s."""
    group = client.group(name)
    client.push(topic, group).close()
    return group


def came(push: Push, body: str) -> Counter[int]:
    """From which queues messages of this body came."""
    return Counter(one["queueId"] for one in push.messages if one["body"] == body)


@java_clients
def test_a_message_reaches_a_waiting_consumer(client: Client) -> None:
    topic = client.topic("Waiting")
    push = client.push(topic, client.group("waiting"), tags="A || B")
    producer = client.producer()
    sent = client.send(producer, topic, count=30, body="one", tags="A,B,C", keys="key-{}")
    found = push.wait_for(20)
    assert {one["bodySha256"] for one in found} == {
        one["bodySha256"] for number, one in enumerate(sent) if number % 3 < 2
    }
    assert {one["uniqueId"] for one in found} <= {one["msgId"] for one in sent}
    assert {one["reconsumeTimes"] for one in found} == {0}


@java_clients
def test_tags_with_one_hash_are_distinguished(client: Client) -> None:
    topic = client.topic("Collision", queues=1)
    push = client.push(topic, client.group("collision"), tags="AaAa")
    client.send(client.producer(), topic, count=6, body="one", tags="BBBB,AaAa,BBBB")
    client.send(client.producer(), topic, body="last", tags="AaAa")
    push.wait(lambda: bool(came(push, "last")), ARRIVES_SECONDS_MAX, "the last message")
    assert [one["tags"] for one in push.messages] == ["AaAa"] * 3


@java_clients
def test_two_instances_share_and_one_takes_over(client: Client) -> None:
    topic, group, queues = client.topic("Shared", queues=8), client.group("shared"), 8
    producer = client.producer()
    first = client.push(topic, group)
    send_to_each_queue(client, producer, topic, queues, "alone")
    first.wait(lambda: len(came(first, "alone")) == queues, ARRIVES_SECONDS_MAX, "all queues at the only instance")
    second = client.push(topic, group)
    deadline = time.monotonic() + TAKES_OVER_SECONDS_MAX
    for turn in range(1000):
        body = f"shared {turn}"
        send_to_each_queue(client, producer, topic, queues, body)
        first.wait(
            lambda body=body: len(came(first, body) + came(second, body)) == queues,
            ARRIVES_SECONDS_MAX,
            f"all of {body}",
        )
        if len(came(first, body)) == len(came(second, body)) == queues // 2:
            break
        assert time.monotonic() < deadline, "the second instance did not get its half"
    second.close()
    for turn in range(1000):
        body = f"back {turn}"
        send_to_each_queue(client, producer, topic, queues, body)
        first.wait(
            lambda body=body: len(came(first, body) + came(second, body)) == queues,
            ARRIVES_SECONDS_MAX,
            f"all of {body}",
        )
        if len(came(first, body)) == queues:
            break
        assert time.monotonic() < deadline + TAKES_OVER_SECONDS_MAX, "the first instance did not take over"


@java_clients
def test_broadcasting_reaches_every_instance(client: Client) -> None:
    topic, group = client.topic("Broadcast"), client.group("broadcast")
    pushes = [client.push(topic, group, broadcasting=True) for _ in range(2)]
    producer = client.producer()
    sent = client.send(producer, topic, count=24, body="to all")
    wanted = {one["bodySha256"] for one in sent}
    for push in pushes:
        assert {one["bodySha256"] for one in push.wait_for(24)} == wanted
        assert sum(push.per_queue().values()) == 24


@java_clients
@pytest.mark.parametrize("start", ["LAST_OFFSET", "FIRST_OFFSET", "TIMESTAMP"])
def test_a_new_group_begins_with_the_first_message_while_it_is_there(client: Client, start: str) -> None:
    """Whatever the consumer asks for: the broker answers 0 for a group it does not know, not "none"."""
    topic, group = client.topic("Start", queues=2), client.group("start")
    producer = client.producer()
    client.send(producer, topic, count=4, body="old")
    words = {"timestamp": time.strftime("%Y%m%d%H%M%S")} if start == "TIMESTAMP" else {}
    push = client.push(topic, group, **{"from": start}, **words)
    client.send(producer, topic, count=4, body="new")
    push.wait_for(8)
    assert {one["body"].split()[0] for one in push.messages} == {"old", "new"}


@java_clients
def test_an_orderly_consumer_keeps_order_over_a_refusal(client: Client) -> None:
    topic, group = client.topic("Orderly", queues=2), client.group("orderly")
    producer = client.producer()
    client.send(producer, topic, count=20, body="step", shards=2, tags="ok,ok,ok,ok,ok,ok,twice,ok,ok,ok")
    push = client.push(topic, group, orderly=True, refuse=2, refuseTag="twice", suspendMs=100)
    push.wait_for(20)
    push.wait(lambda: sum(not one["refused"] for one in push.messages) == 20, ARRIVES_SECONDS_MAX, "all taken")
    for queue_id in range(2):
        taken = [one["queueOffset"] for one in push.messages if one["queueId"] == queue_id and not one["refused"]]
        assert taken == list(range(10))
        seen = [one["queueOffset"] for one in push.messages if one["queueId"] == queue_id]
        assert seen == sorted(seen), "nothing may overtake a message that was refused"
    refused = Counter(one["body"] for one in push.messages if one["refused"])
    assert refused == {"step 6": 2, "step 16": 2}


@java_clients
def test_an_orderly_group_is_shared_by_whole_queues(client: Client) -> None:
    topic, group = client.topic("OrderlyShared", queues=4), client.group("orderly")
    producer = client.producer()
    first = client.push(topic, group, orderly=True)
    second = client.push(topic, group, orderly=True)

    def settled() -> bool:
        body = f"turn {time.monotonic_ns()}"
        send_to_each_queue(client, producer, topic, 4, body)
        first.wait(lambda: len(came(first, body) + came(second, body)) == 4, 75, "a message from each queue")
        return len(came(first, body)) == len(came(second, body)) == 2

    client.eventually(settled, "two queues each", seconds_max=75)
    client.send(producer, topic, count=40, body="step", shards=4)
    first.wait(
        lambda: sum(one["body"].startswith("step") for one in first.messages + second.messages) == 40, 60, "all steps"
    )
    for push in (first, second):
        for queue_id in range(4):
            steps = [
                one["queueOffset"]
                for one in push.messages
                if one["queueId"] == queue_id and one["body"].startswith("step")
            ]
            assert len(steps) in (0, 10) and steps == sorted(steps)


@java_clients
def test_a_refused_message_comes_back_as_the_same_message(client: Client) -> None:
    topic = client.topic("Retried", queues=1)
    group = known_group(client, topic, "retried")
    push = client.push(topic, group, refuse=2, refuseTag="bad", retryLevel=1)
    [sent] = client.send(client.producer(), topic, body="again", tags="bad", keys="again-key")
    client.send(client.producer(), topic, body="fine", tags="good")
    push.wait(lambda: came(push, "again").total() == 3, 120, "two redeliveries")
    again = [one for one in push.messages if one["body"] == "again"]
    assert [one["reconsumeTimes"] for one in again] == [0, 1, 2]
    assert {one["topic"] for one in again} == {topic}, "the client shows the topic it was sent to"
    assert {(one["tags"], one["keys"], one["uniqueId"]) for one in again} == {("bad", "again-key", sent["msgId"])}
    assert {one["properties"].get("RETRY_TOPIC") for one in again[1:]} == {topic}
    assert {one["properties"].get("ORIGIN_MESSAGE_ID") for one in again[1:]} == {sent["offsetMsgId"]}
    assert [one["at"] - again[0]["at"] > 900 for one in again] == [False, True, True], "each waits a second at least"
    assert came(push, "fine").total() == 1


@java_clients
def test_a_message_refused_too_often_is_dead(client: Client) -> None:
    topic = client.topic("Dead", queues=1)
    group = known_group(client, topic, "dead")
    push = client.push(topic, group, refuse=99, retryLevel=1, maxReconsumeTimes=1)
    [sent] = client.send(client.producer(), topic, body="hopeless", keys="dead-key")
    push.wait(lambda: came(push, "hopeless").total() == 2, 120, "one redelivery")
    reader = client.pull_consumer(client.group("undertaker"))
    dead = f"%DLQ%{group}"
    found: list[dict[str, object]] = []

    def buried() -> bool:
        try:
            answer = client.call("pull", name=reader, topic=dead, broker=client.system.broker_name, queue=0)
        except Refused:
            # There is no such topic before the first one died.
            return False
        found[:] = answer["messages"]
        return bool(found)

    client.eventually(buried, "the message among the dead")
    [one] = found
    assert (one["bodySha256"], one["keys"], one["msgId"]) == (sent["bodySha256"], "dead-key", sent["msgId"])
    assert came(push, "hopeless").total() == 2
