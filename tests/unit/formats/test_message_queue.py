"""Message queues as values: keys of tables, sorted as Java clients sort them."""

from __future__ import annotations

from orbitlog.formats.message_queue import MessageQueue


def test_queues_sort_by_topic_broker_and_id() -> None:
    queues = [
        MessageQueue("T", "b", 2),
        MessageQueue("S", "z", 9),
        MessageQueue("T", "a", 10),
        MessageQueue("T", "b", 1),
    ]
    assert sorted(queues) == [queues[1], queues[2], queues[3], queues[0]]


def test_equal_queues_are_one_key() -> None:
    assert {MessageQueue("T", "b", 1): 7}[MessageQueue("T", "b", 1)] == 7
