"""What tasks read, and how much of a backlog a micro-batch takes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orbitlog.pipeline.sources.rate_limit import limit_bytes, limit_offsets
from orbitlog.pipeline.sources.read_plan import (
    TASK_MESSAGES,
    TASK_MESSAGES_MAX,
    QueueRange,
    StoreShape,
    plan_ranges,
    plan_tasks,
)
from orbitlog.pipeline.sources.topic_offsets import QueueKey

SHAPE = StoreShape("a", "/s", 1024, 1000)


def key(queue_id: int) -> QueueKey:
    return QueueKey("T", "a", queue_id)


def test_empty_ranges_make_no_task_and_new_queues_start_at_their_beginning() -> None:
    ranges = plan_ranges({key(0): 5, key(1): 7}, {key(0): 5, key(1): 9, key(2): 3}, {"a": SHAPE})
    assert [(found.queue_id, found.start, found.stop) for found in ranges] == [(1, 7, 9), (2, 0, 3)]
    assert plan_tasks([]) == []


counts = st.lists(st.integers(1, 3 * TASK_MESSAGES_MAX), max_size=20)


@given(counts, st.none() | st.integers(1, 50))
def test_tasks_hold_every_message_once_and_in_order(messages: list[int], partitions_min: int | None) -> None:
    ranges = [QueueRange(SHAPE, "T", number, 100, 100 + count) for number, count in enumerate(messages)]
    tasks = plan_tasks(ranges, partitions_min)
    pieces = [piece for task in tasks for piece in task]
    for number, count in enumerate(messages):
        own = [piece for piece in pieces if piece.queue_id == number]
        assert own[0].start == 100
        assert own[-1].stop == 100 + count
        assert all(earlier.stop == later.start for earlier, later in pairwise(own))
    assert all(sum(piece.message_count for piece in task) <= max(TASK_MESSAGES, TASK_MESSAGES_MAX) for task in tasks)
    if partitions_min is not None and sum(messages) >= partitions_min:
        assert len(tasks) >= partitions_min


def test_long_queues_are_cut_side_by_side_and_short_ones_are_put_together() -> None:
    counts = [300_000, 500_000, 10, 20]
    ranges = [QueueRange(SHAPE, "T", number, 0, count) for number, count in enumerate(counts)]
    *shares, rest = plan_tasks(ranges)
    assert [[(piece.queue_id, piece.start) for piece in task] for task in shares] == [
        [(0, 300_000 * number // 4), (1, 500_000 * number // 4)] for number in range(4)
    ]
    assert [(piece.queue_id, piece.message_count) for piece in rest] == [(2, 10), (3, 20)]


def test_shares_of_long_queues_come_in_fours_so_that_no_core_waits_for_the_last() -> None:
    for together, shares in ((1, 1), (2, 2), (3, 4), (5, 8), (13, 16)):
        found = QueueRange(SHAPE, "T", 0, 0, together * TASK_MESSAGES)
        sizes = [sum(piece.message_count for piece in task) for task in plan_tasks([found])]
        assert len(sizes) == shares
        assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=10), st.integers(1, 500))
def test_shares_of_a_limit(queues: list[tuple[int, int]], offsets_max: int) -> None:
    start = {key(number): first for number, (first, _) in enumerate(queues)}
    end = {key(number): first + count for number, (first, count) in enumerate(queues)}
    limited = limit_offsets(start, end, offsets_max)
    taken = {name: limited[name] - start[name] for name in end}
    assert all(0 <= taken[name] <= end[name] - start[name] for name in end)
    # None is starved, and no more is taken than the limit and one for each queue.
    assert all(taken[name] > 0 for name in end if end[name] > start[name])
    assert sum(taken.values()) <= offsets_max + len(queues)
    if sum(end[name] - start[name] for name in end) > offsets_max:
        assert sum(taken.values()) > 0
    else:
        assert limited == end


def test_a_larger_backlog_gets_the_larger_share() -> None:
    limited = limit_offsets({key(0): 0, key(1): 0}, {key(0): 900, key(1): 100}, 100)
    assert limited == {key(0): 90, key(1): 10}


@given(st.lists(st.lists(st.integers(91, 5000), max_size=30), min_size=1, max_size=5), st.integers(1, 20_000))
def test_shares_of_bytes(sizes: list[list[int]], bytes_max: int) -> None:
    start = {key(number): 10 for number in range(len(sizes))}
    end = {key(number): 10 + len(queue) for number, queue in enumerate(sizes)}

    def sizes_from(name: QueueKey, first: int, stop: int, limit: int) -> list[int]:
        found: list[int] = []
        for size_bytes in sizes[name.queue_id][first - 10 : stop - 10]:
            if sum(found) > limit:
                break
            found.append(size_bytes)
        return found

    limited = limit_bytes(start, end, bytes_max, sizes_from)
    taken = [sizes[name.queue_id][: limited[name] - 10] for name in sorted(limited)]
    assert all(found for found, queue in zip(taken, sizes, strict=True) if queue)
    assert sum(sum(found) for found in taken if len(found) > 1) <= bytes_max
    if sum(map(sum, sizes)) <= bytes_max:
        assert limited == end
