"""The table of messages in flight against a model that remembers everything: no crash loses a message."""

from __future__ import annotations

import random

import pytest

from orbitlog.broker.pop.ordered_pops import OrderedPops
from orbitlog.broker.pop.popped_queues import IN_FLIGHT_MAX, Flight, PopKey, PoppedQueues
from orbitlog.broker.tables.committed_offsets import CommittedOffsets
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET
from orbitlog.formats.tables.pop_progress import POP_PROGRESS, PoppedQueueProgress, PopProgress

KEY = PopKey("T", "G", 0)
MESSAGES = 60


def offsets_at(queue_offset: int | None = None) -> CommittedOffsets:
    offsets = CommittedOffsets(lambda: 0)
    if queue_offset is not None:
        offsets.commit(*KEY, queue_offset)
    return offsets


def test_new_group_has_no_offset() -> None:
    assert PoppedQueues(offsets_at()).next_to_pop(KEY) is None


def test_moved_committed_offset_wins() -> None:
    offsets = offsets_at()
    popped = PoppedQueues(offsets)
    popped.start(KEY, 0)
    popped.pop(KEY, (0, 1), 2, Flight(1, 100))
    offsets.commit(*KEY, 1)
    assert popped.next_to_pop(KEY) == 1
    assert not popped.acknowledge(KEY, 0, 1)
    assert popped.expired(1_000, 10) == []


def test_saved_lists_of_different_lengths_are_ignored() -> None:
    saved = PoppedQueueProgress("T", "G", 0, 3, 5, (3, 4), (1,), (9, 9))
    assert PoppedQueues(offsets_at(3), PopProgress((saved,))).next_to_pop(KEY) == 3


def test_messages_in_flight_are_limited() -> None:
    popped = PoppedQueues(offsets_at())
    popped.start(KEY, 0)
    popped.pop(KEY, range(IN_FLIGHT_MAX), IN_FLIGHT_MAX, Flight(1, 100))
    assert popped.room(KEY) == 0
    popped.acknowledge(KEY, 7, 1)
    assert popped.room(KEY) == 1


class Life:
    """One queue, popped, acknowledged, expired and crashed at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_000
        self.offsets = offsets_at()
        self.popped = PoppedQueues(self.offsets)
        self.popped.start(KEY, 0)
        self.out: dict[int, int] = {}
        self.done: set[int] = set()
        self.files = self.saved()

    def saved(self) -> tuple[str, str]:
        pops = POP_PROGRESS.encode(self.popped.snapshot(), COMPAT_5_5)
        return CONSUMER_OFFSET.encode(self.offsets.snapshot(), COMPAT_5_5), pops

    def step(self) -> None:
        self.now_ms += 1
        match self.random.randrange(6):
            case 0 | 1:
                start = self.popped.next_to_pop(KEY)
                assert start is not None
                count = min(self.random.randrange(1, 5), MESSAGES - start)
                given = [each for each in range(start, start + count) if self.random.random() < 0.8]
                self.done |= set(range(start, start + count)) - set(given)  # filtered out
                self.popped.pop(KEY, given, start + count, Flight(self.now_ms, self.now_ms + 20))
                self.out |= dict.fromkeys(given, self.now_ms)
            case 2 | 3 if self.out:
                queue_offset = self.random.choice(list(self.out))
                if self.popped.acknowledge(KEY, queue_offset, self.out.pop(queue_offset)):
                    self.done.add(queue_offset)
            case 4:
                for key, queue_offset, flight in self.popped.expired(self.now_ms, 2):
                    assert flight.visible_ms <= self.now_ms
                    assert self.popped.acknowledge(key, queue_offset, flight.pop_timestamp_ms)
                    self.done.add(queue_offset)  # it is in the retry topic
            case 5:
                self.save_or_crash()

    def save_or_crash(self) -> None:
        if self.random.random() < 0.5:
            self.files = self.saved()
            return
        offsets, pops = self.files
        if self.random.random() < 0.3:
            offsets, _ = self.saved()  # the crash came between the two files
        self.offsets = CommittedOffsets(lambda: 0, CONSUMER_OFFSET.decode(offsets))
        self.popped = PoppedQueues(self.offsets, POP_PROGRESS.decode(pops))

    def check(self) -> None:
        committed = self.offsets.find(*KEY)
        assert committed is not None
        assert set(range(committed)) <= self.done


@pytest.mark.parametrize("seed", range(40))
def test_no_crash_loses_a_message(seed: int) -> None:
    life = Life(seed)
    for _ in range(400):
        life.step()
        life.check()
    # In the end everything is popped and requeued: no message is stuck.
    for _ in range(MESSAGES):
        life.now_ms += 1_000
        start = life.popped.next_to_pop(KEY)
        assert start is not None
        if start < MESSAGES:
            life.popped.pop(KEY, range(start, MESSAGES), MESSAGES, Flight(life.now_ms, life.now_ms))
        for key, queue_offset, flight in life.popped.expired(life.now_ms, 100):
            life.popped.acknowledge(key, queue_offset, flight.pop_timestamp_ms)
    assert life.offsets.find(*KEY) == MESSAGES


def test_ordered_batches_of_deleted_groups_are_dropped() -> None:
    offsets = offsets_at(0)
    ordered = OrderedPops(offsets)
    ordered.take(KEY, (0, 1), now_ms=1, invisible_ms=10, attempt_id=None)
    assert ordered.snapshot().topic_group_count == 1
    offsets.forget_group("G")
    assert ordered.snapshot().topic_group_count == 0
