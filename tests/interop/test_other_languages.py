"""Clients in Go, JavaScript (ali-ons) and C++: the same scenarios in small, with a Java client at the other end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.interop.harness.clients import Client, Push
from tests.interop.harness.drivers import Driver
from tests.interop.harness.matrix import JAVA_550, go_client, other_clients
from tests.interop.harness.processes import JsonObject

pytestmark = pytest.mark.interop


@pytest.fixture
def java(client: Client, driver_of: Callable[[str], Driver]) -> Iterator[Client]:
    """A Java client at the same system: it makes topics, and reads what the other one sent."""
    made = Client(driver_of(JAVA_550), client.system, mark=client.mark)
    yield made
    made.close()


def bodies(messages: list[JsonObject]) -> set[str]:
    return {one["bodySha256"] for one in messages}


@other_clients
def test_java_reads_what_it_sends(client: Client, java: Client) -> None:
    topic = java.topic("Sent")
    sent = client.send(client.producer(), topic, count=40, body="one", tags="A,B", keys="key-{}")
    assert {one["status"] for one in sent} == {"SEND_OK"}
    found = java.push(topic, client.group("java")).wait_for(40)
    assert bodies(found) == bodies(sent)
    assert {(one["body"], one["tags"], one["keys"]) for one in found} == {
        (f"one {number}", "AB"[number % 2], f"key-{number}") for number in range(40)
    }
    places = {(one["queueId"], one["queueOffset"]): one["bodySha256"] for one in found}
    for one in sent:
        if "queueId" in one:
            assert places[one["queueId"], one["queueOffset"]] == one["bodySha256"]


@other_clients
@pytest.mark.parametrize("mode", ["async", "oneway"])
def test_java_reads_what_it_does_not_wait_for(client: Client, java: Client, mode: str) -> None:
    if (client.language, mode) in {("node", "oneway"), ("cpp", "async")}:
        pytest.skip("this client has no such call")
    topic = java.topic("Modes")
    client.send(client.producer(), topic, mode=mode, count=20, body="one")
    found = java.push(topic, client.group("java")).wait_for(20)
    assert {one["body"] for one in found} == {f"one {number}" for number in range(20)}


@other_clients
def test_it_reads_what_java_sends(client: Client, java: Client) -> None:
    topic = java.topic("Received")
    sent = java.send(java.producer(), topic, count=30, body="one", tags="A,B,C", keys="key-{}")
    push = client.push(topic, client.group("reads"), tags="A || C")
    found = push.wait_for(20)
    assert bodies(found) == {one["bodySha256"] for number, one in enumerate(sent) if number % 3 != 1}
    assert {one["tags"] for one in found} == {"A", "C"}
    later = java.send(java.producer(), topic, count=2, body="later", tags="A")
    push.wait_for(22)
    assert bodies(later) <= bodies(push.messages)


@other_clients
def test_shards_keep_their_order(client: Client, java: Client) -> None:
    if client.language == "node":
        pytest.skip("this client chooses queues by itself")
    topic = java.topic("Shards", queues=3)
    client.send(client.producer(), topic, count=30, body="step", shards=3)
    found = java.push(topic, client.group("java"), orderly=True).wait_for(30)
    for queue_id in range(3):
        steps = [int(one["body"].split()[1]) for one in found if one["queueId"] == queue_id]
        assert len(steps) == 10 and steps == sorted(steps) and len({step % 3 for step in steps}) == 1


@other_clients
def test_a_large_body_arrives_whole(client: Client, java: Client) -> None:
    topic = java.topic("Large", queues=1)
    [sent] = client.send(client.producer(), topic, bytes=1 << 20)
    [found] = java.push(topic, client.group("java")).wait_for(1)
    assert (found["bodySha256"], found["bodyLength"]) == (sent["bodySha256"], 1 << 20)
    [own] = client.push(topic, client.group("own")).wait_for(1)
    assert own["bodySha256"] == sent["bodySha256"]


@other_clients
def test_broadcasting_reaches_every_instance(client: Client, java: Client) -> None:
    topic, group = java.topic("Broadcast"), client.group("broadcast")
    pushes = [client.push(topic, group, broadcasting=True) for _ in range(2)]
    if client.language == "cpp":
        # It starts at the end of each queue, which it learns only shortly after its start.
        time.sleep(3)
    sent = java.send(java.producer(), topic, count=12, body="to all")
    for push in pushes:
        assert bodies(push.wait_for(12)) == bodies(sent)


@other_clients
def test_group_resumes_where_it_stopped(client: Client, java: Client) -> None:
    topic, group = java.topic("On", queues=2), client.group("on")
    producer = java.producer()
    java.send(producer, topic, count=10, body="first")
    push = client.push(topic, group)
    push.wait_for(10)
    # Each commits by itself, after five seconds or at its end.
    time.sleep(11)
    push.close()
    time.sleep(0.5)
    later = java.send(producer, topic, count=10, body="second")
    again = client.push(topic, group)
    again.wait_for(10)
    assert bodies(again.messages) == bodies(later)


@other_clients
def test_two_instances_share(client: Client, java: Client) -> None:
    topic, group = java.topic("Shared", queues=4), client.group("shared")
    pushes = [client.push(topic, group) for _ in range(2)]
    producer = java.producer()

    def came(push: Push, body: str) -> int:
        return sum(one["body"] == body for one in push.messages)

    def shared() -> bool:
        body = f"turn {time.monotonic_ns()}"
        for queue_id in range(4):
            java.send(producer, topic, body=body, queue=queue_id, broker=client.system.broker_name)
        pushes[0].wait(lambda: sum(came(push, body) for push in pushes) >= 4, 40, "one from each queue")
        return [came(push, body) for push in pushes] == [2, 2]

    client.eventually(shared, "two queues each", seconds_max=60)


@other_clients
def test_a_refused_message_comes_again(client: Client, java: Client) -> None:
    topic, group = java.topic("Again", queues=1), client.group("again")
    # The next consumer of a known group finds its retry topic at once.
    client.push(topic, group).close()
    push = client.push(topic, group, refuse=1, retryLevel=1)
    [sent] = java.send(java.producer(), topic, body="again", keys="again-key")
    push.wait(lambda: len(push.messages) >= 2, 100, "a redelivery")
    again = push.messages
    assert [one["reconsumeTimes"] for one in again] == [0, 1]
    assert {one["bodySha256"] for one in again} == {sent["bodySha256"]}
    assert {one["keys"] for one in again} == {"again-key"}


@other_clients
def test_a_batch_is_stored_as_its_members(client: Client, java: Client) -> None:
    if client.language != "go":
        pytest.skip("this client has no batches that a broker of today unpacks")
    topic = java.topic("Batch", queues=1)
    sent = client.send(client.producer(), topic, verb="batch", count=5, body="member", tags="T", keys="member-{}")
    found = java.push(topic, client.group("java"), orderly=True).wait_for(5)
    assert [one["bodySha256"] for one in found] == [one["bodySha256"] for one in sent]
    assert [one["keys"] for one in found] == [f"member-{number}" for number in range(5)]


@other_clients
def test_a_delayed_message_comes_when_it_is_due(client: Client, java: Client) -> None:
    topic = java.topic("Later", queues=1)
    client.send(client.producer(), topic, body="later", delayLevel=2)
    [found] = java.push(topic, client.group("java")).wait_for(1)
    waited_ms = found["storeTimestamp"] - found["bornTimestamp"]
    assert 5000 <= waited_ms <= 8000, "level 2 is five seconds"


@other_clients
def test_a_subscription_by_sql(client: Client, java: Client) -> None:
    if client.language != "go":
        pytest.skip("this client subscribes by tags alone")
    topic = java.topic("Sql", queues=1)
    push = client.push(topic, client.group("sql"), sql="n between 3 and 5")
    java.send(java.producer(), topic, count=10, body="n", **{"property.n": "{}"})
    found = push.wait_for(3)
    time.sleep(1)
    assert {one["body"] for one in found} == {"n 3", "n 4", "n 5"}


@go_client
def test_the_go_client_decides_and_is_asked(client: Client, java: Client) -> None:
    topic, group = java.topic("GoDecided", queues=1), client.group("godecided")
    push = java.push(topic, group)
    producer = client.producer("transactionalProducer")
    send = {"verb": "sendInTransaction", "count": 3}
    client.send(producer, topic, body="yes", first="COMMIT_MESSAGE", checked="COMMIT_MESSAGE", **send)
    client.send(producer, topic, body="no", first="ROLLBACK_MESSAGE", checked="ROLLBACK_MESSAGE", **send)
    client.send(producer, topic, body="asked", first="UNKNOW", checked="COMMIT_MESSAGE", **send)
    push.wait_for(6, 120)
    time.sleep(2)
    expected = {f"{word} {number}" for word in ("yes", "asked") for number in range(3)}
    assert {one["body"] for one in push.messages} == expected
    assert len([one for one in client.driver.events(producer) if one["event"] == "checked"]) >= 3
