"""Commands over pending messages, at Apache's broker and at Orbitlog: they read topics, so both must answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import java_550_client

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).with_name("orbitlog")


def orbitlog(client: Client, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(PROGRAM), *words, "-n", client.system.name_server_address]
    return subprocess.run(command, capture_output=True, text=True, timeout=90)


def rows(client: Client, *words: str) -> list[dict[str, Any]]:
    done = orbitlog(client, *words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@java_550_client
def test_messages_that_wait(client: Client) -> None:
    topic = client.topic("KeptLater", queues=1)
    producer = client.producer()
    [timed] = client.send(producer, topic, body="hour", **{"system.TIMER_DELAY_SEC": 3600})
    [level] = client.send(producer, topic, body="level", delayLevel=17)
    client.eventually(lambda: len(rows(client, "message", "delayed", topic)) == 2, "both are listed")
    assert {row["msgId"]: row["cancellable"] for row in rows(client, "message", "delayed", topic)} == {
        timed["msgId"]: True,
        level["msgId"]: False,
    }
    done = orbitlog(client, "message", "cancel", topic, timed["msgId"])
    assert done.returncode == 0, done.stderr
    left = [level["msgId"]]
    client.eventually(
        lambda: [row["msgId"] for row in rows(client, "message", "delayed", topic)] == left, "it waits no longer"
    )


@java_550_client
def test_transactions_that_are_open(client: Client) -> None:
    topic = client.topic("KeptOpen", queues=1)
    producer = client.producer("transactionalProducer")
    send = {"verb": "sendInTransaction", "body": "open"}
    [unknown] = client.send(producer, topic, first="UNKNOW", checked="UNKNOW", **send)
    # It may be asked about although it was committed: Apache's broker gathers such news for some seconds.
    client.send(producer, topic, first="COMMIT_MESSAGE", checked="COMMIT_MESSAGE", **send)

    def only_the_open_one() -> bool:
        listed = [(row["transactionId"], row["checks"]) for row in rows(client, "transactions", "--topic", topic)]
        print(listed)
        return [name for name, _ in listed] == [unknown["msgId"]]

    client.eventually(only_the_open_one, "only the open one is listed")


@java_550_client
def test_dead_letters(client: Client, tmp_path: Path) -> None:
    topic, group = client.topic("KeptDead", queues=1), client.group("keptdead")
    push = client.push(topic, group, refuse=99, retryLevel=1, maxReconsumeTimes=0)
    [sent] = client.send(client.producer(), topic, body="hopeless", keys="dead-key")
    push.wait_for(1)
    client.eventually(
        lambda: any(row["group"] == group and row["letters"] == 1 for row in rows(client, "dlq", "list")), "it is dead"
    )
    push.close()
    [letter] = rows(client, "dlq", "list", group, "--key", "dead-key")
    assert (letter["msgId"], letter["topic"], letter["body"]) == (sent["msgId"], topic, "hopeless")
    replay = ("dlq", "replay", group, "--to-origin", "--record", str(tmp_path / "record.jsonl"))
    [again] = rows(client, *replay)
    assert rows(client, *replay) == []
    other = client.push(topic, client.group("keptdeadother"))
    found = other.wait_for(2)
    assert {one["uniqueId"] for one in found} == {sent["msgId"], again["newMsgId"]}
