"""How tasks are shared out among partitions."""

from __future__ import annotations

import pytest

from orbitlog.pipeline.task_run import share_out


def test_on_a_cluster_each_task_is_a_partition() -> None:
    assert share_out([1.0] * 5, 5) == [[0], [1], [2], [3], [4]]


def test_few_tasks_make_one_partition_a_core() -> None:
    assert share_out([1.0] * 8, 2) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert share_out([1.0], 2) == [[0]]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100])
@pytest.mark.parametrize("slots", [1, 2, 3, 16])
def test_every_task_is_in_one_partition_and_no_partition_is_long(count: int, slots: int) -> None:
    shared = share_out([float(number % 3) for number in range(count)], slots)
    assert sorted(number for numbers in shared for number in numbers) == list(range(count))
    assert len(share_out([1.0] * count, slots)) == min(count, slots * -(-count // (slots * 4)))
    assert max(map(len, share_out([1.0] * count, slots))) <= 4


def test_a_dear_task_has_a_partition_to_itself_and_comes_first() -> None:
    assert share_out([1.0, 1.0, 9.0, 1.0], 2) == [[2], [0, 1, 3]]
