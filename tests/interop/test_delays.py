"""Messages that come later: by level, and with 5.x by any time."""

from __future__ import annotations

import time

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Refused
from tests.interop.harness.matrix import java_550_client, java_clients
from tests.interop.harness.systems import ORBITLOG

pytestmark = pytest.mark.interop

# How much later than due a message may come: both brokers look once a second at worst, and the machine is shared.
LATE_MS_MAX = 3000


@java_clients
def test_levels_come_when_they_are_due(client: Client) -> None:
    topic, group = client.topic("Levels", queues=1), client.group("levels")
    push = client.push(topic, group)
    producer = client.producer()
    # Levels 1, 2 and 3 are 1, 5 and 10 seconds.
    for level in (3, 2, 1):
        client.send(producer, topic, body=f"level {level}", delayLevel=level, keys=f"level-{level}", tags="Later")
    client.send(producer, topic, body="now")
    # When a message was stored in its topic, not when it came: a 5.x consumer may take half a minute to begin.
    found = sorted(push.wait_for(4), key=lambda one: int(one["queueOffset"]))
    assert [one["body"] for one in found] == ["now", "level 1", "level 2", "level 3"]
    for one, due_ms in zip(found[1:], (1000, 5000, 10_000), strict=True):
        waited_ms = one["storeTimestamp"] - one["bornTimestamp"]
        assert due_ms <= waited_ms <= due_ms + LATE_MS_MAX, one["body"]
        assert (one["topic"], one["tags"]) == (topic, "Later")
        assert one["properties"]["DELAY"] in ("1", "2", "3"), "the level stays to be seen"


@java_clients
def test_a_delayed_message_is_found_by_its_key(client: Client) -> None:
    topic = client.topic("LaterKey", queues=1)
    [sent] = client.send(client.producer(), topic, body="later", delayLevel=1, keys="later-key")

    def found() -> bool:
        try:
            messages = client.call("queryByKey", topic=topic, key="later-key")["messages"]
        except Refused:
            return False
        return [one["bodySha256"] for one in messages] == [sent["bodySha256"]]

    client.eventually(found, "it is in the index once it was delivered")


@java_550_client
def test_any_delay_is_kept(client: Client) -> None:
    topic, group = client.topic("Timed", queues=1), client.group("timed")
    push = client.push(topic, group)
    producer = client.producer()
    client.send(producer, topic, body="seconds", **{"system.TIMER_DELAY_SEC": 3})
    client.send(producer, topic, body="milliseconds", **{"system.TIMER_DELAY_MS": 1500})
    at = int(time.time() * 1000) + 5000
    client.send(producer, topic, body="moment", **{"system.TIMER_DELIVER_MS": at})
    client.send(producer, topic, body="past", **{"system.TIMER_DELIVER_MS": at - 60_000})
    found = {one["body"]: one for one in push.wait_for(4)}
    in_order = sorted(found, key=lambda body: int(found[body]["queueOffset"]))
    assert [body for body in in_order if body != "past"] == ["milliseconds", "seconds", "moment"]
    assert found["past"]["storeTimestamp"] - found["past"]["bornTimestamp"] <= LATE_MS_MAX
    for body, due_ms in (("milliseconds", 1500), ("seconds", 3000)):
        waited_ms = found[body]["storeTimestamp"] - found[body]["bornTimestamp"]
        assert due_ms - 1000 <= waited_ms <= due_ms + LATE_MS_MAX, body
    assert at - 1000 <= found["moment"]["storeTimestamp"] <= at + LATE_MS_MAX


@java_550_client
def test_a_delay_of_days(client: Client) -> None:
    """Apache's broker accepts three days at most; Orbitlog has no limit unless `timerMaxDelaySec` is set."""
    topic = client.topic("Days", queues=1)
    words = {"body": "late", "system.TIMER_DELAY_SEC": 4 * 86_400}
    if client.system.kind == ORBITLOG:
        assert client.send(client.producer(), topic, **words)[0]["status"] == "SEND_OK"
    else:
        with pytest.raises(Refused) as refused:
            client.send(client.producer(retries=0), topic, **words)
        assert refused.value.code == 13


@java_550_client
def test_a_message_is_taken_back_before_its_time(client: Client) -> None:
    topic, group = client.topic("Recalled", queues=1), client.group("recalled")
    push = client.push(topic, group)
    producer = client.producer()
    [gone] = client.send(producer, topic, body="gone", **{"system.TIMER_DELAY_SEC": 12})
    [kept] = client.send(producer, topic, body="kept", **{"system.TIMER_DELAY_SEC": 13})
    assert gone["recallHandle"] and gone["recallHandle"] != kept["recallHandle"]
    told = client.call("recall", producer=producer, topic=topic, handle=gone["recallHandle"])
    assert told["msgId"] == gone["msgId"]
    push.wait_for(1)
    time.sleep(3)
    assert [one["body"] for one in push.messages] == ["kept"]


@java_550_client
def test_what_cannot_be_taken_back(client: Client) -> None:
    topic, other = client.topic("NoRecall", queues=1), client.topic("NoRecallOther", queues=1)
    producer = client.producer(retries=0)
    [sent] = client.send(producer, topic, body="soon", **{"system.TIMER_DELAY_SEC": 2})
    [plain] = client.send(producer, topic, body="plain")
    assert plain["recallHandle"] is None
    with pytest.raises(Refused) as refused:
        client.call("recall", producer=producer, topic=other, handle=sent["recallHandle"])
    assert refused.value.code == 604, "the handle is of another topic"
    time.sleep(4)
    with pytest.raises(Refused) as refused:
        client.call("recall", producer=producer, topic=topic, handle=sent["recallHandle"])
    assert refused.value.code == 604, "its time has come"
