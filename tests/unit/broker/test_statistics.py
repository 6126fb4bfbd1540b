"""Sums over the last minute, hour and day, with times that are given."""

from __future__ import annotations

from orbitlog.broker.statistics import SAMPLE_MS, Counter

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def test_what_was_counted_before_the_first_sample_is_in_every_sum() -> None:
    counter = Counter()
    counter.add(10)
    counter.sample(START_MS)
    assert [window.sum for window in counter.windows(START_MS)] == [10, 10, 10]
    counter.add(4)
    counter.sample(START_MS + SAMPLE_MS)
    minute, hour, day = counter.windows(START_MS + SAMPLE_MS)
    assert (minute.sum, hour.sum, day.sum) == (14, 14, 14)
    assert minute.tps == 14 / 20


def test_a_window_forgets() -> None:
    counter = Counter()
    counter.add(10)
    for step in range(DAY_MS // SAMPLE_MS + 400):
        now_ms = START_MS + step * SAMPLE_MS
        counter.sample(now_ms)
        if step == 30:
            assert [window.sum for window in counter.windows(now_ms)] == [0, 10, 10]
    assert [window.sum for window in counter.windows(now_ms)] == [0, 0, 0]


def test_nothing_counted_is_nothing() -> None:
    assert [window.sum for window in Counter().windows(START_MS)] == [0, 0, 0]
