"""Popped queues: messages in flight to POP consumers, invisible to others until their invisibility timeout.

A pure table on top of the committed offsets; callers pass the time. A group's committed offset stops at the first
message that is neither acknowledged nor in its retry topic, so the offsets alone suffice to lose nothing. This table
adds the messages past that offset that are acknowledged, and the timeouts of those that must stay invisible.

If an operator, a pulling consumer or a Java broker moves the committed offset, that offset wins: the queue is popped
from there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitlog.broker.tables.committed_offsets import CommittedOffsets
from orbitlog.formats.tables.pop_progress import PoppedQueueProgress, PopProgress

# Maximum of messages in flight per queue: a consumer that never acknowledges must not exhaust the memory.
IN_FLIGHT_MAX = 20_000


class PopKey(NamedTuple):
    """One queue of one group."""

    topic: str
    group: str
    queue_id: int


class Flight(NamedTuple):
    """One message in flight."""

    pop_timestamp_ms: int
    visible_ms: int
    start_queue_offset: int = 0  # first queue offset of its pop, as in its receipt and in a Java checkpoint


class Expired(NamedTuple):
    """A message whose invisibility timeout has passed."""

    key: PopKey
    queue_offset: int
    flight: Flight


@dataclass(slots=True)
class _PoppedQueue:
    committed: int
    next_to_pop: int
    flights: dict[int, Flight] = field(default_factory=dict)
    acknowledged_to: int = 0  # past the last acknowledged message

    @property
    def has_gap(self) -> bool:
        """Return whether a message was acknowledged after one that is still in flight."""
        return bool(self.flights) and self.acknowledged_to > self.committed


class PoppedQueues:
    """Messages in flight, by queue and group."""

    def __init__(self, offsets: CommittedOffsets, saved: PopProgress | None = None) -> None:
        self._offsets = offsets
        self._queues: dict[PopKey, _PoppedQueue] = {}
        # A heap by the time of becoming visible. Entries of acknowledged messages stay and are skipped when due:
        # removing one from the middle of a heap takes linear time.
        self._visible: list[tuple[int, PopKey, int]] = []
        self.is_changed = False
        for progress in saved.queues if saved is not None else ():
            self._load(progress)

    def _load(self, saved: PoppedQueueProgress) -> None:
        key = PopKey(saved.topic, saved.group, saved.queue_id)
        queue = self._queues[key] = _PoppedQueue(saved.committed, saved.next_to_pop)
        # Lists of different lengths are damage: the messages that the shorter one lacks are delivered a second time.
        starts = saved.start_offsets or saved.queue_offsets
        for out in zip(saved.queue_offsets, saved.pop_times_ms, saved.visible_times_ms, starts, strict=False):
            self._put_out(queue, key, out[0], Flight(*out[1:]))
        if any(
            len(column) != len(saved.queue_offsets) for column in (saved.pop_times_ms, saved.visible_times_ms, starts)
        ):
            del self._queues[key]

    @property
    def may_expire(self) -> bool:
        """Return whether a message is in flight that may expire."""
        return bool(self._visible)

    def next_to_pop(self, key: PopKey) -> int | None:
        """Return the next offset to pop; None if the group has no offset in this queue."""
        queue = self._current(key)
        return self._offsets.find(*key) if queue is None else queue.next_to_pop

    def _current(self, key: PopKey) -> _PoppedQueue | None:
        """Return the state of a queue, unless the group's offset was moved by another party meanwhile."""
        queue = self._queues.get(key)
        if queue is not None and self._offsets.find(*key) != queue.committed:
            del self._queues[key]
            self.is_changed = True
            return None
        return queue

    def start(self, key: PopKey, queue_offset: int) -> None:
        """Set a group's offset in a queue, with no message in flight."""
        self._queues[key] = _PoppedQueue(queue_offset, queue_offset)
        self._offsets.commit(*key, queue_offset)
        self.is_changed = True

    def forget_topics(self, topics: Collection[str]) -> None:
        for key in [key for key in self._queues if key.topic in topics]:
            del self._queues[key]
            self.is_changed = True

    def room(self, key: PopKey) -> int:
        """Return how many more messages may be in flight."""
        queue = self._current(key)
        return IN_FLIGHT_MAX - (len(queue.flights) if queue is not None else 0)

    def pop(self, key: PopKey, queue_offsets: Iterable[int], next_to_pop: int, flight: Flight) -> None:
        """Record messages as in flight; those between them were filtered out."""
        queue = self._current(key)
        if queue is None:
            committed = self._offsets.find(*key)
            assert committed is not None
            queue = self._queues[key] = _PoppedQueue(committed, committed)
        for queue_offset in queue_offsets:
            self._put_out(queue, key, queue_offset, flight)
        queue.next_to_pop = next_to_pop
        self._commit(key, queue)

    def _put_out(self, queue: _PoppedQueue, key: PopKey, queue_offset: int, flight: Flight) -> None:
        queue.flights[queue_offset] = flight
        heapq.heappush(self._visible, (flight.visible_ms, key, queue_offset))

    def acknowledge(self, key: PopKey, queue_offset: int, pop_timestamp_ms: int) -> bool:
        """Acknowledge a message; return False if the receipt is invalid or expired."""
        queue = self._queue_in_flight(key, queue_offset, pop_timestamp_ms)
        if queue is None:
            return False
        del queue.flights[queue_offset]
        queue.acknowledged_to = max(queue.acknowledged_to, queue_offset + 1)
        self._commit(key, queue)
        return True

    def keep_longer(self, key: PopKey, queue_offset: int, pop_timestamp_ms: int, flight: Flight) -> bool:
        """Set a new invisibility timeout under a new receipt; return False as `acknowledge` does."""
        queue = self._queue_in_flight(key, queue_offset, pop_timestamp_ms)
        if queue is None:
            return False
        self._put_out(queue, key, queue_offset, flight)
        self.is_changed = True
        return True

    def _queue_in_flight(self, key: PopKey, queue_offset: int, pop_timestamp_ms: int) -> _PoppedQueue | None:
        """Return the queue of a message that is in flight under this receipt; None if the receipt no longer holds."""
        queue = self._current(key)
        flight = queue.flights.get(queue_offset) if queue is not None else None
        return queue if flight is not None and flight.pop_timestamp_ms == pop_timestamp_ms else None

    def expired(self, now_ms: int, limit: int) -> list[Expired]:
        """Return expired messages; each is returned until it is acknowledged or postponed."""
        expired: list[Expired] = []
        again: list[tuple[int, PopKey, int]] = []
        while self._visible and self._visible[0][0] <= now_ms and len(expired) < limit:
            entry = heapq.heappop(self._visible)
            visible_ms, key, queue_offset = entry
            queue = self._current(key)
            flight = queue.flights.get(queue_offset) if queue is not None else None
            if flight is not None and flight.visible_ms == visible_ms:
                expired.append(Expired(key, queue_offset, flight))
                again.append(entry)
        for entry in again:
            heapq.heappush(self._visible, entry)
        return expired

    def hand_over(self, append: Callable[[PopKey, Flight, list[int]], bool], *, only_with_gap: bool = False) -> int:
        """Pass every message in flight to `append`, one call per pop, and commit the offsets past them.

        A queue for which `append` returns False keeps its messages and its offset. With `only_with_gap`, pass only
        queues with an acknowledged message after one in flight. Return the number of messages handed over.
        """
        count = 0
        for key in list(self._queues):
            queue = self._current(key)
            if queue is None or not queue.flights or (only_with_gap and not queue.has_gap):
                continue
            by_pop: dict[Flight, list[int]] = {}
            for queue_offset, flight in queue.flights.items():
                by_pop.setdefault(flight, []).append(queue_offset)
            if all(append(key, flight, queue_offsets) for flight, queue_offsets in by_pop.items()):
                count += len(queue.flights)
                queue.flights.clear()
                self._commit(key, queue)
        return count

    def in_flight(self, key: PopKey) -> int:
        queue = self._current(key)
        return 0 if queue is None else len(queue.flights)

    def _commit(self, key: PopKey, queue: _PoppedQueue) -> None:
        """Commit the offset of the group's first message that is not done."""
        self.is_changed = True
        first = queue.committed
        if not queue.flights:
            first = queue.next_to_pop
        else:
            while first < queue.next_to_pop and first not in queue.flights:
                first += 1
        if first != queue.committed and self._offsets.commit(*key, first):
            queue.committed = first

    def snapshot(self) -> PopProgress:
        """Return the table to save; it belongs to the committed offsets as they are now."""
        self.is_changed = False
        return PopProgress(
            tuple(
                _saved(key, queue)
                for key, queue in list(self._queues.items())
                if queue.flights and self._current(key) is not None
            )
        )


def _saved(key: PopKey, queue: _PoppedQueue) -> PoppedQueueProgress:
    flights = queue.flights.values()
    return PoppedQueueProgress(
        key.topic,
        key.group,
        key.queue_id,
        queue.committed,
        queue.next_to_pop,
        tuple(queue.flights),
        tuple(flight.pop_timestamp_ms for flight in flights),
        tuple(flight.visible_ms for flight in flights),
        tuple(flight.start_queue_offset for flight in flights),
    )
