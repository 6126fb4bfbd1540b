"""Half messages: committed, rolled back, and asked about."""

from __future__ import annotations

import time

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import java_clients

pytestmark = pytest.mark.interop

COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"


@java_clients
def test_what_was_decided_at_once(client: Client) -> None:
    topic, group = client.topic("Decided", queues=2), client.group("decided")
    push = client.push(topic, group)
    producer = client.producer("transactionalProducer")
    committed = client.send(
        producer, topic, verb="sendInTransaction", count=5, body="yes", first=COMMIT, keys="yes-{}", tags="T"
    )
    client.send(producer, topic, verb="sendInTransaction", count=5, body="no", first=ROLLBACK, checked=ROLLBACK)
    assert {one["status"] for one in committed} == {"SEND_OK"}
    found = push.wait_for(5)
    time.sleep(2)
    assert sorted(one["body"] for one in push.messages) == [f"yes {number}" for number in range(5)]
    assert {(one["tags"], one["topic"]) for one in found} == {("T", topic)}
    assert {one["uniqueId"] for one in found} == {one["msgId"] for one in committed}
    assert {one["sysFlag"] & 12 for one in found} == {8}, "the mark of a committed one"


@java_clients
def test_what_was_left_open_is_asked_about(client: Client) -> None:
    topic, group = client.topic("Open", queues=1), client.group("open")
    push = client.push(topic, group)
    producer = client.producer("transactionalProducer")
    send = {"verb": "sendInTransaction", "first": UNKNOWN}
    [yes] = client.send(producer, topic, body="yes", checked=COMMIT, keys="open-yes", **send)
    [no] = client.send(producer, topic, body="no", checked=ROLLBACK, keys="open-no", **send)

    def asked() -> list[str]:
        return [event["keys"] for event in client.driver.events(producer) if event["event"] == "checked"]

    push.wait(lambda: {"open-yes", "open-no"} <= set(asked()), 90, "both asked about")
    push.wait_for(1)
    # A question that was on its way when the answer came may be answered twice.
    time.sleep(5)
    questions = len(asked())
    time.sleep(6)
    assert len(asked()) == questions, "an answer ends the questions"
    assert {one["body"] for one in push.messages} == {"yes"}
    topics = {event["topic"] for event in client.driver.events(producer)}
    assert topics == {topic}, "the question names the topic it was sent to"
    assert yes["msgId"] != no["msgId"]
