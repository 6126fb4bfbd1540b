"""Requests of POP that found nothing and wait for a message of their topic. Mirrors `PopLongPollingService`.

Each waits for two topics, its own and the retry topic of its group for it. A pure table: `wake` and `tick` ask each
request's own `attempt` for an answer; of those that ask for the same, the first that finds nothing speaks for all.

A message that comes wakes them. Time alone gives something to those who pop in order: a batch that was not
acknowledged. So only these are asked at every tick, the others now and then, should a word have been missed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from orbitlog.remoting.connection import Connection
from orbitlog.wire.command import Command

HELD_MAX = 100_000
HELD_ALIKE_MAX = 1_024
_SWEEP_MS = 5_000


@dataclass(slots=True, eq=False)
class HeldPop:
    """One that waits; whoever asks for the same as another has an equal `wish`."""

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


class HeldPops:
    """Those that wait, by topic, in the order in which they came."""

    def __init__(self) -> None:
        self._held: dict[HeldPop, None] = {}
        self._by_topic: dict[str, dict[HeldPop, None]] = {}
        self._alike: dict[Hashable, int] = {}
        self._ordered: dict[HeldPop, None] = {}
        self._next_sweep_ms = 0

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, held: HeldPop) -> bool:
        """Let one wait; False if too many do."""
        if len(self._held) >= HELD_MAX or self._alike.get(held.wish, 0) >= HELD_ALIKE_MAX:
            return False
        self._held[held] = None
        if held.ordered:
            self._ordered[held] = None
        self._alike[held.wish] = self._alike.get(held.wish, 0) + 1
        for topic in held.topics:
            self._by_topic.setdefault(topic, {})[held] = None
        return True

    def wake(self, topics: Iterable[str]) -> None:
        """Answer those that messages of these topics are for."""
        if not self._held:
            return
        for topic in topics:
            waiting = self._by_topic.get(topic)
            if waiting:
                self._attempt(list(waiting))

    def tick(self, now_ms: int) -> None:
        """Answer those that something has become visible for, and those that have waited long enough."""
        if not self._held:
            return
        is_sweep = not now_ms < self._next_sweep_ms <= now_ms + _SWEEP_MS
        if is_sweep:
            self._next_sweep_ms = now_ms + _SWEEP_MS
        self._attempt(list(self._held if is_sweep else self._ordered))
        for held in [held for held in self._held if held.until_ms <= now_ms]:
            self._answer(held, held.give_up())

    def answer_all(self, connection: Connection | None = None) -> None:
        """Give up for everybody, or for everybody on one connection."""
        for held in [held for held in self._held if connection is None or held.connection is connection]:
            self._answer(held, held.give_up())

    def drop(self, connection: Connection) -> None:
        """Forget what a connection that is gone waited for."""
        for held in [held for held in self._held if held.connection is connection]:
            self._remove(held)

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Return how many wait for a queue."""
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

    def _remove(self, held: HeldPop) -> None:
        del self._held[held]
        self._ordered.pop(held, None)
        self._alike[held.wish] -= 1
        if not self._alike[held.wish]:
            del self._alike[held.wish]
        for topic in held.topics:
            waiting = self._by_topic[topic]
            del waiting[held]
            if not waiting:
                del self._by_topic[topic]
