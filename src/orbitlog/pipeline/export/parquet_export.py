"""Parquet export: directories by day, and commit files that list the data files of the table.

Data files have a leading dot until the commit that lists them is durable. Then they are renamed; the next run completes
an interrupted renaming. Spark and pyarrow skip names with a dot, so readers see whole batches only, except while the
files of one batch are being renamed.

A compaction (`parquet_compaction`) replaces the directory of a day in one step. Its record lists the replaced files; it
counts once the merged files are in that directory.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from orbitlog.pipeline.export.compaction_records import RECORD_NAME, RECORDS, record_name
from orbitlog.pipeline.export.export_plan import STATE_DIRECTORY, ExportBatch
from orbitlog.pipeline.runtime.location_files import LocationFiles
from orbitlog.settings.atomic_file import sync_directory

_COMMIT_NAME = re.compile(r"[0-9]{20}\.json")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux
_RENAME_SWAP = 2  # of macOS
_COMMITS = f"{STATE_DIRECTORY}/commits"


class ParquetTable:
    """Export target: a directory of Parquet files; on an object store a rename is a copy and a deletion."""

    is_hidden, by_day = True, True

    def __init__(self, target: Path | str) -> None:
        self._files = LocationFiles(target)

    def committed(self) -> int:
        """Return the number of the last committed batch, -1 for none; complete its renaming."""
        names = self._commit_names()
        if not names:
            return -1
        self._publish(self._unmerged(self._commit(names[-1])["files"]))
        return int(names[-1].partition(".")[0])

    def _unmerged(self, files: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the files that no compaction has merged: a late attempt of a task may have left one of the others."""
        directories = {str(file["path"]).rpartition("/")[0] for file in files}
        present = {
            f"{directory}/{name}" for directory in directories for name in self._files.names(directory, hidden=True)
        }
        missing = any(file["path"] not in present for file in files)
        replaced = self._compacted()[0] if missing else set()
        return [file for file in files if file["path"] not in replaced]

    def commit(self, batch: ExportBatch, files: Sequence[dict[str, Any]]) -> None:
        """Commit the files of a batch to the table."""
        value = {"batch": batch.number, "range": orjson.loads(batch.range_id), "files": list(files)}
        self._files.write(f"{_COMMITS}/{batch.number:020d}.json", orjson.dumps(value))
        self._publish(files)

    def files(self) -> list[Path]:
        """Return the files that the commits list, of a local table."""
        return [Path(self._files.path(name)) for name in self.names()]

    def names(self) -> list[str]:
        """Return the names of the files that the commits list, relative to the table."""
        written = [file["path"] for name in self._commit_names() for file in self._commit(name)["files"]]
        replaced, merged = self._compacted()
        return [name for name in [*written, *merged] if name not in replaced]

    def records(self) -> list[int]:
        """Return the numbers of the compactions, ascending; the last one may not have replaced anything yet."""
        names = self._files.names(RECORDS)
        return sorted(int(name.partition(".")[0]) for name in names if RECORD_NAME.fullmatch(name))

    def record(self, number: int) -> dict[str, Any]:
        value: dict[str, Any] = orjson.loads(self._files.read(record_name(number)) or b"")
        return value

    def is_applied(self, number: int) -> bool:
        """Return whether a compaction has replaced its files; `number` is that of the last record."""
        return all(self._files.exists(name) for name in self.record(number)["merged"])

    def _compacted(self) -> tuple[set[str], list[str]]:
        """Return the files that compactions have replaced, and those that they were merged into."""
        numbers = self.records()
        if numbers and not self.is_applied(numbers[-1]):
            numbers.pop()
        replaced: set[str] = set()
        merged: list[str] = []
        for record in map(self.record, numbers):
            replaced.update(record["replaced"])
            merged += record["merged"]
        return replaced, merged

    def _commit(self, name: str) -> dict[str, Any]:
        value: dict[str, Any] = orjson.loads(self._files.read(f"{_COMMITS}/{name}") or b"")
        return value

    def _commit_names(self) -> list[str]:
        return [name for name in self._files.names(_COMMITS) if _COMMIT_NAME.fullmatch(name)]

    def _publish(self, files: Sequence[dict[str, Any]]) -> None:
        """Rename committed files to their final names; skip files that are already renamed."""
        by_directory: dict[str, list[str]] = {}
        for file in files:
            directory, _, name = str(file["path"]).rpartition("/")
            by_directory.setdefault(directory, []).append(name)
        for directory, names in by_directory.items():
            present = set(self._files.names(directory, hidden=True))
            for name in names:
                if f".{name}" in present:
                    self._files.move(f"{directory}/.{name}", f"{directory}/{name}")
                for leftover in (other for other in present if other.startswith(f".{name}.")):
                    self._files.delete(f"{directory}/{leftover}")  # written by an attempt that was killed
            self._files.sync(directory)


def link_files(source: Path, target: Path, names: Sequence[str]) -> None:
    """Give files of one directory a second name in another one, and make these names durable."""
    for name in names:
        os.link(source / name, target / name)
    sync_directory(target)


def exchange_directories(first: Path, second: Path) -> None:
    """Exchange two directories in one step; raise `OSError` on a system or a file system without that call."""
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        result = libc.renamex_np(os.fsencode(first), os.fsencode(second), _RENAME_SWAP)
    elif hasattr(libc, "renameat2"):
        result = libc.renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    else:
        raise OSError(errno.ENOSYS, "this system cannot exchange two directories", str(first))
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(first))
    for path in (first.parent, second.parent):
        sync_directory(path)
