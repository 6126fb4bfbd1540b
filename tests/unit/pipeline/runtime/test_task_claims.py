"""Workers of one machine take each task once, and take up what one of them left."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

from orbitlog.pipeline.runtime.task_claims import TaskClaims


def test_tasks_are_taken_in_order_and_once() -> None:
    with TaskClaims.lent(5) as claims:
        one, two = claims.numbers_for(0), claims.numbers_for(1)
        assert [next(one), next(two), next(two), next(one), next(two)] == [0, 1, 2, 3, 4]
        assert (list(one), list(two)) == ([], [])


def test_a_worker_that_begins_anew_is_told_what_it_had_taken() -> None:
    with TaskClaims.lent(6) as claims:
        dead, other = claims.numbers_for(7), claims.numbers_for(0)
        assert [next(dead), next(other), next(dead)] == [0, 1, 2]
        assert list(claims.numbers_for(7)) == [0, 2, 3, 4, 5]
        assert list(claims.numbers_for(0)) == [1]


def test_what_tasks_came_to_is_summed_up() -> None:
    with TaskClaims.lent(2) as claims:
        assert claims.sums() == (0, 0)
        claims.add(1 << 40, 3)
        assert next(claims.numbers_for(0)) == 0
        claims.add(5, 4)
        assert claims.sums() == ((1 << 40) + 5, 7)


def test_nothing_is_left_behind() -> None:
    with TaskClaims.lent(1) as claims:
        path = Path(claims._path)
        assert path.exists()
    assert not path.exists()


def _take_all(claims: TaskClaims, taker: int, out: str) -> None:
    numbers = []
    for number in claims.numbers_for(taker):
        claims.add(number, 1)
        numbers.append(number)
    Path(out, str(taker)).write_text(" ".join(map(str, numbers)))


def test_processes_share_tasks_without_loss(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with TaskClaims.lent(2000) as claims:
        workers = [context.Process(target=_take_all, args=(claims, taker, os.fspath(tmp_path))) for taker in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert claims.sums() == (sum(range(2000)), 2000)
    taken = [int(number) for path in tmp_path.iterdir() for number in path.read_text().split()]
    assert sorted(taken) == list(range(2000))
