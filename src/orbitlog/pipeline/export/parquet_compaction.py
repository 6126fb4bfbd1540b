"""Parquet compaction: replaces the directory of a day by one with merged files, in one step.

    merge into `_orbitlog/replaced/<number>` -> link the other files of the day there -> save the record -> exchange

The exchange of the two directories is the commit: readers of the directory and of the commit files find the small files
before it and the merged ones after it. A reader that has listed the small files fails with an error, because their
names are gone. The replaced directory is deleted an hour later at the earliest, so that a reader that was listing it
finishes with the complete old listing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import orjson

from orbitlog.pipeline.export.compaction_plan import CompactionError, TableFile, table_file
from orbitlog.pipeline.export.compaction_records import record_name
from orbitlog.pipeline.export.export_plan import STATE_DIRECTORY
from orbitlog.pipeline.export.parquet_export import ParquetTable, exchange_directories, link_files
from orbitlog.pipeline.runtime.location_files import LocationFiles, is_remote

_REPLACED = f"{STATE_DIRECTORY}/replaced"
_KEPT_MS = 3600 * 1000
_DAY_PREFIX = "dt="


class ParquetCompaction:
    """The plain Parquet table of an export, in a local directory; no export may run meanwhile."""

    def __init__(self, target: Path | str) -> None:
        if is_remote(target):
            raise CompactionError(
                f"{target} is a plain Parquet table on an object store, where files cannot be replaced in one step:"
                " readers would find rows twice; export to --format delta or iceberg to compact"
            )
        self._files = LocationFiles(target)
        self._table = ParquetTable(target)

    def begin(self) -> int:
        """Complete the last commit, delete what killed compactions left, and return the number of the next one."""
        self._table.committed()
        numbers = self._table.records()
        if numbers and not self._table.is_applied(numbers[-1]):
            self._files.delete(record_name(numbers.pop()))
        self._delete_replaced(numbers)
        return numbers[-1] + 1 if numbers else 0

    def delete_expired(self) -> int:
        """Delete replaced files that no reader lists any more; return their number."""
        before = self._replaced_files()
        self.begin()
        return before - self._replaced_files()

    def _replaced_files(self) -> int:
        return sum(
            len(set(self._table.record(int(name))["replaced"]))
            for name in self._files.names(_REPLACED)
            if int(name) in self._table.records()
        )

    def _delete_replaced(self, numbers: Sequence[int]) -> None:
        kept = self._kept(numbers)
        for name in self._files.names(_REPLACED):
            if name not in kept:
                self._files.delete_directory(f"{_REPLACED}/{name}")

    def _kept(self, numbers: Sequence[int]) -> set[str]:
        """Return the names of replaced directories that a reader may still be listing."""
        now_ms = int(time.time() * 1000)
        kept: set[str] = set()
        for number in reversed(numbers):
            if now_ms - self._table.record(number)["timeMs"] >= _KEPT_MS:
                break
            kept.add(_directory_name(number))
        return kept

    def files(self, days: Collection[str] | None) -> list[TableFile]:
        """Return the files of the table: those with a visible name, once the last commit is completed."""
        from pyarrow import fs

        found: list[TableFile] = []
        for directory in self._files.names():
            if not directory.startswith(_DAY_PREFIX):
                continue
            if days is not None and directory.removeprefix(_DAY_PREFIX) not in days:
                continue
            selector = fs.FileSelector(self._files.path(directory))
            for info in self._files.filesystem.get_file_info(selector):
                file = table_file(f"{directory}/{info.base_name}", info.size or 0)
                if file is not None:
                    found.append(file)
        return found

    def directory(self, number: int) -> str:
        """Return the directory that merged files are written to."""
        return f"{_REPLACED}/{_directory_name(number)}"

    def replace(self, number: int, old: Sequence[TableFile], new: Sequence[dict[str, Any]]) -> None:
        """Replace the files of a day; raise `CompactionError` if the file system cannot."""
        day = f"{_DAY_PREFIX}{old[0].day}"
        current, staged = Path(self._files.path(day)), Path(self._files.path(self.directory(number)))
        replaced = {file.path.rpartition("/")[2] for file in old}
        entries = [entry for entry in sorted(current.iterdir()) if not entry.name.startswith(".")]
        if foreign := [entry.name for entry in entries if not entry.is_file()]:
            raise CompactionError(f"{current} has a directory {foreign[0]}, which no export has written")
        try:
            link_files(current, staged, [entry.name for entry in entries if entry.name not in replaced])
            merged = [f"{day}/{str(file['path']).rpartition('/')[2]}" for file in new]
            value = {"replaced": [file.path for file in old], "merged": merged, "timeMs": int(time.time() * 1000)}
            self._files.write(record_name(number), orjson.dumps(value))
            exchange_directories(current, staged)
        except OSError as error:
            raise CompactionError(
                f"could not replace {current}: {error}; the file system needs hard links and the exchange of two"
                " directories, or export to --format delta or iceberg"
            ) from error


def _directory_name(number: int) -> str:
    return f"{number:020d}"
