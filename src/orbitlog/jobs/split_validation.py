"""Split validation: re-runs splits that started inside a record, and drops those past the end of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from orbitlog.jobs.log_splits import LogSplit, WalkedSplit, empty_walk, unproved_splits, which_count


class SplitTask(Protocol):
    """A dataclass with a split, and whose report has the walk of it under `walk`."""

    @property
    def split(self) -> LogSplit: ...


T = TypeVar("T", bound=SplitTask)
Report = dict[str, Any]


def validate_reports(
    reports: Sequence[Report], tasks: list[T], run: Callable[[list[T]], Sequence[Report]]
) -> list[Report | None]:
    """Return the report of each task, None if its split is not a part of the log; `tasks` become those that gave it."""
    proved: list[Report | None] = list(reports)
    walks = [WalkedSplit.from_report(report["walk"]) for report in reports]
    while wrong := unproved_splits(walks):
        again = [number for number, split in wrong.items() if not split.is_empty]
        for number, split in wrong.items():
            tasks[number] = replace(tasks[number], split=split)  # type: ignore[type-var]
            if split.is_empty:
                walks[number], proved[number] = empty_walk(split), None
        for number, report in zip(again, run([tasks[number] for number in again]), strict=True):
            walks[number], proved[number] = WalkedSplit.from_report(report["walk"]), report
    return [report if counts else None for report, counts in zip(proved, which_count(walks), strict=True)]
