"""Compaction plan: chooses the small files of each day that are merged, and the files that they are merged into.

Only files that an export or a compaction wrote are candidates, by their names; files of other writers stay as they are.
A merged file has rows of one day, because days are the partitions of the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orbitlog.errors import OrbitlogError

TARGET_BYTES_DEFAULT = 128 * 1024 * 1024
FILES_MIN_DEFAULT = 2
_SMALL_SHARE = 0.75  # a file above this share of the target gains little from being rewritten
_NAME = re.compile(r"(?:part-\d{8,}-\d{5,}|compact-\d{8,}-[0-9a-f]{8})-(\d{4}-\d{2}-\d{2})-\d{3,}\.parquet", re.ASCII)


class CompactionError(OrbitlogError):
    """A compaction failed; the table has the same rows as before."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of the current version of a table; `path` is relative to the table."""

    path: str
    day: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DayPlan:
    """The files of one day to merge: each group becomes one file."""

    day: str
    groups: tuple[tuple[TableFile, ...], ...]

    @property
    def files(self) -> tuple[TableFile, ...]:
        """All files that are replaced."""
        return tuple(file for group in self.groups for file in group)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def table_file(path: str, size_bytes: int) -> TableFile | None:
    """Return a data file that an export or a compaction wrote; None for a file of another writer."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    return None if match is None else TableFile(path, match[1], size_bytes)


def output_name(number: int, token: str, day: str, group: int) -> str:
    """Return the name of a merged file; the random token keeps two compactions at once apart."""
    return f"compact-{number:08d}-{token}-{day}-{group:03d}.parquet"


def is_small(file: TableFile, target_bytes: int) -> bool:
    """Return whether merging a file would pay off."""
    return file.size_bytes < _SMALL_SHARE * target_bytes


def plan_days(files: Iterable[TableFile], *, target_bytes: int, files_min: int) -> list[DayPlan]:
    """Return a plan for each day that has at least `files_min` small files, oldest day first."""
    by_day: dict[str, list[TableFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if is_small(file, target_bytes):
            by_day.setdefault(file.day, []).append(file)
    plans = [
        DayPlan(day, _groups(small, target_bytes)) for day, small in sorted(by_day.items()) if len(small) >= files_min
    ]
    return [plan for plan in plans if plan.groups]


def _groups(files: Sequence[TableFile], target_bytes: int) -> tuple[tuple[TableFile, ...], ...]:
    """Cut files into groups of at most `target_bytes` in the order of their names, so that rows keep their order."""
    groups: list[list[TableFile]] = []
    room_bytes = 0
    for file in files:
        if not groups or file.size_bytes > room_bytes:
            groups.append([])
            room_bytes = target_bytes
        groups[-1].append(file)
        room_bytes -= file.size_bytes
    return tuple(tuple(group) for group in groups if len(group) > 1)
