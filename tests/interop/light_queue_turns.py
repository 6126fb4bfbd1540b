"""Turns of brokers with light queues (`enableLmq`): what was sent and consumed, whichever broker serves the store."""

from __future__ import annotations

import hashlib
import time

from tests.interop.harness.clients import Client

LMQ = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "2000",
    "transactionCheckMax": "1",
}
SETTLE_SECONDS = 6  # Java's broker writes offsets every five seconds
LIGHT, OTHER, LIGHT_GROUP = "%LMQ%a", "%LMQ%b", "%LMQ%readers"


def digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


class LightQueueTurns:
    """What was sent and consumed so far, whichever broker served."""

    def __init__(self) -> None:
        self.topic = ""
        self.pending: list[str] = []
        self.light: list[str] = []
        self.light_committed = 0
        self.other: list[str] = []

    def turn(self, client: Client, mark: str) -> None:
        self.topic = self.topic or client.topic("Light", queues=1)
        self._consume(client, mark)
        self._read_light_queues(client)
        self._send(client, mark)
        time.sleep(SETTLE_SECONDS)

    def _consume(self, client: Client, mark: str) -> None:
        """Let an ordinary and an ordered group consume: each gets what it has not had, and nothing else."""
        expected, self.pending = self.pending, []
        pushes = [client.push(self.topic, "light_plain"), client.push(self.topic, "light_order", orderly=True)]
        for push in pushes:
            push.wait(lambda push=push: len(push.messages) >= len(expected), 60, f"{len(expected)} at {mark}")
        time.sleep(3)
        plain, ordered = ([one["body"] for one in push.messages] for push in pushes)
        assert (sorted(plain), ordered) == (sorted(expected), expected), mark
        for push in pushes:
            push.close()

    def light_bodies(self, client: Client) -> list[str]:
        """Return the digests of the messages that the broker serves from one light queue."""
        reader = client.pull_consumer(LIGHT_GROUP)
        at = {"name": reader, "broker": client.system.broker_name, "queue": 0}
        self._pulled(client, at, self.topic, 0)  # the client learns the address of the broker
        found = self._pulled(client, at, LIGHT, 0)
        client.end(reader)
        return found

    def _read_light_queues(self, client: Client) -> None:
        """Read light queues, and commit half of what is new as a group that has one offset a topic."""
        reader = client.pull_consumer(LIGHT_GROUP)
        at = {"name": reader, "broker": client.system.broker_name, "queue": 0}
        self._pulled(client, at, self.topic, 0)  # the client learns the address of the broker
        assert self._pulled(client, at, LIGHT, 0) == self.light
        assert self._pulled(client, at, OTHER, 0) == self.other
        found = client.call("pullCommitted", topic=LIGHT, **at)["position"]
        assert found == self.light_committed or (self.light_committed == 0 and found <= 0)
        assert self._pulled(client, at, LIGHT, self.light_committed) == self.light[self.light_committed :]
        if self.light:
            self.light_committed = (self.light_committed + len(self.light) + 1) // 2
            client.call("pullCommit", topic=LIGHT, position=self.light_committed, **at)
        client.end(reader)

    def _pulled(self, client: Client, at: dict[str, object], topic: str, offset: int) -> list[str]:
        answer = client.call("pull", topic=topic, position=offset, **at)
        messages = answer["messages"]
        assert isinstance(messages, list)
        return [one["bodySha256"] for one in messages]

    def _send(self, client: Client, mark: str) -> None:
        producer = client.producer()
        for number in range(3):
            body = f"{mark} {number}"
            client.send(producer, self.topic, body=body)
            self.pending.append(body)
        for number in range(2):
            both, one = f"{mark} both {number}", f"{mark} one {number}"
            client.send(producer, self.topic, body=both, **{"system.INNER_MULTI_DISPATCH": f"{LIGHT},{OTHER}"})
            client.send(producer, self.topic, body=one, **{"system.INNER_MULTI_DISPATCH": LIGHT})
            self.pending += [both, one]
            self.light += [digest(both), digest(one)]
            self.other.append(digest(both))
