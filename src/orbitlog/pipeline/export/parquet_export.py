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

from orbitlog.pipeline.export.export_plan import STATE_DIRECTORY, ExportBatch
from orbitlog.pipeline.runtime.location_files import LocationFiles

_COMMIT_NAME = re.compile(r"[0-9]{20}\.json")
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
        self._publish(self._commit(names[-1])["files"])
        return int(names[-1].partition(".")[0])

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
        return [file["path"] for name in self._commit_names() for file in self._commit(name)["files"]]

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
