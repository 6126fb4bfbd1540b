"""States of a store that a migration must keep: each is made, used and continued by whichever broker serves it.

A state takes part in every turn of a journey (`test_migration.py`). `take` consumes what earlier turns left and checks
that nothing else is delivered; `leave` sends what the next broker must deliver.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Refused
from tests.interop.harness.ledger import Ledger, consume_remaining, deliver_nothing, message_id
from tests.interop.harness.processes import JsonObject

COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"
# Level 3 never comes due in a test; level 4 is the last, and what a higher level means.
DELAY_LEVELS = "1s 30s 2d 20s"
LEVEL_SHORT, LEVEL_PENDING, LEVEL_FAR, LEVEL_BEYOND = 1, 2, 3, 9
PENDING_MS, BEYOND_MS = 30_000, 20_000
# Bits 8 to 10 of the sysFlag.
COMPRESSION_TYPES = {"LZ4": 1, "ZSTD": 2, "ZLIB": 3}
# Both brokers take a message for due up to a second early.
EARLY_MS = 1_000
_PROGRAM = Path(sys.executable).with_name("orbitlog")


@dataclass(frozen=True)
class Turn:
    """One broker's time with the store."""

    client: Client
    number: int
    is_last: bool

    @property
    def is_first(self) -> bool:
        return self.number == 0


