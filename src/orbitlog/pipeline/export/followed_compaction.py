"""Compaction by a streaming export: merges the small files of a day between two batches, once there are enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from orbitlog.errors import OrbitlogError
from orbitlog.jobs.local_runner import Runner
from orbitlog.pipeline.export.compaction_job import CompactionRequest, compact_table, count_small_files
from orbitlog.pipeline.export.export_job import ExportRequest

FOLLOWED_FILES_DEFAULT = 100


class FollowedCompaction:
    """Compacts the table of an export; a failure is reported, and the export continues."""

    def __init__(self, run: Runner, request: ExportRequest, files_min: int, report: Callable[[str], None]) -> None:
        self._run = run
        self._export = request
        self._files_min = files_min
        self._report = report
        self._small: dict[str, int] = {}  # small files by day; the table is asked when there may be enough

    def after_batch(self, days: Iterable[str]) -> None:
        """Compact days with enough small files; `days` has the day of each file that the last batch added."""
        added = Counter(days)
        for day, count in added.items():
            self._small[day] = self._small.get(day, self._files_min) + count
        due = [day for day in added if self._small[day] >= self._files_min]
        if not due:
            return
        try:
            self._compact(due)
        except (OrbitlogError, OSError) as error:
            self._small.update(dict.fromkeys(due, 0))  # retried after as many new files, not after every batch
            self._report(f"compaction failed, and the export continues: {error}")

    def _compact(self, days: list[str]) -> None:
        counts = count_small_files(self._request(days))
        self._small.update({day: counts.get(day, 0) for day in days})
        full = [day for day in days if self._small[day] >= self._files_min]
        for done in compact_table(self._run, self._request(full), is_export=True) if full else ():
            self._small[done.day] = done.new_files
            self._report(f"{done.day}: {done.files} files merged into {done.new_files} ({done.seconds:.1f} s)")

    def _request(self, days: Iterable[str]) -> CompactionRequest:
        return CompactionRequest(
            self._export.target, files_min=self._files_min, days=frozenset(days), catalog=self._export.catalog
        )
