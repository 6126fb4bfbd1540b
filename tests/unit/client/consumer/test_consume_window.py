"""What may be committed while messages are finished in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitlog.client.consumer.consume_window import ConsumeWindow


def test_commits_the_smallest_unfinished() -> None:
    window = ConsumeWindow(5)
    assert window.commit_offset == 5
    window.fetched([(5, 100), (7, 100), (9, 100)], 12)
    assert window.commit_offset == 5
    assert window.finish(7) and window.commit_offset == 5
    assert window.finish(5) and window.commit_offset == 9
    assert window.finish(9) and window.commit_offset == 12
    assert window.size_bytes == len(window) == 0


def test_finishing_twice_counts_once() -> None:
    window = ConsumeWindow(0)
    window.fetched([(0, 10), (1, 10)], 2)
    assert window.finish(0)
    assert not window.finish(0) and not window.finish(99)
    assert window.size_bytes == 10


def test_what_was_filtered_out_is_passed_over() -> None:
    window = ConsumeWindow(0)
    window.fetched([], 500)
    assert window.commit_offset == 500


def test_full_by_count_bytes_and_span() -> None:
    window = ConsumeWindow(0, count_max=2, bytes_max=100, span_max=10)
    window.fetched([(0, 10)], 1)
    assert not window.is_full
    window.fetched([(1, 10)], 2)
    assert window.is_full
    window.finish(1)
    window.fetched([(2, 95)], 3)
    window.finish(0)
    assert not window.is_full
    window.fetched([(3, 5)], 4)
    assert window.is_full
    window.finish(2)
    window.fetched([], 14)
    assert window.is_full  # one that is stuck holds back the rest


@given(st.permutations(range(20)))
def test_nothing_unfinished_is_ever_committed(order: list[int]) -> None:
    window = ConsumeWindow(0)
    window.fetched([(number, 1) for number in range(20)], 20)
    unfinished = set(range(20))
    for number in order:
        window.finish(number)
        unfinished.discard(number)
        assert window.commit_offset == min(unfinished, default=20)
