"""POP: the broker shares out messages, not queues. Only 5.x knows it."""

from __future__ import annotations

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import java_550_client
from tests.interop.harness.processes import JsonObject

pytestmark = pytest.mark.interop


def switched_to_pop(client: Client, topic: str, group: str) -> None:
    printed = client.mqadmin(f"setConsumeMode -b {client.system.broker_address} -t {topic} -g {group} -m POP -q 2")
    assert "success" in printed, printed


@java_550_client
def test_a_group_that_pops(client: Client) -> None:
    topic, group = client.topic("Popped", queues=4), client.group("pops")
    switched_to_pop(client, topic, group)
    pushes = [client.push(topic, group, pop=True) for _ in range(2)]
    sent = client.send(client.producer(), topic, count=40, body="one")
    pushes[0].wait(
        lambda: len(pushes[0].bodies() | pushes[1].bodies()) == 40, 90, "all forty, at one of the two or the other"
    )
    assert {one["bodySha256"] for push in pushes for one in push.messages} == {one["bodySha256"] for one in sent}


@java_550_client
def test_a_message_not_acknowledged_comes_again(client: Client) -> None:
    topic, group = client.topic("PoppedAgain", queues=1), client.group("popsagain")
    switched_to_pop(client, topic, group)
    push = client.push(topic, group, pop=True, refuse=1, retryLevel=1)
    client.send(client.producer(), topic, body="again")
    push.wait(lambda: len(push.messages) >= 2, 150, "a redelivery")
    assert [one["reconsumeTimes"] for one in push.messages[:2]] == [0, 1]


@java_550_client
def test_in_order_a_queue_gives_out_one_batch_at_a_time(client: Client) -> None:
    """Java's push consumers never pop in order; Apache's proxy does, through these calls of the client."""
    topic, group = client.topic("PoppedInOrder", queues=1), client.group("popsinorder")
    producer = client.producer()
    [first, *_] = client.send(producer, topic, count=4, body="one")
    at = {"producer": producer, "topic": topic, "group": group}
    at |= {"broker": first["brokerName"], "brokerAddress": client.system.broker_address}

    def popped(invisible_ms: int = 20_000) -> list[JsonObject]:
        answer = client.call("pop", max=2, order=True, invisibleMs=invisible_ms, **at)
        found = answer["messages"]
        assert isinstance(found, list)
        return found

    def acknowledge(messages: list[JsonObject]) -> None:
        for one in messages:
            place = {"queue": one["queueId"], "offset": one["queueOffset"], "receipt": one["receipt"]}
            assert client.call("ackPopped", **at, **place)["status"] == "OK"

    batch = popped()
    assert [one["body"] for one in batch] == ["one 0", "one 1"]
    assert popped() == [], "the queue waits for what is out"
    acknowledge(batch)
    batch = popped(invisible_ms=2_000)
    assert [one["body"] for one in batch] == ["one 2", "one 3"]
    again: list[JsonObject] = []
    client.eventually(lambda: bool(again.extend(popped()) or again), "the same again when its time is up")
    assert [one["body"] for one in again] == ["one 2", "one 3"]
    assert [one["reconsumeTimes"] for one in again] == [1, 1]
    acknowledge(again)
    assert popped() == []
