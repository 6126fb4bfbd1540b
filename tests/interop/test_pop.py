"""POP: the broker shares out messages, not queues. Only 5.x knows it."""

from __future__ import annotations

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import java_550_client

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
