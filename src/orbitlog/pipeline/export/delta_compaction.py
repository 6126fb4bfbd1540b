"""Delta compaction: one commit with `dataChange=false` removes small files and adds the files merged from them.

A commit is tried at one version only, and repeated after its sources were found in the next one: deltalake 1.6 rebases
a commit that removes files without noticing that another one has removed them, which would duplicate rows.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from orbitlog.pipeline.export.compaction_plan import CompactionError, TableFile, table_file
from orbitlog.pipeline.export.delta_export import add_action, open_delta
from orbitlog.pipeline.runtime.location_files import LocationFiles

if TYPE_CHECKING:
    from deltalake import DeltaTable

_APP = "orbitlog-compaction"
_COMMITS_MAX = 20
# Features that change which rows a file has, or what its columns are called, are those of other writers.
_READER_FEATURES = frozenset(("timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"))


class DeltaCompaction:
    """The Delta table of an export."""

    def __init__(self, target: Path | str) -> None:
        self._target = target
        self._files = LocationFiles(target)

    def committed(self) -> int:
        """Return the number of the last compaction, -1 for none."""
        table = self._table()
        version = None if table is None else table.transaction_version(_APP)
        return -1 if version is None else int(version)

    def files(self, days: Collection[str] | None) -> list[TableFile]:
        table = self._table()
        found = () if table is None else _sizes(table).items()
        files = (table_file(path, size_bytes) for path, size_bytes in found)
        return [file for file in files if file is not None and (days is None or file.day in days)]

    def directory(self, day: str) -> str:
        """Return the directory of merged files."""
        return f"dt={day}"

    def replace(self, number: int, old: Sequence[TableFile], new: Sequence[dict[str, Any]]) -> None:
        """Replace files in one commit; raise `CompactionError` if the table no longer has all of them."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError

        properties = CommitProperties(
            custom_metadata={"orbitlogCompaction": {"files": len(old), "into": len(new)}},
            max_commit_retries=0,
            app_transactions=[Transaction(_APP, number)],
        )
        for _ in range(_COMMITS_MAX):
            table = self._table()
            present = {} if table is None else _sizes(table)
            if table is not None and all(str(file["path"]) in present for file in new):
                return  # the commit was made, and its acknowledgement was lost
            if table is None or self.committed() >= number or any(file.path not in present for file in old):
                raise CompactionError(f"another writer has replaced or deleted files of {self._target}; run it again")
            actions = _actions(old, new)
            try:
                table.create_write_transaction(actions, "append", table.schema(), ["dt"], commit_properties=properties)
            except CommitFailedError:
                continue  # another version was committed meanwhile, by an export for example
            except DeltaError as error:
                raise CompactionError(f"could not commit a compaction of {self._target}: {error}") from error
            return
        raise CompactionError(f"could not commit a compaction of {self._target}: other writers commit too often")

    def delete_expired(self) -> int:
        """Delete the files that no version within the retention of the table has; return their number."""
        from deltalake.exceptions import DeltaError

        table = self._table()
        try:
            # Without `full`, deltalake finds no file that was replaced before the last checkpoint of the log. It lists
            # files until their entries leave the log, whether they exist or not.
            listed = [] if table is None else table.vacuum(full=True)
            present = [path for path in listed if self._files.exists(path)]
            if table is not None and present:
                table.vacuum(dry_run=False, full=True)
            return len(present)
        except DeltaError as error:
            raise CompactionError(f"could not delete expired files of {self._target}: {error}") from error

    def _table(self) -> DeltaTable | None:
        table = open_delta(self._files.uri)
        if table is None:
            return None
        features = frozenset(table.protocol().reader_features or ()) - _READER_FEATURES
        if features or "rowTracking" in (table.protocol().writer_features or ()):
            named = ", ".join(sorted(features)) or "rowTracking"
            raise CompactionError(f"{self._target} uses {named}; compact it with the engine that wrote it")
        return table


def _sizes(table: DeltaTable) -> dict[str, int]:
    """Return the size of each file by its path."""
    actions = pa.table(table.get_add_actions(flatten=True))
    return dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))


def _actions(old: Sequence[TableFile], new: Sequence[dict[str, Any]]) -> list[Any]:
    from deltalake.transaction import RemoveAction

    now_ms = int(time.time() * 1000)
    added = [add_action(file, now_ms, changes_data=False) for file in new]
    removed = [
        RemoveAction(
            path=file.path,
            data_change=False,
            deletion_timestamp=now_ms,
            size=file.size_bytes,
            partition_values={"dt": file.day},
        )
        for file in old
    ]
    return [*added, *removed]
