"""Consumers and brokers that end and come back: positions are kept, and nothing that was acknowledged is lost."""

from __future__ import annotations

import time

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Refused
from tests.interop.harness.matrix import java_clients
from tests.interop.harness.processes import JsonObject

pytestmark = pytest.mark.interop

CONSUMER_SECONDS_MAX = 60


def bodies(messages: list[JsonObject]) -> set[str]:
    return {one["bodySha256"] for one in messages}


@java_clients
def test_consumer_resumes_where_it_stopped(client: Client) -> None:
    topic, group = client.topic("Consumer"), client.group("consumer")
    producer = client.producer()
    client.send(producer, topic, count=20, body="first")
    push = client.push(topic, group)
    push.wait_for(20)
    push.close()
    # A commit is not answered; the next consumer may ask before it arrived.
    time.sleep(0.5)
    later = client.send(producer, topic, count=20, body="second")
    again = client.push(topic, group)
    again.wait_for(20)
    time.sleep(0.5)
    assert bodies(again.messages) == bodies(later)


@java_clients
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_broker_comes_back_with_everything(client: Client, end: str) -> None:
    topic, group = client.topic("Broker"), client.group("broker")
    producer = client.producer()
    first = client.send(producer, topic, count=20, body="first")
    push = client.push(topic, group)
    push.wait_for(20)
    push.close()
    second = client.send(producer, topic, count=20, body="second", keys="second-{}")
    if end == "stopped":
        client.system.stop_broker()
    else:
        # Java's broker writes positions down every five seconds.
        time.sleep(6)
        client.system.kill_broker()
    with pytest.raises(Refused):
        client.send(producer, topic, body="nobody there")
    client.system.start()
    deadline = time.monotonic() + CONSUMER_SECONDS_MAX
    while True:
        try:
            third = client.send(producer, topic, count=8, body="third")
            break
        except Refused:
            assert time.monotonic() < deadline, "the producer did not find the broker again"
            time.sleep(0.5)
    again = client.push(topic, group)
    again.wait_for(28)
    time.sleep(0.5)
    assert bodies(again.messages) == bodies(second) | bodies(third), "consumed messages are not redelivered"
    found = client.call("queryByKey", topic=topic, key="second-7")["messages"]
    assert bodies(found) == {second[7]["bodySha256"]}
    seen = client.call("viewById", topic=topic, id=first[5]["offsetMsgId"])["found"]
    assert seen["bodySha256"] == first[5]["bodySha256"]


@java_clients
def test_running_clients_find_a_broker_that_was_killed(client: Client) -> None:
    """A ledger of what was acknowledged, a producer and a consumer that never stop, and `kill -9` between."""
    topic, group = client.topic("Ledger"), client.group("ledger")
    producer = client.producer(timeoutMs=2000, retries=0)
    push = client.push(topic, group)
    ledger: list[JsonObject] = client.send(producer, topic, count=500, bytesMax=500, seed=1)
    sending = client.driver.begin(
        "send", producer=producer, topic=topic, count=100_000, bytesMax=500, seed=2, events=True
    )
    client.driver.wait(lambda: len(client.driver.events(producer)) > 500, 60, "sends under way")
    client.system.kill_broker()
    with pytest.raises(Refused):
        sending(60)
    ledger += [event["message"] for event in client.driver.events(producer)]
    client.system.start()
    deadline = time.monotonic() + CONSUMER_SECONDS_MAX
    while True:
        try:
            ledger += client.send(producer, topic, count=200, bytesMax=500, seed=3)
            break
        except Refused:
            assert time.monotonic() < deadline, "the producer did not find the broker again"
            time.sleep(0.5)
    wanted = {(one["bodySha256"], one["msgId"]) for one in ledger}
    push.wait(lambda: wanted <= push.bodies(), 90, f"all {len(wanted)} acknowledged messages")
    places: dict[tuple[int, int], str] = {}
    for one in push.messages:
        assert places.setdefault((one["queueId"], one["queueOffset"]), one["bodySha256"]) == one["bodySha256"]
    for one in ledger:
        assert places[one["queueId"], one["queueOffset"]] == one["bodySha256"], "not at the offset of the response"
