"""Message ledger: what a broker acknowledged, what groups consumed and what was deleted, while a store changes hands.

Every delivery is entered once. A message that was never acknowledged, was consumed earlier, belongs to a deleted topic
or has another body fails the entry, so that consumed plus remaining equals acknowledged at every step.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable

from tests.interop.harness.clients import Client, Push
from tests.interop.harness.processes import JsonObject
from tests.interop.harness.queue_reads import messages_of
from tests.interop.harness.raw_pops import committed_offset

# A consumer of 5.5.0 sometimes needs half a minute for its first message, and the machine may be shared.
ARRIVES_SECONDS_MAX = 180.0
# How long a consumer stays open after the last expected message, to show that no other one follows.
QUIET_SECONDS = 2.0
# A consumer commits its offsets one way when it closes.
COMMIT_SECONDS = 0.5


def message_id(message: JsonObject) -> str:
    """Return the id that the producer gave; it stays the same over delays, retries and transactions."""
    properties = message.get("properties") or {}
    return str(message.get("uniqueId") or properties.get("UNIQ_KEY") or message["msgId"])


class Ledger:
    """The messages of some topics and their groups."""

    def __init__(self) -> None:
        self._acknowledged: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._consumed: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._positions: defaultdict[str, dict[tuple[int, int], str]] = defaultdict(dict)
        self._deleted: set[str] = set()
        self._unanswered: Counter[str] = Counter()
        self._expired: set[str] = set()

    def acknowledge(self, topic: str, sent: Iterable[JsonObject], *, is_direct: bool = True) -> set[str]:
        """Enter answers to sends; a direct send is in its topic at the offset of the answer. Return the ids."""
        ids = set()
        for message in sent:
            assert message["status"] == "SEND_OK", message
            identity = message_id(message)
            assert identity not in self._acknowledged[topic]
            self._acknowledged[topic][identity] = message["bodySha256"]
            ids.add(identity)
            if is_direct:
                position = message["queueId"], message["queueOffset"]
                assert position not in self._positions[topic], f"{topic}: offset {position} was given twice"
                self._positions[topic][position] = identity
        return ids

    def acknowledged(self, topic: str) -> set[str]:
        return set(self._acknowledged[topic])

    def delete(self, topic: str) -> None:
        """Enter that a topic was deleted: none of its messages may be delivered from now on."""
        self._deleted |= self._acknowledged.pop(topic, {}).keys()
        self._positions.pop(topic, None)
        for known_topic, group in list(self._consumed):
            if known_topic == topic:
                del self._consumed[known_topic, group]

    def interrupt(self, topic: str) -> None:
        """Enter that one send got no answer because its broker was killed: its message may be stored or not."""
        self._unanswered[topic] += 1

    def expire(self, topic: str, bounds: dict[int, tuple[int, int]]) -> int:
        """Enter that retention deleted the messages below the first offset of each queue; return their number."""
        expired = {place: one for place, one in self._positions[topic].items() if place[1] < bounds[place[0]][0]}
        for place, identity in expired.items():
            del self._positions[topic][place]
            del self._acknowledged[topic][identity]
        self._deleted |= set(expired.values())
        self._expired.add(topic)
        return len(expired)

    def restart(self, topic: str, group: str) -> None:
        """Enter that a group begins at the first message, because its offsets stayed elsewhere."""
        self._consumed.pop((topic, group), None)

    def remaining(self, topic: str, group: str) -> set[str]:
        """Return the acknowledged messages that the group did not consume."""
        return set(self._acknowledged[topic]) - self._consumed[topic, group].keys()

    def consume(
        self, topic: str, group: str, messages: Iterable[JsonObject], *, is_at_least_once: bool = False
    ) -> set[str]:
        """Enter deliveries to a group; return the ids. After a kill a message may be delivered more than once."""
        ids = set()
        for message in messages:
            identity = message_id(message)
            place = f"{topic} to {group}: {message.get('body')!r} {identity}"
            assert identity not in self._deleted, f"{place} is of a deleted topic"
            if identity not in self._acknowledged[topic] and self._unanswered[topic]:
                self._unanswered[topic] -= 1
                self._acknowledged[topic][identity] = message["bodySha256"]
                self._positions[topic][message["queueId"], message["queueOffset"]] = identity
            assert identity in self._acknowledged[topic], f"{place} was not acknowledged"
            assert message["bodySha256"] == self._acknowledged[topic][identity], f"{place} has another body"
            self._consumed[topic, group][identity] += 1
            assert is_at_least_once or self._consumed[topic, group][identity] == 1, f"{place} was consumed already"
            ids.add(identity)
        return ids

    def check_queues(self, client: Client, topic: str) -> None:
        """Assert that the queues hold exactly the direct messages, each at its offset, without a gap."""
        positions = self._positions[topic]
        for queue_id in {queue_id for queue_id, _ in positions}:
            offsets = sorted(offset for queue, offset in positions if queue == queue_id)
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), (topic, queue_id)
            assert offsets[0] == 0 or topic in self._expired, (topic, queue_id)
        # Java makes messages readable only when it has dispatched them, with a transient pool 200 ms after the send.
        client.eventually(
            lambda: len(messages_of(client, topic)) >= len(positions), f"{len(positions)} messages in {topic}"
        )
        stored = {(one["queueId"], one["queueOffset"]): message_id(one) for one in messages_of(client, topic)}
        assert stored == positions, topic


def consume_remaining(
    ledger: Ledger,
    client: Client,
    topic: str,
    group: str,
    *,
    wanted: set[str] | None = None,
    is_at_least_once: bool = False,
    quiet_seconds: float = QUIET_SECONDS,
    awaits_commit: bool = False,
    **words: object,
) -> list[JsonObject]:
    """Consume the rest of the ledger (or `wanted`) by a push consumer: exactly that must be delivered.

    A consumer commits one way when it closes, and a broker under load may lose that. With `awaits_commit` the consumer
    stays open until the broker has its offsets: for a broker that is killed afterwards.
    """
    wanted = ledger.remaining(topic, group) if wanted is None else wanted
    known = ledger.acknowledged(topic)
    push = client.push(topic, group, **words)
    try:
        _await(push, wanted)
        time.sleep(quiet_seconds)
        if awaits_commit:
            _await_commit(client, push, topic, group)
    finally:
        push.close()
    time.sleep(COMMIT_SECONDS)
    accepted = [one for one in push.messages if not one["refused"]]
    delivered = ledger.consume(topic, group, accepted, is_at_least_once=is_at_least_once)
    if is_at_least_once:
        assert delivered >= wanted, f"{topic} to {group}"
    else:
        # A send without an answer may have been stored; the ledger takes no more of these than were interrupted.
        assert delivered & known == wanted, f"{topic} to {group}"
    return push.messages


def _await(push: Push, wanted: set[str]) -> None:
    def missing() -> set[str]:
        return wanted - {message_id(one) for one in push.messages if not one["refused"]}

    push.wait(lambda: not missing(), ARRIVES_SECONDS_MAX, f"{len(wanted)} messages are delivered")


def _await_commit(client: Client, push: Push, topic: str, group: str) -> None:
    ends: dict[int, int] = {}
    for one in push.messages:
        ends[one["queueId"]] = max(ends.get(one["queueId"], 0), one["queueOffset"] + 1)
    address = client.system.broker_address
    client.eventually(
        lambda: all(committed_offset(address, topic, group, queue_id) >= end for queue_id, end in ends.items()),
        f"offsets of {group} in {topic} are committed",
    )


def deliver_nothing(client: Client, topic: str, group: str, seconds: float = 5.0, **words: object) -> None:
    """Assert that a consumer gets no message for a while."""
    push = client.push(topic, group, **words)
    try:
        time.sleep(seconds)
    finally:
        push.close()
    assert push.messages == []
