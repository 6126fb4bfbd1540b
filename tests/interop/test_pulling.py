"""Official Java consumers that ask: pull and lite pull, seek and commit; looking up by time, id and key."""

from __future__ import annotations

import time

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Refused
from tests.interop.harness.matrix import java_clients
from tests.interop.harness.processes import JsonObject

pytestmark = pytest.mark.interop


def prepared(client: Client, topic: str, count: int, **words: object) -> list[JsonObject]:
    """Messages in queue 0, visible."""
    words = {"body": "one", "keys": "key-{}", "queue": 0, "broker": client.system.broker_name, **words}
    sent = client.send(client.producer(), topic, count=count, **words)
    reader = client.pull_consumer(client.group("prepares"))
    place = {"name": reader, "topic": topic, "broker": client.system.broker_name, "queue": 0}
    client.eventually(lambda: client.call("queueBounds", **place)["max"] >= count, "all visible")
    return sent


@java_clients
def test_pulling_by_position(client: Client) -> None:
    topic = client.topic("Pulled", queues=2)
    sent = prepared(client, topic, 50, tags="A,B")
    reader = client.pull_consumer(client.group("pulls"))
    place = {"name": reader, "topic": topic, "broker": client.system.broker_name, "queue": 0}
    assert sorted(client.call("pullQueues", name=reader, topic=topic)["queues"]) == [
        f"{client.system.broker_name}:{queue_id}" for queue_id in range(2)
    ]
    bounds = client.call("queueBounds", **place)
    assert (bounds["min"], bounds["max"]) == (0, 50)

    part = client.call("pull", position=5, max=10, **place)
    assert (part["status"], part["next"], part["min"], part["max"]) == ("FOUND", 15, 0, 50)
    assert [one["bodySha256"] for one in part["messages"]] == [one["bodySha256"] for one in sent[5:15]]
    whole = client.call("pull", position=0, max=1000, **place)
    assert (len(whole["messages"]), whole["next"]) == (32, 32), "one pull brings 32 at most"

    tagged = client.call("pull", position=0, max=10, tags="B", **place)
    assert {one["tags"] for one in tagged["messages"]} == {"B"} and len(tagged["messages"]) == 10
    nothing = client.call("pull", position=0, max=10, tags="C", **place)
    assert (nothing["status"], nothing["messages"]) == ("NO_MATCHED_MSG", []) and nothing["next"] > 0
    end = client.call("pull", position=50, **place)
    assert (end["status"], end["next"]) == ("NO_NEW_MSG", 50)
    beyond = client.call("pull", position=60, **place)
    assert (beyond["status"], beyond["next"]) == ("OFFSET_ILLEGAL", 50)


@java_clients
def test_a_pull_waits_for_the_next_message(client: Client) -> None:
    topic = client.topic("Held", queues=1)
    prepared(client, topic, 1)
    reader = client.pull_consumer(client.group("held"))
    words = {"name": reader, "topic": topic, "broker": client.system.broker_name, "queue": 0, "position": 1}
    waiting = client.driver.begin("pull", block=True, **words)
    time.sleep(1)
    [sent] = client.send(client.producer(), topic, body="awaited")
    answer = waiting(25)
    assert [one["bodySha256"] for one in answer["messages"]] == [sent["bodySha256"]]


@java_clients
def test_committed_positions_are_kept(client: Client) -> None:
    topic, group = client.topic("Committed", queues=1), client.group("commits")
    prepared(client, topic, 20)
    first = client.pull_consumer(group)
    place = {"topic": topic, "broker": client.system.broker_name, "queue": 0}
    # Once asked, the broker's answer for a group it does not know; then what was committed.
    assert client.call("pullCommitted", name=first, **place)["position"] == 0
    client.call("pullCommit", name=first, position=7, **place)
    client.end(first)
    second = client.pull_consumer(group)
    client.eventually(lambda: client.call("pullCommitted", name=second, **place)["position"] == 7, "the commit")
    client.call("pullCommit", name=second, position=3, **place)
    third = client.pull_consumer(group)
    client.eventually(lambda: client.call("pullCommitted", name=third, **place)["position"] == 3, "a step back")


