"""Running a list of tasks on Spark, one partition each, and collecting what they report.

A task does its whole work in one Python hop and reports a small dict that JSON can hold; messages never cross into
the JVM. A report may carry `scanned_bytes` and `messages`, which progress is drawn from while the job runs. A task may
be run again, or twice at once, by Spark: it must then have the same effect.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import orjson

from orbitlog.doctor.tasks_here import Progress, Runner, Task, TaskReport
from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.warm_up import settle_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.2
_SENTENCE_MAX = 500


class JobFailed(OrbitlogError):
    """Spark gave up on a job; nothing of it was published, and running it again goes on where it stopped."""


def run_tasks(
    spark: SparkSession,
    function: Callable[[Task], TaskReport],
    tasks: Sequence[Task],
    *,
    progress: Progress | None = None,
    name: str = "orbitlog",
) -> list[TaskReport]:
    """Run `function` on each task, in workers, and return the reports in the order of the tasks."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if not tasks:
        return []
    context = spark.sparkContext
    scanned, messages = context.accumulator(0), context.accumulator(0)

    def run(numbered: Iterable[tuple[int, Task]]) -> Iterator[tuple[int, bytes]]:
        settle_worker()
        for number, task in numbered:
            report = function(task)
            scanned.add(int(report.get("scanned_bytes", 0)))
            messages.add(int(report.get("messages", 0)))
            yield number, orjson.dumps(report)

    context.setJobDescription(name)
    # An RDD and not a DataFrame: without a plan to make and Arrow streams to open a job costs a quarter.
    job = context.parallelize(enumerate(tasks), len(tasks)).mapPartitions(run)
    try:
        with _Watch(progress, lambda: (scanned.value, messages.value)):
            found = dict(job.collect())
    except (PySparkException, Py4JError) as error:
        raise JobFailed(f"the Spark job '{name}' failed: {_reason(error)}") from error
    finally:
        context.setJobDescription(None)  # type: ignore[arg-type]
    return [orjson.loads(found[number]) for number in range(len(tasks))]


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
