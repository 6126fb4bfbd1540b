"""Held pulls: pulls that wait for the next message of their queue. Mirrors `PullRequestHoldService`.

A pure table: dispatch calls `take_arrived`, a timer `take_expired`, and both answer the pulls returned. A message for
a queue without held pulls costs one dictionary lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

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
    owner: object
    request: T


class HeldPulls(Generic[T]):
    """Held pulls by queue."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], list[HeldPull[T]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, pull: HeldPull[T]) -> None:
        self._held.setdefault((pull.topic, pull.queue_id), []).append(pull)

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
            kept: list[HeldPull[T]] = []
            _, _, queue_offset, tags_code, _ = arrival
            for pull in waiting:
                # A queue that starts over at 0 wakes pulls with an offset past its end.
                is_new = queue_offset >= pull.queue_offset or queue_offset == 0
                tags_filter = pull.tags_filter
                is_woken = is_new and (tags_filter is None or tags_filter(tags_code))
                (taken if is_woken else kept).append(pull)
            self._keep((arrival.topic, arrival.queue_id), kept)
        return taken

    def take_expired(self, now_ms: int) -> list[HeldPull[T]]:
        """Remove and return the pulls whose timeout has passed."""
        return self._take(lambda pull: pull.until_ms <= now_ms)

    def take_owner(self, owner: object) -> list[HeldPull[T]]:
        """Remove and return the pulls of one connection."""
        return self._take(lambda pull: pull.owner is owner)

    def take_queue(self, topic: str, queue_id: int) -> list[HeldPull[T]]:
        """Remove and return the pulls of one queue."""
        return self._held.pop((topic, queue_id), [])

    def take_all(self) -> list[HeldPull[T]]:
        return self._take(lambda pull: True)

    def queues(self) -> list[tuple[str, int]]:
        """Return the queues with held pulls."""
        return list(self._held)

    def take_overdue(self, topic: str, queue_id: int, max_offset: int) -> list[HeldPull[T]]:
        """Remove and return the pulls of a queue whose message exists, in case a wake-up was missed."""
        taken: list[HeldPull[T]] = []
        kept: list[HeldPull[T]] = []
        for pull in self._held.get((topic, queue_id), ()):
            (taken if pull.queue_offset < max_offset else kept).append(pull)
        if taken:
            self._keep((topic, queue_id), kept)
        return taken

    def _take(self, is_wanted: Callable[[HeldPull[T]], bool]) -> list[HeldPull[T]]:
        taken: list[HeldPull[T]] = []
        for key, waiting in list(self._held.items()):
            wanted = [pull for pull in waiting if is_wanted(pull)]
            if wanted:
                taken += wanted
                gone = set(wanted)
                self._keep(key, [pull for pull in waiting if pull not in gone])
        return taken

    def _keep(self, key: tuple[str, int], waiting: list[HeldPull[T]]) -> None:
        if waiting:
            self._held[key] = waiting
        else:
            del self._held[key]
