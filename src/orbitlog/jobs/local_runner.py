"""Local runner: runs tasks one after the other in this process; `pipeline.runtime.spark_runner` runs them on Spark.

A task does its whole work in one call and reports a small dict that JSON can hold. A report may carry
`scanned_bytes` and `messages`, which progress is drawn from while the tasks run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import orjson

Task = TypeVar("Task")
TaskReport = dict[str, Any]
Progress = Callable[[int, int], None]
"""Takes the bytes and messages that finished tasks have dealt with since the job began."""

PhaseProgress = Callable[[str, int, int, int], None]
"""Takes the name of a job's phase, bytes done, bytes in all, and messages so far."""


class Runner(Protocol):
    """Runs tasks on Spark or in this process; `cost` compares tasks if some take longer than others."""

    def __call__(
        self,
        function: Callable[[Task], TaskReport],
        tasks: Sequence[Task],
        *,
        progress: Progress | None = None,
        name: str = "orbitlog",
        cost: Callable[[Task], float] | None = None,
    ) -> list[TaskReport]: ...


def run_here(
    function: Callable[[Task], TaskReport],
    tasks: Sequence[Task],
    *,
    progress: Progress | None = None,
    name: str = "orbitlog",
    cost: Callable[[Task], float] | None = None,
) -> list[TaskReport]:
    """Run tasks one after the other in this process; reports become what JSON makes of them, as on Spark."""
    reports: list[TaskReport] = []
    for task in tasks:
        reports.append(orjson.loads(orjson.dumps(function(task))))
        if progress is not None:
            progress(*(sum(int(report.get(name, 0)) for report in reports) for name in ("scanned_bytes", "messages")))
    return reports


def phase_of(progress: PhaseProgress | None, name: str, total_bytes: int) -> Progress | None:
    """Return what reports one phase of a job."""
    if progress is None:
        return None
    # Tasks that were repeated have reported their bytes twice.
    return lambda done_bytes, messages: progress(name, min(done_bytes, total_bytes), total_bytes, messages)