@java_clients
@pytest.mark.parametrize("assign", [False, True], ids=["subscribe", "assign"])
def test_lite_pull_polls_seeks_and_commits(client: Client, assign: bool) -> None:
    topic, group = client.topic("Lite", queues=2), client.group("lite")
    sent = client.send(client.producer(), topic, count=20, body="one")
    wanted = {one["bodySha256"] for one in sent}
    lite = client.lite(topic, group, assign=assign)

    def poll(count: int) -> list[str]:
        return [one["bodySha256"] for one in client.call("litePoll", name=lite, count=count)["messages"]]

    assert set(poll(20)) == wanted
    client.call("liteCommit", name=lite)
    client.eventually(
        lambda: client.call("liteCommitted", name=lite, topic=topic)["committed"] == {"0": 10, "1": 10}, "the commit"
    )
    client.call("liteSeek", name=lite, topic=topic, to=6)
    again = client.call("litePoll", name=lite, count=8)["messages"]
    assert sorted((one["queueId"], one["queueOffset"]) for one in again) == [
        (queue_id, position) for queue_id in range(2) for position in range(6, 10)
    ]
    client.call("liteSeek", name=lite, topic=topic, to="begin")
    assert set(poll(20)) == wanted
    client.end(lite)


@java_clients
def test_lite_pull_resumes_where_it_committed(client: Client) -> None:
    topic, group = client.topic("LiteOn", queues=1), client.group("liteon")
    producer = client.producer()
    client.send(producer, topic, count=5, body="before")
    first = client.lite(topic, group, autoCommit=True)
    assert len(client.call("litePoll", name=first, count=5)["messages"]) == 5
    client.call("liteCommit", name=first)
    client.end(first)
    [sent] = client.send(producer, topic, body="after")
    second = client.lite(topic, group)
    client.eventually(
        lambda: client.call("liteCommitted", name=second, topic=topic)["committed"] == {"0": 5}, "the first's commit"
    )
    found = client.call("litePoll", name=second, count=1)["messages"]
    assert [one["bodySha256"] for one in found] == [sent["bodySha256"]]


@java_clients
def test_searching_by_time(client: Client) -> None:
    topic = client.topic("Times", queues=1)
    prepared(client, topic, 12, pauseMs=40)
    reader = client.pull_consumer(client.group("times"))
    place = {"name": reader, "topic": topic, "broker": client.system.broker_name, "queue": 0}
    times = [one["storeTimestamp"] for one in client.call("pull", position=0, **place)["messages"]]
    assert len(times) == 12 and times == sorted(times)

    def search(moment: int) -> int:
        position = client.call("searchOffset", time=moment, **place)["position"]
        assert isinstance(position, int)
        return position

    assert [search(moment) for moment in times] == [times.index(moment) for moment in times]
    assert search(times[0] - 100_000) == 0
    assert search(times[4] + 1) in (4, 5), "4.9 takes the one before, 5.x the one after"
    assert search(times[-1] + 100_000) in (11, 12)


@java_clients
def test_looking_up_by_id_and_by_key(client: Client) -> None:
    topic = client.topic("Looked", queues=2)
    sent = client.send(client.producer(), topic, count=10, body="one", keys="key-{} common", tags="T")
    one = sent[3]
    by_offset_id = client.call("viewById", topic=topic, id=one["offsetMsgId"])["found"]
    assert (by_offset_id["bodySha256"], by_offset_id["queueId"], by_offset_id["queueOffset"]) == (
        one["bodySha256"], one["queueId"], one["queueOffset"],
    )  # fmt: skip

    def by_key(key: str, **words: object) -> list[JsonObject]:
        try:
            found = client.call("queryByKey", topic=topic, key=key, **words)["messages"]
        except Refused as refused:
            assert "no message" in refused.text, refused
            return []
        assert isinstance(found, list)
        return found

    client.eventually(lambda: len(by_key("common")) == 10, "all in the index")
    assert [found["bodySha256"] for found in by_key("key-7")] == [sent[7]["bodySha256"]]
    assert len(by_key("common", max=4)) == 4
    assert by_key("no-such-key") == []
    assert by_key("common", end=1000) == []
    by_unique_id = client.call("viewById", topic=topic, id=one["msgId"])["found"]
    assert by_unique_id["bodySha256"] == one["bodySha256"]


@java_clients
def test_a_topic_that_does_not_exist(client: Client) -> None:
    reader = client.pull_consumer(client.group("nowhere"))
    with pytest.raises(Refused):
        client.call("pullQueues", name=reader, topic=f"Nowhere_{client.mark}")
