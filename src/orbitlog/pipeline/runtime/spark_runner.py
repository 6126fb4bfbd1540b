"""Task runner on Spark: runs a list of tasks in workers and collects their reports.

A task does all its work in one Python call and returns a small dict that JSON can hold; messages never cross into the
JVM. A report may carry `scanned_bytes` and `messages`, which progress is computed from while the job runs. Spark may
retry a task or run it twice at once, so tasks must be idempotent.

On a cluster each task is a partition that Spark schedules. In local mode there is one partition per core, and its
worker takes tasks until none is left (`local_task_queue`): between two partitions a core idles for 20 to 40 ms while
JVM and worker synchronize, and a static assignment leaves one core idle when the other is slower.
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
from orbitlog.pipeline.runtime.local_task_queue import LocalTaskQueue
from orbitlog.pipeline.runtime.session import is_local
from orbitlog.pipeline.runtime.spark_errors import failure_line
from orbitlog.pipeline.runtime.worker_setup import set_up_worker

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

_POLL_S = 0.2
_PROGRESS_FIELDS = ("scanned_bytes", "messages")

Reports = dict[int, bytes]
# Empty RDDs by partition count; weak keys, so that a stopped SparkContext can be collected.
_PARTITIONS: WeakKeyDictionary[SparkContext, dict[int, RDD[Any]]] = WeakKeyDictionary()


class JobFailed(OrbitlogError):
    """A Spark job failed; nothing was published, and a new run resumes where this one stopped."""


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

    `cost` orders tasks: the most expensive start first. Raise `JobFailed` if Spark gives up on a task.
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
        encoded = run(spark, function, [tasks[number] for number in order], progress)
    except (PySparkException, Py4JError) as error:
        raise JobFailed(f"the Spark job '{name}' failed: {failure_line(error)}") from error
    finally:
        context.setJobDescription(None)  # type: ignore[arg-type]
    reports = {number: orjson.loads(encoded[index]) for index, number in enumerate(order)}
    return [reports[number] for number in range(len(tasks))]


def _run_on_cluster(
    spark: SparkSession, function: Callable[[Task], TaskReport], tasks: Sequence[Task], progress: Progress | None
) -> Reports:
    context = spark.sparkContext
    # Each accumulator costs a round trip to the driver's Python at the end of every task: only for a caller that shows
    # progress.
    sums = [] if progress is None else [(field, context.accumulator(0)) for field in _PROGRESS_FIELDS]

    def run(numbered: Iterable[tuple[int, Task]]) -> Iterator[tuple[int, bytes]]:
        set_up_worker()
        for number, task in numbered:
            report = function(task)
            for field, sum_so_far in sums:
                sum_so_far.add(int(report.get(field, 0)))
            yield number, orjson.dumps(report)

    # An RDD instead of a DataFrame: without a query plan and Arrow streams a job takes a quarter of the time.
    job = context.parallelize(list(enumerate(tasks)), len(tasks)).mapPartitions(run)
    with _ProgressThread(progress, lambda: (sums[0][1].value, sums[1][1].value)):
        return dict(job.collect())


def _run_on_cores(
    spark: SparkSession, function: Callable[[Task], TaskReport], tasks: Sequence[Task], progress: Progress | None
) -> Reports:
    from pyspark.serializers import CPickleSerializer

    context = spark.sparkContext
    cores = min(context.defaultParallelism, len(tasks))
    # Each worker receives all tasks, and unpickles only those that it takes.
    serializer: Any = CPickleSerializer()
    packed = [serializer.dumps(task) for task in tasks]
    with LocalTaskQueue.create(len(tasks)) as queue:

        def run(core: int, empty: Iterable[object]) -> Iterator[tuple[int, bytes]]:
            list(empty)  # Spark does not reuse a worker whose input was not read to its end
            set_up_worker()
            for number in queue.take_for(core):
                report = function(serializer.loads(packed[number]))
                queue.add_progress(*(int(report.get(field, 0)) for field in _PROGRESS_FIELDS))
                yield number, orjson.dumps(report)

        job = _partitions(context, cores).mapPartitionsWithIndex(run)
        with _ProgressThread(progress, queue.progress):
            return dict(job.collect())


def _partitions(context: SparkContext, count: int) -> RDD[Any]:
    """Return an RDD of `count` empty partitions, cached per session: creating one takes 2 ms."""
    kept = _PARTITIONS.setdefault(context, {})
    if count not in kept:
        kept[count] = context.parallelize([], count)
    return kept[count]


def runner(spark: SparkSession) -> Runner:
    """Return a `Runner` that runs tasks on a session."""
    return functools.partial(run_tasks, spark)


class _ProgressThread:
    """Reports progress from a thread while the driver blocks in the job."""

    def __init__(self, progress: Progress | None, read_counts: Callable[[], tuple[int, int]]) -> None:
        self._progress = progress
        self._read_counts = read_counts
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orbitlog-progress", daemon=True)

    def _run(self) -> None:
        assert self._progress is not None
        while not self._ended.wait(_POLL_S):
            self._progress(*self._read_counts())

    def __enter__(self) -> None:
        if self._progress is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._ended.set()
            self._thread.join()
            self._progress(*self._read_counts())
