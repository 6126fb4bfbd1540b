"""Counters over a minute, an hour and a day."""

from __future__ import annotations

from orbitlog.broker.tables.statistics import TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, Counter, DayTotals, Statistics


def test_window_drops_older_samples() -> None:
    counter = Counter()
    for second in range(0, 200, 10):
        counter.sample(second * 1000)
        counter.add(10)
    minute, hour, _ = counter.windows(200_000)
    assert minute.sum == 70 and minute.tps == 1.0 and minute.average == 10.0
    assert hour.sum == 200


def test_puts_are_counted_by_topic() -> None:
    statistics = Statistics(0)
    statistics.note_put("T", 1, 100)
    statistics.note_put("T", 3, 300)
    nums, size = statistics.find(TOPIC_PUT_NUMS, "T"), statistics.find(TOPIC_PUT_SIZE, "T")
    assert nums is not None and size is not None
    assert (nums.total, nums.times, size.total) == (4, 2, 400)
    assert statistics.put_messages.total == 4 and statistics.put_bytes == 400
    statistics.forget_topic("T")
    assert statistics.find(TOPIC_PUT_NUMS, "T") is None
    statistics.note_put("T", 1, 1)
    assert statistics.find(TOPIC_PUT_NUMS, "T") is not None


def test_day_totals_advance_at_midnight() -> None:
    totals = DayTotals()
    totals.turn(1, 0)
    totals.turn(1, 50)
    totals.turn(2, 70)
    totals.turn(3, 100)
    assert (totals.yesterday_morning, totals.this_morning) == (70, 100)
