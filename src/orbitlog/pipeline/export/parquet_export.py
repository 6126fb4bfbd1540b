"""Parquet export: directories by day, and commit files that list the data files of the table.

Data files have a leading dot until the commit that lists them is durable. Then they are renamed; the next run completes
an interrupted renaming. Spark and pyarrow skip names with a dot, so readers see whole batches only, except while the
files of one batch are being renamed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from orbitlog.pipeline.export.export_plan import STATE_DIRECTORY, ExportBatch, write_whole
from orbitlog.settings.atomic_file import sync_directory

_COMMIT_NAME = re.compile(r"[0-9]{20}\.json")


class ParquetTable:
    """Export target: a directory of Parquet files."""

    is_hidden, by_day = True, True

    def __init__(self, target: Path) -> None:
        self._target = target
        self._commits = target / STATE_DIRECTORY / "commits"

    def committed(self) -> int:
        """Return the number of the last committed batch, -1 for none; complete its renaming."""
        numbers = [int(path.stem) for path in self._commit_files()]
        if not numbers:
            return -1
        last = max(numbers)
        self._publish(orjson.loads((self._commits / f"{last:020d}.json").read_bytes())["files"])
        return last

    def commit(self, batch: ExportBatch, files: Sequence[dict[str, Any]]) -> None:
        """Commit the files of a batch to the table."""
        value = {"batch": batch.number, "range": orjson.loads(batch.range_id), "files": list(files)}
        write_whole(self._commits / f"{batch.number:020d}.json", orjson.dumps(value))
        self._publish(files)

    def files(self) -> list[Path]:
        """Return the files that the commits list."""
        commits = [orjson.loads(path.read_bytes()) for path in sorted(self._commit_files())]
        return [self._target / file["path"] for commit in commits for file in commit["files"]]

    def _commit_files(self) -> list[Path]:
        if not self._commits.is_dir():
            return []
        return [path for path in self._commits.iterdir() if _COMMIT_NAME.fullmatch(path.name)]

    def _publish(self, files: Sequence[dict[str, Any]]) -> None:
        """Rename committed files to their final names; skip files that are already renamed."""
        directories = set()
        for file in files:
            final = self._target / file["path"]
            staged = final.with_name(f".{final.name}")
            if staged.exists():
                staged.replace(final)
                directories.add(final.parent)
            for leftover in final.parent.glob(f".{final.name}.*"):
                leftover.unlink(missing_ok=True)  # written by an attempt that was killed
        for directory in directories:
            sync_directory(directory)
