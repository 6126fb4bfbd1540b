"""Resumable reports: a cache of task reports, with which a run continues where another one was killed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson

from orbitlog.jobs.staging import TEMPORARY, put_bytes
from orbitlog.storefiles.disk import RealDisk

Task = TypeVar("Task")
Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReportCache:
    """Keeps reports below `directory`, by task and by the files the task names; keeps nothing without one."""

    directory: str | None = None
    version: int = field(default=1)

    def of(self, function: Callable[[Task], Report]) -> Callable[[Task], Report]:
        """Return the function with the cache in front of it."""
        return function if self.directory is None else partial(_remembered, self, function)

    def path_of(self, name: str, task: object) -> Path:
        """Name a report after its task; a file that the task looks at and that changed makes it another task."""
        assert self.directory is not None
        described = f"{self.version} {name} {task!r}"
        for path in _paths_in(task):
            status = Path(path).stat() if Path(path).exists() else None
            described += f" {status.st_size} {status.st_mtime_ns}" if status else " missing"
        return Path(self.directory, hashlib.sha256(described.encode()).hexdigest()[:32] + ".json")

    def forget(self) -> None:
        """Remove everything that was kept."""
        if self.directory is not None:
            RealDisk().remove_tree(Path(self.directory))


def _remembered(kept: ReportCache, function: Callable[[Task], Report], task: Task) -> Report:
    path = kept.path_of(function.__name__, task)
    if path.exists():
        report: Report = orjson.loads(path.read_bytes())
        return report
    report = function(task)
    put_bytes(RealDisk(), path, orjson.dumps(report), path.parent / TEMPORARY)
    return report


def _paths_in(task: object) -> list[str]:
    """Collect the paths that a task names itself, or in its split."""
    named = [getattr(task, "path", None), getattr(getattr(task, "split", None), "path", None)]
    for queue in getattr(task, "queues", ()):
        named += [path for path, _, _ in queue.files]
    named += [head.path for head in getattr(task, "index", ())]
    return [path for path in named if isinstance(path, str)]
