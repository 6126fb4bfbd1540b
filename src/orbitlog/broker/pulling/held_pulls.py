"""Pulls that found nothing and wait for the next message of their queue. Mirrors `PullRequestHoldService`.

A pure table: whoever learns of a message asks `take_arrived`, a clock asks `take_expired`, and both answer what they
are given. The one who asks for a queue that nobody waits for pays a look into a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from orbitlog.store.dispatch.arrival import Arrival

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class HeldPull(Generic[T]):
    """One that waits: `request` is whatever is needed to answer it."""

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
        """Remove and return those that one of the new messages is for."""
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
                # A message that fills a queue again from 0 wakes whoever asked for more than it has.
                is_new = queue_offset >= pull.queue_offset or queue_offset == 0
                tags_filter = pull.tags_filter
                is_woken = is_new and (tags_filter is None or tags_filter(tags_code))
                (taken if is_woken else kept).append(pull)
            self._keep((arrival.topic, arrival.queue_id), kept)
        return taken

    def take_expired(self, now_ms: int) -> list[HeldPull[T]]:
        """Remove and return those that have waited long enough."""
        return self._take(lambda pull: pull.until_ms <= now_ms)

    def take_owner(self, owner: object) -> list[HeldPull[T]]:
        """Remove and return what one connection asked for."""
        return self._take(lambda pull: pull.owner is owner)

    def take_queue(self, topic: str, queue_id: int) -> list[HeldPull[T]]:
        """Remove and return those that wait for one queue."""
        return self._held.pop((topic, queue_id), [])

    def take_all(self) -> list[HeldPull[T]]:
        return self._take(lambda pull: True)

    def queues(self) -> list[tuple[str, int]]:
        """The queues that somebody waits for."""
        return list(self._held)

    def take_behind(self, topic: str, queue_id: int, max_offset: int) -> list[HeldPull[T]]:
        """Remove and return those of a queue whose message is there: the look now and then that misses nothing."""
        waiting = self._held.get((topic, queue_id), [])
        taken = [pull for pull in waiting if pull.queue_offset < max_offset]
        if taken:
            self._keep((topic, queue_id), [pull for pull in waiting if pull not in taken])
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