class State:
    """Base: topics, groups and a ledger that outlive the turns."""

    since_5 = False
    """The Java broker or client needs to be of 5.x."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.topic = ""
        self.group = ""

    def take(self, turn: Turn) -> None:
        raise NotImplementedError

    def leave(self, turn: Turn) -> None:
        """Send what the next turn consumes; nothing by default."""

    def _make(self, client: Client, **words: object) -> None:
        name = type(self).__name__
        self.topic, self.group = client.topic(name, **words), make_group(client, name)

    def _consume(self, client: Client, **words: object) -> list[JsonObject]:
        return consume_remaining(self.ledger, client, self.topic, self.group, **words)

    def _send(self, client: Client, *, is_direct: bool = True, topic: str = "", **words: object) -> set[str]:
        topic = topic or self.topic
        return self.ledger.acknowledge(topic, client.send(client.producer(), topic, **words), is_direct=is_direct)


def make_group(client: Client, name: str, options: str = "") -> str:
    """Create a group: brokers do not create any by themselves here."""
    group = client.group(name)
    done = client.mqadmin(f"updateSubGroup -b {client.system.broker_address} -g {group}{options}")
    assert "success" in done, done
    return group


def orbitlog_rows(client: Client, *words: str) -> list[JsonObject]:
    """Return the rows of one of Orbitlog's commands; they read any broker."""
    command = [str(_PROGRAM), *words, "-n", client.system.name_server_address, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class Plain(State):
    """Sends of several kinds; one group that follows, one that begins two brokers later."""

    late = ""

    def take(self, turn: Turn) -> None:
        client = turn.client
        if turn.is_first:
            self._make(client)
            self.late = make_group(client, "PlainLate")
            self._send(client, count=12, body="consumed by the first broker", keys="first-{}")
        self._consume(client)
        if turn.number >= 2:
            consume_remaining(self.ledger, client, self.topic, self.late)
        self.ledger.check_queues(client, self.topic)

    def leave(self, turn: Turn) -> None:
        self._send(turn.client, count=12, body=f"sync {turn.number}", keys=f"key-{turn.number}-{{}}", tags="A,B")
        self._send(turn.client, count=12, body=f"async {turn.number}", mode="async")
        self._send(turn.client, count=6, body=f"batch {turn.number}", verb="batch")


class Untouched(State):
    """Consumed by one group in the first turn, then neither written nor read until the last."""

    late = ""

    def take(self, turn: Turn) -> None:
        if turn.is_first:
            self._make(turn.client)
            self.late = make_group(turn.client, "UntouchedLate")
            self._send(turn.client, count=20, body="untouched")
            self._consume(turn.client)
        if turn.is_last:
            self.ledger.check_queues(turn.client, self.topic)
            consume_remaining(self.ledger, turn.client, self.topic, self.late)
            deliver_nothing(turn.client, self.topic, self.group)


class EmptyTopic(State):
    """A topic without a message until the last turn."""

    def take(self, turn: Turn) -> None:
        if turn.is_first:
            self._make(turn.client)
        if turn.is_last:
            self._send(turn.client, count=8, body="first")
        self.ledger.check_queues(turn.client, self.topic)
        if turn.is_last:
            self._consume(turn.client)


class DeletedTopic(State):
    """A topic deleted in the first turn and created again in the last: only new messages, from offset 0."""

    since_5 = True  # 4.9.7 keeps the queues of a deleted topic until it cleans up

    def take(self, turn: Turn) -> None:
        client = turn.client
        if turn.is_first:
            self._make(client, queues=1)
            self._send(client, count=5, body="deleted")
            self._consume(client)
            self._send(client, count=4, body="deleted before it was consumed")
            # Java creates the queue again for a message that it dispatches after the deletion.
            self.ledger.check_queues(client, self.topic)
            done = client.mqadmin(f"deleteTopic -c {client.system.cluster_name} -t {self.topic}")
            assert "success" in done, done
            self.ledger.delete(self.topic)
        else:
            known = client.mqadmin("topicList").split()
            assert self.topic not in known
        if turn.is_last:
            client.call("createTopic", topic=self.topic, queues=1, brokerAddress=client.system.broker_address)
            self._send(client, count=3, body="new")
            self.ledger.check_queues(client, self.topic)
            consume_remaining(self.ledger, client, self.topic, make_group(client, "DeletedTopicNew"))


class Delays(State):
    """Delays by level with levels of one's own: pending, far away, and of a level above the last."""

    def __init__(self) -> None:
        super().__init__()
        self._due_after_ms: dict[str, int] = {}
        self._far = 0

    def take(self, turn: Turn) -> None:
        if turn.is_first:
            self._make(turn.client, queues=1)
            self._delay(turn, LEVEL_SHORT, 1_000, "short")
        for message in self._consume(turn.client):
            waited_ms = message["storeTimestamp"] - message["bornTimestamp"]
            assert waited_ms >= self._due_after_ms[message_id(message)] - EARLY_MS, message["body"]
        waiting = orbitlog_rows(turn.client, "message", "delayed", self.topic)
        assert len(waiting) == self._far

    def leave(self, turn: Turn) -> None:
        self._delay(turn, LEVEL_PENDING, PENDING_MS, f"pending {turn.number}")
        self._delay(turn, LEVEL_BEYOND, BEYOND_MS, f"beyond {turn.number}")
        # Not entered: it must not be delivered in any turn.
        turn.client.send(turn.client.producer(), self.topic, body=f"far {turn.number}", delayLevel=LEVEL_FAR)
        self._far += 1

    def _delay(self, turn: Turn, level: int, due_ms: int, body: str) -> None:
        for identity in self._send(turn.client, is_direct=False, count=2, body=body, delayLevel=level):
            self._due_after_ms[identity] = due_ms


class Timers(State):
    """Timer messages: due after the move, and far away."""

    since_5 = True

    def __init__(self) -> None:
        super().__init__()
        self._due_at_ms: dict[str, int] = {}
        self._far = 0

    def take(self, turn: Turn) -> None:
        if turn.is_first:
            self._make(turn.client, queues=1)
        for message in self._consume(turn.client):
            assert message["storeTimestamp"] >= self._due_at_ms[message_id(message)] - EARLY_MS, message["body"]
        waiting = orbitlog_rows(turn.client, "message", "delayed", self.topic)
        assert len(waiting) == self._far

    def leave(self, turn: Turn) -> None:
        at_ms = int(time.time() * 1000) + PENDING_MS
        words = {"body": f"pending {turn.number}", "count": 2, "system.TIMER_DELIVER_MS": at_ms}
        self._due_at_ms |= dict.fromkeys(self._send(turn.client, is_direct=False, **words), at_ms)
        far = {"body": f"far {turn.number}", "system.TIMER_DELAY_SEC": 2 * 86_400}
        turn.client.send(turn.client.producer(), self.topic, **far)
        self._far += 1


class Retries(State):
    """Messages that a consumer refused: waiting for their retry at the move; retry topics of two queues."""

    def take(self, turn: Turn) -> None:
        if turn.is_first:
            self._make(turn.client, queues=2)
            self.group = make_group(turn.client, "RetriesTwo", " -q 2")
        wanted = self.ledger.remaining(self.topic, self.group)
        found = self._consume(turn.client)
        assert {message_id(one) for one in found if one["reconsumeTimes"] == 1} == wanted

    def leave(self, turn: Turn) -> None:
        sent = self._send(turn.client, count=6, body=f"refused {turn.number}")
        push = turn.client.push(self.topic, self.group, refuse=99, retryLevel=LEVEL_PENDING)
        push.wait_for(len(sent), 120)
        time.sleep(2)
        push.close()
        assert sorted(message_id(one) for one in push.messages) == sorted(sent), "each was refused once"


class DeadLetters(State):
    """Messages that were refused too often; dead letters stay and grow."""

    def take(self, turn: Turn) -> None:
        client = turn.client
        if turn.is_first:
            self._make(client, queues=1)
        sent = self._send(client, count=3, body=f"hopeless {turn.number}", keys="dead")
        push = client.push(self.topic, self.group, refuse=99, retryLevel=LEVEL_SHORT, maxReconsumeTimes=1)
        push.wait(lambda: len(push.messages) >= 2 * len(sent), 150, "each is refused twice")
        time.sleep(2)
        push.close()
        assert {message_id(one) for one in push.messages} == sent

        def dead() -> list[str]:
            return sorted(row["msgId"] for row in orbitlog_rows(client, "dlq", "list", self.group))

        everything = sorted(self.ledger.acknowledged(self.topic))
        client.eventually(lambda: dead() == everything, f"{len(everything)} dead letters of {self.group}")


class Transactions(State):
    """Half messages without an outcome at the move: asked about by the next broker, committed once or never."""

    def take(self, turn: Turn) -> None:
        if turn.is_first:
            self._make(turn.client, queues=2)
        self._begin(turn, ("answers questions", COMMIT, COMMIT))
        self._consume(turn.client, quiet_seconds=6)

    def leave(self, turn: Turn) -> None:
        producer = self._begin(
            turn,
            ("decided", COMMIT, COMMIT),
            ("committed later", UNKNOWN, COMMIT),
            ("rolled back", ROLLBACK, ROLLBACK),
            ("rolled back later", UNKNOWN, ROLLBACK),
        )
        turn.client.end(producer)  # before the broker asks

    def _begin(self, turn: Turn, *transactions: tuple[str, str, str]) -> str:
        """Start a producer and send; a producer that never sent is not known to the broker and not asked."""
        producer = turn.client.producer("transactionalProducer", group=f"{self.group}_producers")
        for body, first, checked in transactions:
            words = {"verb": "sendInTransaction", "count": 2, "body": f"{body} {turn.number}"}
            sent = turn.client.send(producer, self.topic, first=first, checked=checked, **words)
            if checked == COMMIT:
                self.ledger.acknowledge(self.topic, sent, is_direct=False)
        return producer


class QueueCounts(State):
    """More queues to read than to write, and more of both later."""

    def take(self, turn: Turn) -> None:
        client = turn.client
        if turn.is_first:
            self._make(client, queues=4)
            self._set_queues(client, 4, 2)
        elif turn.number == 1:
            self._set_queues(client, 6, 4)
        self._consume(client)
        self.ledger.check_queues(client, self.topic)

    def leave(self, turn: Turn) -> None:
        sent = turn.client.send(turn.client.producer(), self.topic, count=16, body=f"counted {turn.number}")
        self.ledger.acknowledge(self.topic, sent)
        assert {one["queueId"] for one in sent} == set(range(2 if turn.is_first else 4))

    def _set_queues(self, client: Client, read: int, write: int) -> None:
        done = client.mqadmin(f"updateTopic -b {client.system.broker_address} -t {self.topic} -r {read} -w {write}")
        assert "success" in done, done


class Permissions(State):
    """A topic that is only read and one that is only written."""

    written = ""

    def take(self, turn: Turn) -> None:
        client = turn.client
        if turn.is_first:
            self._make(client, queues=2)
            self._send(client, count=6, body="read only")
            self._permit(client, self.topic, 4)
            self.written = client.topic("PermissionsWritten", queues=2)
            self._permit(client, self.written, 2)
        with pytest.raises(Refused):
            client.send(client.producer(retries=0), self.topic, body="refused")
        consume_remaining(self.ledger, client, self.topic, make_group(client, "PermissionsReader"))
        if turn.is_last:
            self._permit(client, self.written, 6)
            consume_remaining(self.ledger, client, self.written, self.group)
        else:
            deliver_nothing(client, self.written, self.group)

    def leave(self, turn: Turn) -> None:
        self._send(turn.client, topic=self.written, count=4, body=f"write only {turn.number}")

    @staticmethod
    def _permit(client: Client, topic: str, permission: int) -> None:
        words = f"updateTopic -b {client.system.broker_address} -t {topic} -r 2 -w 2 -p {permission}"
        done = client.mqadmin(words)
        assert "success" in done, done

        def is_known() -> bool:
            # Clients obey the route: Java's broker itself takes what they send.
            return f'"perm":{permission}' in client.mqadmin(f"topicRoute -t {topic}").replace(" ", "")

        client.eventually(is_known, f"the route of {topic} has permission {permission}")


class Fifo(State):
    """An ordered topic with a consumer that keeps the order."""

    def take(self, turn: Turn) -> None:
        if turn.is_first:
            self._make(turn.client, queues=3, order=True)
        found = self._consume(turn.client, orderly=True)
        for queue_id in range(3):
            offsets = [one["queueOffset"] for one in found if one["queueId"] == queue_id]
            assert offsets == sorted(offsets), "queue order"
        self.ledger.check_queues(turn.client, self.topic)

    def leave(self, turn: Turn) -> None:
        self._send(turn.client, count=18, body=f"ordered {turn.number}", shards=3)


class LargeMessages(State):
    """Bodies of more than a megabyte, and compressed ones."""

    def take(self, turn: Turn) -> None:
        if turn.is_first:
            self._make(turn.client, queues=2)
        self._consume(turn.client)
        self.ledger.check_queues(turn.client, self.topic)

    def leave(self, turn: Turn) -> None:
        self._send(turn.client, count=2, bytes=1_500_000, seed=turn.number)
        self._send(turn.client, count=1, bytes=1_500_000, seed=turn.number, compressible=True)


class Compressions(State):
    """Bodies that clients compressed by each of the three methods."""

    since_5 = True

    def take(self, turn: Turn) -> None:
        if turn.is_first:
            self._make(turn.client, queues=2)
        found = self._consume(turn.client)
        assert turn.is_first or {one["sysFlag"] >> 8 & 7 for one in found} == set(COMPRESSION_TYPES.values())

    def leave(self, turn: Turn) -> None:
        for name, number in COMPRESSION_TYPES.items():
            producer = turn.client.producer(compressType=name)
            words = {"count": 2, "bytes": 20_000, "compressible": True, "seed": turn.number * 10 + number}
            self.ledger.acknowledge(self.topic, turn.client.send(producer, self.topic, **words))


class Namespaces(State):
    """Topics and groups in a namespace of the client, with retries."""

    space = ""

    def take(self, turn: Turn) -> None:
        client = turn.client
        if turn.is_first:
            self.space = f"NS_{client.mark}"
            # The client puts the namespace in front of the names that it is given.
            client.topic(f"{self.space}%Spaced", queues=2)
            self.topic = f"Spaced_{client.mark}"
            self.group = make_group(client, f"{self.space}%Spaced").removeprefix(f"{self.space}%")
        found = self._consume(client, namespace=self.space, refuse=1, retryLevel=LEVEL_SHORT)
        assert {one["reconsumeTimes"] for one in found if not one["refused"]} <= {1}

    def leave(self, turn: Turn) -> None:
        producer = turn.client.producer(namespace=self.space)
        sent = turn.client.send(producer, self.topic, count=5, body=f"spaced {turn.number}")
        self.ledger.acknowledge(self.topic, sent)


class Broadcasting(State):
    """A broadcasting consumer, whose offsets are with the client: a client of another version begins at the first."""

    _driver = ""

    def take(self, turn: Turn) -> None:
        if self._driver != turn.client.driver.name:
            self._driver = turn.client.driver.name
            self.ledger.restart(self.topic, self.group)
        if turn.is_first:
            self._make(turn.client, queues=2)
            self.group = make_group(turn.client, "Broadcast", " -d true")
            self._send(turn.client, count=4, body="at once")
        self._consume(turn.client, broadcasting=True, instance=f"instance_{self.group}")

    def leave(self, turn: Turn) -> None:
        self._send(turn.client, count=6, body=f"broadcast {turn.number}")


class SwitchedOffGroup(State):
    """A group that may not consume until the last turn."""

    def take(self, turn: Turn) -> None:
        if turn.is_first:
            self._make(turn.client, queues=2)
            self._switch(turn.client, "false")
        if not turn.is_last:
            deliver_nothing(turn.client, self.topic, self.group)
            return
        self._switch(turn.client, "true")
        self._consume(turn.client)

    def leave(self, turn: Turn) -> None:
        self._send(turn.client, count=5, body=f"switched off {turn.number}")

    def _switch(self, client: Client, enabled: str) -> None:
        words = f"updateSubGroup -b {client.system.broker_address} -g {self.group} -s {enabled}"
        done = client.mqadmin(words)
        assert "success" in done, done


class UnknownNames(State):
    """Topics and groups that were not created stay unknown (autoCreateTopicEnable=false and its twin for groups)."""

    def take(self, turn: Turn) -> None:
        client = turn.client
        if turn.is_first:
            self._make(client, queues=1)
            self._send(client, count=3, body="for known groups")
        with pytest.raises(Refused):
            client.send(client.producer(retries=0), client.group("UnknownTopic"), body="refused")
        deliver_nothing(client, self.topic, client.group("UnknownGroup"))
        if turn.is_last:
            self._consume(client)


class StaticTopic(State):
    """A topic of logical queues (topicQueueMapping.json)."""

    since_5 = True

    def take(self, turn: Turn) -> None:
        client = turn.client
        if turn.is_first:
            self.group, self.topic = make_group(client, "StaticTopic"), f"StaticTopic_{client.mark}"
            client.mqadmin(f"updateStaticTopic -c {client.system.cluster_name} -t {self.topic} -qn 4")
            client.eventually(lambda: self.topic in client.mqadmin("topicList"), "the static topic has a route")
        self._consume(client)

    def leave(self, turn: Turn) -> None:
        self._send(turn.client, count=8, body=f"static {turn.number}")


ALL_STATES: tuple[type[State], ...] = (
    Plain,
    Untouched,
    EmptyTopic,
    DeletedTopic,
    Delays,
    Timers,
    Retries,
    DeadLetters,
    Transactions,
    QueueCounts,
    Permissions,
    Fifo,
    LargeMessages,
    Compressions,
    Namespaces,
    Broadcasting,
    SwitchedOffGroup,
    UnknownNames,
    StaticTopic,
)
