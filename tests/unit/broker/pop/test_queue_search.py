"""Queue search: every queue of a wide topic is covered once, in windows of limited size."""

from __future__ import annotations

import pytest

from orbitlog.broker.pop.queue_search import WINDOW_QUEUES, WINDOW_USED_QUEUES, QueueSearch

Queue = tuple[str, int]


def windows(search: QueueSearch, spans: list[tuple[str, int]], used: set[Queue]) -> list[list[Queue]]:
    looked: list[int] = []

    def is_used(topic: str, queue_id: int) -> bool:
        looked[-1] += 1
        return (topic, queue_id) in used

    found = []
    while not found or search.is_unfinished:
        looked.append(0)
        found.append(search.next_window(spans, is_used))
        search.continue_next()
    assert max(looked) <= WINDOW_QUEUES
    return found


@pytest.mark.parametrize("used_part", [0, 1, 7])
def test_windows_cover_each_queue_once_and_are_small(used_part: int) -> None:
    spans = [("T", 25_000), ("%RETRY%g_T", 3_000), ("%RETRY%g+T", 0)]
    used = {
        (topic, number) for topic, count in spans for number in range(count) if used_part and not number % used_part
    }
    found = windows(QueueSearch(), spans, used)
    queues = [queue for window in found for queue in window]
    assert len(queues) == len(set(queues)) == len(used)
    assert max(map(len, found)) <= WINDOW_USED_QUEUES
    assert len(found) >= 3


def test_window_that_does_not_continue_covers_all_queues_from_the_position_on() -> None:
    search = QueueSearch()
    used = {("T", number) for number in range(1_000)}
    first = search.next_window([("T", 1_000)], lambda *queue: queue in used)
    assert search.is_unfinished
    again = windows(search, [("T", 1_000)], used)
    assert {queue for window in again for queue in window} == used
    assert again[0][0] not in first, "it starts where the last window ended"


def test_topic_that_shrinks_during_a_search_is_searched_anew() -> None:
    search = QueueSearch()
    search.next_window([("T", 30_000)], lambda *_: False)
    search.continue_next()
    assert search.next_window([("T", 10)], lambda *_: True) and not search.is_unfinished
    assert search.next_window([], lambda *_: True) == []
