"""Shares of a group: the same as Java's for the same lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.queue_shares import STRATEGIES, allocate_average, allocate_circle, allocate_consistent_hash


def queues_of(count: int, topic: str = "TopicTest", broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for number in range(count)]


def shares(strategy: str, queue_count: int, member_count: int) -> list[list[int]]:
    members = [f"10.0.0.{number}@1" for number in range(member_count)]
    allocate, queues = STRATEGIES[strategy], queues_of(queue_count)
    return [[queue.queue_id for queue in allocate(member, queues, members)] for member in members]


@pytest.mark.parametrize(
    ("queue_count", "expected"),
    [
        (8, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (10, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (4, [[0], [1], [2], [3], [], []]),
    ],
)
def test_average(queue_count: int, expected: list[list[int]]) -> None:
    assert shares("average", queue_count, len(expected)) == expected


def test_circle() -> None:
    assert shares("circle", 8, 3) == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_consistent_hash_as_java() -> None:
    members = ["10.0.0.1@1", "10.0.0.2@2"]
    found = [allocate_consistent_hash(member, queues_of(8), members) for member in members]
    assert [[queue.queue_id for queue in share] for share in found] == [[1, 2, 3, 4, 5, 6, 7], [0]]


@pytest.mark.parametrize("strategy", [allocate_average, allocate_circle, allocate_consistent_hash])
def test_unlisted_member_gets_no_queue(strategy: object) -> None:
    assert callable(strategy) and strategy("stranger", queues_of(4), ["a", "b"]) == []


@given(st.sampled_from(sorted(STRATEGIES)), st.integers(0, 40), st.integers(1, 12))
def test_each_queue_has_one_owner(strategy: str, queue_count: int, member_count: int) -> None:
    owned = [number for share in shares(strategy, queue_count, member_count) for number in share]
    assert sorted(owned) == list(range(queue_count))
