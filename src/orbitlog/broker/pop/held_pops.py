"""Held POP requests: long polling of pops and notifications. Mirrors `PopLongPollingService`.

Each request waits for its topic and the group's retry topics of it. A pure table: `wake` and `tick` call the `attempt`
of each request; of requests with an equal wish, only the first is tried if it finds nothing.

New messages wake requests. Time alone makes messages visible only to ordered pops, after an unacknowledged batch. So
`tick` tries these every time, and the others rarely, in case a wake-up was missed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from orbitlog.broker.pulling.held_requests import HeldIndex, HeldOwner, HeldRequests
from orbitlog.formats.java import INT_MAX
from orbitlog.remoting.connection import Connection
from orbitlog.settings.limits import HELD_PER_QUEUE
from orbitlog.wire.command import Command

HELD_MAX = 100_000
HELD_ALIKE_MAX = 1_024
_SWEEP_MS = 5_000


@dataclass(slots=True, eq=False)
class HeldPop:
    """One held request; requests for the same messages have an equal `wish`."""

    topics: tuple[str, ...]
    group: str
    queue_id: int
    wish: Hashable
    until_ms: int
    connection: Connection
    request: Command
    attempt: Callable[[], Command | None]
    give_up: Callable[[], Command]
    ordered: bool = False
    since_ms: int = 0


def _ignore(_: HeldPop, __: Command) -> None:
    pass


class HeldPops:
    """Held requests by topic, in order of arrival."""

    def __init__(
        self,
        counts: HeldRequests,
        *,
        per_topic_max: int = INT_MAX,
        answered: Callable[[HeldPop, Command], None] = _ignore,
    ) -> None:
        """Hold at most `per_topic_max` requests of a topic; call `answered` after each response."""
        self._counts = counts
        self._answered = answered
        self._per_topic_max = per_topic_max
        self._index: HeldIndex[HeldPop] = HeldIndex()
        self._held: dict[HeldPop, None] = {}
        self._by_topic: dict[str, dict[HeldPop, None]] = {}
        self._alike: dict[Hashable, int] = {}
        self._ordered: dict[HeldPop, None] = {}
        self._next_sweep_ms = 0

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, held: HeldPop) -> bool:
        """Hold a request; return False if too many are held."""
        if len(self._held) >= HELD_MAX or self._alike.get(held.wish, 0) >= HELD_ALIKE_MAX:
            return False
        if len(self._by_topic.get(held.topics[0], ())) >= self._per_topic_max:
            self._counts.limits.reach(HELD_PER_QUEUE)
            return False
        if not self._counts.admit(held.connection):
            return False
        self._held[held] = None
        self._index.add(held, held.connection, held.until_ms)
        if held.ordered:
            self._ordered[held] = None
        self._alike[held.wish] = self._alike.get(held.wish, 0) + 1
        for topic in held.topics:
            self._by_topic.setdefault(topic, {})[held] = None
        return True

    def wake(self, topics: Iterable[str]) -> None:
        """Answer the requests that messages of these topics match."""
        if not self._held:
            return
        for topic in topics:
            waiting = self._by_topic.get(topic)
            if waiting:
                self._attempt(list(waiting))

    def attempt_again(self, held: HeldPop) -> None:
        """Try one request again, if it is still held."""
        if held in self._held:
            self._attempt([held])

    def tick(self, now_ms: int) -> None:
        """Answer requests for which a message became visible, and those whose polling timeout has passed."""
        if not self._held:
            return
        is_sweep = not now_ms < self._next_sweep_ms <= now_ms + _SWEEP_MS
        if is_sweep:
            self._next_sweep_ms = now_ms + _SWEEP_MS
        self._attempt(list(self._held if is_sweep else self._ordered))
        for held in self._index.expired(now_ms):
            self._answer(held, held.give_up())

    def answer_all(self, connection: Connection | None = None) -> None:
        """Answer all requests, or those of one connection, with a timeout."""
        for held in list(self._held) if connection is None else self._index.of_owner(connection):
            self._answer(held, held.give_up())

    def displace(self, connection: HeldOwner, count: int) -> int:
        """Answer up to `count` of a connection's newest requests with a timeout; return how many there were."""
        newest = self._index.newest(connection, count)
        for held in newest:
            self._answer(held, held.give_up())
        return len(newest)

    def drop(self, connection: Connection) -> None:
        """Drop the requests of a closed connection."""
        for held in self._index.of_owner(connection):
            self._remove(held)

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Return the number of requests that wait for a queue."""
        waiting = self._by_topic.get(topic, {})
        return sum(held.group == group and held.queue_id == queue_id for held in waiting)

    def _attempt(self, waiting: list[HeldPop]) -> None:
        in_vain: set[Hashable] = set()
        for held in waiting:
            if held.wish in in_vain or held not in self._held:
                continue
            answer = held.attempt()
            if answer is None:
                in_vain.add(held.wish)
            else:
                self._answer(held, answer)

    def _answer(self, held: HeldPop, answer: Command) -> None:
        self._remove(held)
        held.connection.respond(held.request, answer)
        self._answered(held, answer)

    def _remove(self, held: HeldPop) -> None:
        del self._held[held]
        self._index.remove(held, held.connection, held.until_ms)
        self._counts.release(held.connection)
        self._ordered.pop(held, None)
        self._alike[held.wish] -= 1
        if not self._alike[held.wish]:
            del self._alike[held.wish]
        for topic in held.topics:
            waiting = self._by_topic[topic]
            del waiting[held]
            if not waiting:
                del self._by_topic[topic]
