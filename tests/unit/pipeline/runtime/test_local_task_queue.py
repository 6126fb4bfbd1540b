"""Workers of one machine take each task once, and repeat the tasks of a dead worker."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

from orbitlog.pipeline.runtime.local_task_queue import LocalTaskQueue


def test_tasks_are_taken_in_order_and_once() -> None:
    with LocalTaskQueue.create(5) as queue:
        one, two = queue.take_for(0), queue.take_for(1)
        assert [next(one), next(two), next(two), next(one), next(two)] == [0, 1, 2, 3, 4]
        assert (list(one), list(two)) == ([], [])


def test_restarted_worker_repeats_its_earlier_tasks() -> None:
    with LocalTaskQueue.create(6) as queue:
        dead, other = queue.take_for(7), queue.take_for(0)
        assert [next(dead), next(other), next(dead)] == [0, 1, 2]
        assert list(queue.take_for(7)) == [0, 2, 3, 4, 5]
        assert list(queue.take_for(0)) == [1]


def test_progress_of_finished_tasks_is_summed() -> None:
    with LocalTaskQueue.create(2) as queue:
        assert queue.progress() == (0, 0)
        queue.add_progress(1 << 40, 3)
        assert next(queue.take_for(0)) == 0
        queue.add_progress(5, 4)
        assert queue.progress() == ((1 << 40) + 5, 7)


def test_file_is_deleted_when_the_job_ends() -> None:
    with LocalTaskQueue.create(1) as queue:
        path = Path(queue._path)
        assert path.exists()
    assert not path.exists()


def _take_all(queue: LocalTaskQueue, worker: int, out: str) -> None:
    numbers = []
    for number in queue.take_for(worker):
        queue.add_progress(number, 1)
        numbers.append(number)
    Path(out, str(worker)).write_text(" ".join(map(str, numbers)))


def test_processes_share_tasks_without_loss(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with LocalTaskQueue.create(2000) as queue:
        workers = [context.Process(target=_take_all, args=(queue, worker, os.fspath(tmp_path))) for worker in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert queue.progress() == (sum(range(2000)), 2000)
    taken = [int(number) for path in tmp_path.iterdir() for number in path.read_text().split()]
    assert sorted(taken) == list(range(2000))
