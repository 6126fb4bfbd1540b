"""Running a list of tasks on Spark and collecting what they report.

A task does its whole work in one Python hop and reports a small dict that JSON can hold; messages never cross into
the JVM. A report may carry `scanned_bytes` and `messages`, which progress is drawn from while the job runs. A task may
be run again, or twice at once, by Spark: it must then have the same effect.

On a cluster each task is a partition, and Spark gives them out. In local mode, where the cores are known, a few tasks
make a partition: between two partitions a core waits 20 to 40 ms for JVM and worker to agree, as long as a
split of 64 MiB takes.
"""

from __future__ import annotations

import functools
import heapq
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import orjson

from orbitlog.doctor.tasks_here import Progress, Runner, Task, TaskReport
from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.session import is_local
from orbitlog.pipeline.warm_up import settle_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.2
_SENTENCE_MAX = 500
_TASKS_IN_A_ROW = 4
_WATCHED = ("scanned_bytes", "messages")


class JobFailed(OrbitlogError):
    """Spark gave up on a job; nothing of it was published, and running it again goes on where it stopped."""


def run_tasks(
    spark: SparkSession,
    function: Callable[[Task], TaskReport],
    tasks: Sequence[Task],
    *,
    progress: Progress | None = None,
    name: str = "orbitlog",
    cost: Callable[[Task], float] | None = None,
) -> list[TaskReport]:
    """Run `function` on each task, in workers, and return the reports in the order of the tasks.

    `cost` tells how tasks compare; without it they are taken for alike.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if not tasks:
        return []
    context = spark.sparkContext
    # Every task that ends tells the driver, which then asks its Python side: only where somebody looks at it.
    watched = [] if progress is None else [(told, context.accumulator(0)) for told in _WATCHED]

    def run(groups: Iterable[Sequence[tuple[int, Task]]]) -> Iterator[tuple[int, bytes]]:
        settle_worker()
        for group in groups:
            for number, task in group:
                report = function(task)
                for told, sum_so_far in watched:
                    sum_so_far.add(int(report.get(told, 0)))
                yield number, orjson.dumps(report)

    slots = context.defaultParallelism if is_local(context.master or "") else len(tasks)
    groups = [
        [(number, tasks[number]) for number in numbers]
        for numbers in share_out([1.0 if cost is None else cost(task) for task in tasks], slots)
    ]
    context.setJobDescription(name)
    # An RDD and not a DataFrame: without a plan to make and Arrow streams to open a job costs a quarter.
    job = context.parallelize(groups, len(groups)).mapPartitions(run)
    try:
        with _Watch(progress, lambda: (watched[0][1].value, watched[1][1].value)):
            found = dict(job.collect())
    except (PySparkException, Py4JError) as error:
        raise JobFailed(f"the Spark job '{name}' failed: {_reason(error)}") from error
    finally:
        context.setJobDescription(None)  # type: ignore[arg-type]
    return [orjson.loads(found[number]) for number in range(len(tasks))]


def share_out(costs: Sequence[float], slots: int) -> list[list[int]]:
    """Share tasks out among partitions that cost about the same: a whole number for each slot, a few tasks in each.

    Returns the numbers of the tasks of each partition, the dearest partition first.
    """
    rounds = -(-len(costs) // (slots * _TASKS_IN_A_ROW))
    lightest: list[tuple[float, int, list[int]]] = [(0.0, number, []) for number in range(slots * rounds)]
    for number in sorted(range(len(costs)), key=lambda number: -costs[number]):
        cost, place, numbers = heapq.heappop(lightest)
        numbers.append(number)
        heapq.heappush(lightest, (cost + costs[number], place, numbers))
    return [numbers for _, _, numbers in sorted(lightest, key=lambda item: (-item[0], item[1])) if numbers]


def runner(spark: SparkSession) -> Runner:
    """Return what runs tasks on a session."""
    return functools.partial(run_tasks, spark)


class _Watch:
    """Tells progress from a thread of its own while the driver waits for the job."""

    def __init__(self, progress: Progress | None, look: Callable[[], tuple[int, int]]) -> None:
        self._progress = progress
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orbitlog-progress", daemon=True)

    def _run(self) -> None:
        assert self._progress is not None
        while not self._ended.wait(_POLL_S):
            self._progress(*self._look())

    def __enter__(self) -> None:
        if self._progress is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._ended.set()
            self._thread.join()
            self._progress(*self._look())


def _reason(error: Exception) -> str:
    """Return the line that names the cause: the last one of a worker's traceback, else the first of Spark's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("orbitlog.") or ("Error: " in line and "py4j" not in line)]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0][:_SENTENCE_MAX]
