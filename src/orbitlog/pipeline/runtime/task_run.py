"""Running a list of tasks on Spark and collecting what they report.

A task does its whole work in one Python hop and reports a small dict that JSON can hold; messages never cross into
the JVM. A report may carry `scanned_bytes` and `messages`, which progress is drawn from while the job runs. A task may
be run again, or twice at once, by Spark: it must then have the same effect.

On a cluster each task is a partition, and Spark gives them out. In local mode there is one partition a core, and its
worker takes tasks until none is left (`task_claims`): between two partitions a core waits 20 to 40 ms for JVM and
worker to agree, and tasks that were shared out beforehand leave one core idle when the other is slower.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import orjson

from orbitlog.errors import OrbitlogError
from orbitlog.jobs.local_runner import Progress, Runner, Task, TaskReport
from orbitlog.pipeline.runtime.session import is_local
from orbitlog.pipeline.runtime.task_claims import TaskClaims
from orbitlog.pipeline.runtime.warm_up import settle_worker

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

_POLL_S = 0.2
_SENTENCE_MAX = 500
_WATCHED = ("scanned_bytes", "messages")

Reports = dict[int, bytes]
_PARTITIONS: WeakKeyDictionary[SparkContext, dict[int, RDD[Any]]] = WeakKeyDictionary()


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

    `cost` tells how tasks compare; the dearest are begun first.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if not tasks:
        return []
    context = spark.sparkContext
    order = sorted(range(len(tasks)), key=lambda number: 0.0 if cost is None else -cost(tasks[number]))
    run = _run_on_cores if is_local(context.master or "") else _run_on_cluster
    context.setJobDescription(name)
    try:
        found = run(spark, function, [tasks[number] for number in order], progress)
    except (PySparkException, Py4JError) as error:
        raise JobFailed(f"the Spark job '{name}' failed: {_reason(error)}") from error
    finally:
        context.setJobDescription(None)  # type: ignore[arg-type]
    reports = {number: orjson.loads(found[place]) for place, number in enumerate(order)}
    return [reports[number] for number in range(len(tasks))]


def _run_on_cluster(
    spark: SparkSession, function: Callable[[Task], TaskReport], tasks: Sequence[Task], progress: Progress | None
) -> Reports:
    context = spark.sparkContext
    # Every task that ends tells the driver, which then asks its Python side: only where somebody looks at it.
    watched = [] if progress is None else [(told, context.accumulator(0)) for told in _WATCHED]

    def run(numbered: Iterable[tuple[int, Task]]) -> Iterator[tuple[int, bytes]]:
        settle_worker()
        for number, task in numbered:
            report = function(task)
            for told, sum_so_far in watched:
                sum_so_far.add(int(report.get(told, 0)))
            yield number, orjson.dumps(report)

    # An RDD and not a DataFrame: without a plan to make and Arrow streams to open a job costs a quarter.
    job = context.parallelize(list(enumerate(tasks)), len(tasks)).mapPartitions(run)
    with _Watch(progress, lambda: (watched[0][1].value, watched[1][1].value)):
        return dict(job.collect())


def _run_on_cores(
    spark: SparkSession, function: Callable[[Task], TaskReport], tasks: Sequence[Task], progress: Progress | None
) -> Reports:
    from pyspark.serializers import CPickleSerializer

    context = spark.sparkContext
    cores = min(context.defaultParallelism, len(tasks))
    # Each worker is handed all tasks, and unpacks those that it takes.
    serializer: Any = CPickleSerializer()
    packed = [serializer.dumps(task) for task in tasks]
    with TaskClaims.lent(len(tasks)) as claims:

        def run(core: int, nothing: Iterable[object]) -> Iterator[tuple[int, bytes]]:
            list(nothing)  # a worker whose input was not read to its end is not used again
            settle_worker()
            for number in claims.numbers_for(core):
                report = function(serializer.loads(packed[number]))
                claims.add(*(int(report.get(told, 0)) for told in _WATCHED))
                yield number, orjson.dumps(report)

        job = _partitions(context, cores).mapPartitionsWithIndex(run)
        with _Watch(progress, claims.sums):
            return dict(job.collect())


def _partitions(context: SparkContext, count: int) -> RDD[Any]:
    """Return so many empty partitions, the same ones for every job of a session: making them takes 2 ms."""
    kept = _PARTITIONS.setdefault(context, {})
    if count not in kept:
        kept[count] = context.parallelize([], count)
    return kept[count]


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
