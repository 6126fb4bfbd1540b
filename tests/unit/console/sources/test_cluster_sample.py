"""Figures of a sample."""

from __future__ import annotations

from orbitlog.console.sources.cluster_sample import message_count
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.bodies.queue_bodies import TopicOffset, TopicStats


def stats(*bounds: tuple[int, int]) -> TopicStats:
    return TopicStats(
        offsets={
            MessageQueue("T", "b", number): TopicOffset(min_queue_offset=low, max_queue_offset=high)
            for number, (low, high) in enumerate(bounds)
        }
    )


def test_message_count_sums_over_queues() -> None:
    assert message_count(stats((0, 10), (7, 9))) == 12


def test_message_count_of_an_empty_queue_with_minimum_minus_one_is_zero() -> None:
    assert message_count(stats((-1, 0), (-1, -1), (0, 0))) == 0
