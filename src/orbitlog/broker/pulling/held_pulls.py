"""Held pulls: pulls that wait for the next message of their queue. Mirrors `PullRequestHoldService`.

A pure table: dispatch calls `take_arrived`, a timer `take_expired`, and both answer the pulls returned. A message for
a queue without held pulls costs one dictionary lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from orbitlog.broker.pulling.held_requests import HeldIndex, HeldOwner, HeldRequests
from orbitlog.formats.java import INT_MAX
from orbitlog.settings.limits import HELD_PER_QUEUE
from orbitlog.store.dispatch.arrival import Arrival

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class HeldPull(Generic[T]):
    """One held pull; `request` is the caller's data for answering it."""

    topic: str
    queue_id: int
    queue_offset: int
    until_ms: int
    tags_filter: Callable[[int], bool] | None
    owner: HeldOwner
    request: T


class HeldPulls(Generic[T]):
    """Held pulls by queue, connection and timeout. Every pull that is taken is released in `counts`."""

    def __init__(self, counts: HeldRequests, *, per_queue_max: int = INT_MAX) -> None:
        self._held: dict[tuple[str, int], dict[HeldPull[T], None]] = {}
        self._index: HeldIndex[HeldPull[T]] = HeldIndex()
        self._counts = counts
        self._per_queue_max = per_queue_max
        self._unchecked: list[tuple[str, int]] = []

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, pull: HeldPull[T]) -> bool:
        """Hold a pull; return False if it must be answered now, because too many are held."""
        key = pull.topic, pull.queue_id
        waiting = self._held.get(key)
        if waiting is not None and len(waiting) >= self._per_queue_max:
            self._counts.limits.reach(HELD_PER_QUEUE)
            return False
        if not self._counts.admit(pull.owner):
            return False
        if not waiting:  # none before, or `admit` displaced the last one
            waiting = self._held[key] = {}
        waiting[pull] = None
        self._index.add(pull, pull.owner, pull.until_ms)
        return True

    def take_arrived(self, arrivals: Iterable[Arrival]) -> list[HeldPull[T]]:
        """Remove and return the pulls that one of the new messages matches."""
        held = self._held
        if not held:
            return []
        taken: list[HeldPull[T]] = []
        for arrival in arrivals:
            waiting = held.get((arrival.topic, arrival.queue_id))
            if waiting is None:
                continue
            woken: list[HeldPull[T]] = []
            _, _, queue_offset, tags_code, _ = arrival
            for pull in waiting:
                # A queue that starts over at 0 wakes pulls with an offset past its end.
                is_new = queue_offset >= pull.queue_offset or queue_offset == 0
                tags_filter = pull.tags_filter
                if is_new and (tags_filter is None or tags_filter(tags_code)):
                    woken.append(pull)
            taken += self._take(woken)
        return taken

    def take_expired(self, now_ms: int) -> list[HeldPull[T]]:
        """Remove and return the pulls whose timeout has passed."""
        return self._take(self._index.expired(now_ms))

    def take_owner(self, owner: object) -> list[HeldPull[T]]:
        """Remove and return the pulls of one connection."""
        return self._take(self._index.of_owner(owner))

    def take_newest(self, owner: object, count: int) -> list[HeldPull[T]]:
        """Remove and return up to `count` pulls of one connection, the newest first."""
        return self._take(self._index.newest(owner, count))

    def take_queue(self, topic: str, queue_id: int) -> list[HeldPull[T]]:
        """Remove and return the pulls of one queue."""
        return self._take(list(self._held.get((topic, queue_id), ())))

    def take_all(self) -> list[HeldPull[T]]:
        return self._take([pull for waiting in self._held.values() for pull in waiting])

    def next_queues(self, count: int) -> list[tuple[str, int]]:
        """Return up to `count` queues with held pulls; all of them in turn, over many calls."""
        if not self._unchecked:
            self._unchecked = list(self._held)
        taken, self._unchecked = self._unchecked[-count:], self._unchecked[:-count]
        return taken

    def take_overdue(self, topic: str, queue_id: int, max_offset: int) -> list[HeldPull[T]]:
        """Remove and return the pulls of a queue whose message exists, in case a wake-up was missed."""
        waiting = self._held.get((topic, queue_id), ())
        return self._take([pull for pull in waiting if pull.queue_offset < max_offset])

    def _take(self, taken: list[HeldPull[T]]) -> list[HeldPull[T]]:
        held, index, counts = self._held, self._index, self._counts
        for pull in taken:
            key = pull.topic, pull.queue_id
            waiting = held[key]
            del waiting[pull]
            if not waiting:
                del held[key]
            index.remove(pull, pull.owner, pull.until_ms)
            counts.release(pull.owner)
        return taken
