"""Messages that POP consumers were given and have not acknowledged: invisible to others until a moment.

A pure table over the committed offsets; the time is given. What a group has committed stops before the first message
that is neither acknowledged nor put into its retry topic, so the offsets alone are enough to lose nothing. This table
only knows more: what beyond that offset is done, and what must stay invisible for how long.

Whoever moves a committed offset otherwise (an operator, a consumer that pulls, a Java broker) is right: the queue is
popped anew from there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitlog.broker.tables.committed_offsets import CommittedOffsets
from orbitlog.formats.tables.pop_progress import PoppedQueueProgress, PopProgress

# So many messages of one queue may be out: a consumer that never acknowledges must not fill the memory.
IN_FLIGHT_MAX = 20_000


class PopKey(NamedTuple):
    """One queue of one group."""

    topic: str
    group: str
    queue_id: int


class Flight(NamedTuple):
    """One message that is out."""

    pop_timestamp_ms: int
    visible_ms: int
    start_queue_offset: int = 0  # where its pop began in the queue, as its receipt and a Java check point have it


class Expired(NamedTuple):
    """A message that nobody has acknowledged in time."""

    key: PopKey
    queue_offset: int
    flight: Flight


@dataclass(slots=True)
class _PoppedQueue:
    committed: int
    next_to_pop: int
    flights: dict[int, Flight] = field(default_factory=dict)


class PoppedQueues:
    """What is out, by queue and group."""

    def __init__(self, offsets: CommittedOffsets, saved: PopProgress | None = None) -> None:
        self._offsets = offsets
        self._queues: dict[PopKey, _PoppedQueue] = {}
        # By when it becomes visible; what was acknowledged meanwhile is passed over when its turn comes.
        self._visible: list[tuple[int, PopKey, int]] = []
        self.is_changed = False
        for each in saved.queues if saved is not None else ():
            self._load(each)

    def _load(self, saved: PoppedQueueProgress) -> None:
        key = PopKey(saved.topic, saved.group, saved.queue_id)
        queue = self._queues[key] = _PoppedQueue(saved.committed, saved.next_to_pop)
        # Lists of different lengths are damage: what they do not say is given out again.
        starts = saved.start_offsets or saved.queue_offsets
        for out in zip(saved.queue_offsets, saved.pop_times_ms, saved.visible_times_ms, starts, strict=False):
            self._put_out(queue, key, out[0], Flight(*out[1:]))
        if any(len(each) != len(saved.queue_offsets) for each in (saved.pop_times_ms, saved.visible_times_ms, starts)):
            del self._queues[key]

    @property
    def may_expire(self) -> bool:
        """Tell whether anything is out that may have to be put back."""
        return bool(self._visible)

    def next_to_pop(self, key: PopKey) -> int | None:
        """Return from where to pop; None where the group has never been at this queue."""
        queue = self._current(key)
        return self._offsets.find(*key) if queue is None else queue.next_to_pop

    def _current(self, key: PopKey) -> _PoppedQueue | None:
        """Return what is known of a queue, unless somebody else has moved the group meanwhile."""
        queue = self._queues.get(key)
        if queue is not None and self._offsets.find(*key) != queue.committed:
            del self._queues[key]
            self.is_changed = True
            return None
        return queue

    def start(self, key: PopKey, queue_offset: int) -> None:
        """Let a group be at a place in a queue, with nothing out."""
        self._queues[key] = _PoppedQueue(queue_offset, queue_offset)
        self._offsets.commit(*key, queue_offset)
        self.is_changed = True

    def room(self, key: PopKey) -> int:
        """Return how many more messages may be out."""
        queue = self._current(key)
        return IN_FLIGHT_MAX - (len(queue.flights) if queue is not None else 0)

    def pop(self, key: PopKey, queue_offsets: Iterable[int], next_to_pop: int, flight: Flight) -> None:
        """Note that messages are out, and that those between them were not wanted."""
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
        """Take a message as done; False if this receipt is not, or no longer, the one by which it is out."""
        queue = self._current(key)
        flight = queue.flights.get(queue_offset) if queue is not None else None
        if queue is None or flight is None or flight.pop_timestamp_ms != pop_timestamp_ms:
            return False
        del queue.flights[queue_offset]
        self._commit(key, queue)
        return True

    def keep_longer(self, key: PopKey, queue_offset: int, pop_timestamp_ms: int, flight: Flight) -> bool:
        """Let a message be invisible until another moment, under a new receipt; False as for `acknowledge`."""
        queue = self._current(key)
        before = queue.flights.get(queue_offset) if queue is not None else None
        if queue is None or before is None or before.pop_timestamp_ms != pop_timestamp_ms:
            return False
        self._put_out(queue, key, queue_offset, flight)
        self.is_changed = True
        return True

    def expired(self, now_ms: int, limit: int) -> list[Expired]:
        """Return messages whose time is up; each is returned until it is acknowledged or put off."""
        found: list[Expired] = []
        again: list[tuple[int, PopKey, int]] = []
        while self._visible and self._visible[0][0] <= now_ms and len(found) < limit:
            entry = heapq.heappop(self._visible)
            visible_ms, key, queue_offset = entry
            queue = self._current(key)
            flight = queue.flights.get(queue_offset) if queue is not None else None
            if flight is not None and flight.visible_ms == visible_ms:
                found.append(Expired(key, queue_offset, flight))
                again.append(entry)
        for entry in again:
            heapq.heappush(self._visible, entry)
        return found

    def hand_over(self, append: Callable[[PopKey, Flight, list[int]], bool]) -> int:
        """Give every message that is out to `append`, one call for each pop, and commit the offsets past them.

        A queue for which `append` returns False keeps its messages and its offset. Returns how many were handed over.
        """
        count = 0
        for key in list(self._queues):
            queue = self._current(key)
            if queue is None or not queue.flights:
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
        """Move the group's offset to the first message that is not done."""
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
        """Return what to save, with the committed offsets as they are at this moment."""
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
