"""Requests that wait for a reply, and traces that clients write."""

from __future__ import annotations

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Refused
from tests.interop.harness.matrix import java_clients
from tests.interop.harness.processes import JsonObject

pytestmark = pytest.mark.interop

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


@java_clients
def test_a_request_gets_its_reply(client: Client) -> None:
    topic = client.topic("Requests", queues=2)
    client.push(topic, client.group("replies"), reply="re: ")
    producer = client.producer()
    for number in range(3):
        # A 5.x consumer may take half a minute to begin.
        words = {"producer": producer, "topic": topic, "body": f"question {number}", "timeoutMs": 60_000}
        answer = client.call("request", seconds_max=70, **words)
        assert answer["reply"] == f"re: question {number}"


@java_clients
def test_traces_record_sends_and_consumption(client: Client) -> None:
    topic = client.topic("Traced", queues=1)
    push = client.push(topic, client.group("traced"), trace=True)
    [sent] = client.send(client.producer(trace=True), topic, body="followed", keys="traced-key")
    push.wait_for(1)

    def traces() -> list[JsonObject]:
        try:
            found = client.call("queryByKey", topic=TRACE_TOPIC, key=sent["msgId"])["messages"]
        except Refused:
            return []
        assert isinstance(found, list)
        return found

    client.eventually(lambda: len(traces()) >= 2, "a trace of the send and one of the consumption")
