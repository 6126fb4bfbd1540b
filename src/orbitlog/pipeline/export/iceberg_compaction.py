"""Iceberg compaction: one snapshot of operation `replace` deletes small files and adds the files merged from them.

pyiceberg 0.12 offers appends, overwrites and deletes only. The snapshot is made by its overwrite, which verifies that
the deleted files are in the table, and has the operation that Iceberg defines for compactions: readers of changes then
skip it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from orbitlog.pipeline.export.compaction_plan import CompactionError, TableFile, table_file
from orbitlog.pipeline.export.iceberg_export import COMMITS_MAX, IcebergCatalog, IcebergExport, VersionTaken
from orbitlog.pipeline.runtime.location_files import LocationFiles

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_NUMBER = "orbitlog.compaction"
_SNAPSHOT_AGE_MS = 5 * 86_400_000  # the default of Iceberg


class IcebergCompaction:
    """The Iceberg table of an export: a directory, or a table of a catalog."""

    def __init__(self, target: Path | str, catalog: IcebergCatalog | None = None) -> None:
        self._target = target
        self._uri = LocationFiles(target).uri
        self._export = IcebergExport(target, pa.schema([]), catalog)

    def committed(self) -> int:
        """Return the number of the last compaction, -1 for none."""
        return _number(self._export.table())

    def files(self, days: Collection[str] | None) -> list[TableFile]:
        found = ((path, file.file_size_in_bytes) for path, file in self._data_files(self._export.table()).items())
        files = (table_file(path, size_bytes) for path, size_bytes in found)
        return [file for file in files if file is not None and (days is None or file.day in days)]

    def directory(self, day: str) -> str:
        """Return the directory of merged files."""
        return "data"

    def replace(self, number: int, old: Sequence[TableFile], new: Sequence[dict[str, Any]]) -> None:
        """Replace files in one snapshot; raise `CompactionError` if the table no longer has all of them."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        for _ in range(COMMITS_MAX):
            table = self._export.table()
            present = self._data_files(table)
            if all(str(file["path"]) in present for file in new):
                return  # the commit was made, and its acknowledgement was lost
            if table is None or _number(table) >= number or any(file.path not in present for file in old):
                raise CompactionError(f"another writer has replaced or deleted files of {self._target}; run it again")
            try:
                self._commit(table, number, [present[file.path] for file in old], new)
            except (VersionTaken, CommitFailedException, ValidationException):
                continue  # another version was committed meanwhile, by an export for example
            return
        raise CompactionError(f"could not commit a compaction of {self._target}: other writers commit too often")

    def delete_expired(self) -> int:
        """Expire snapshots by the properties of the table, and delete the files that only they have.

        Return the number of deleted data files. A kill after the commit leaves files that no snapshot has.
        """
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(COMMITS_MAX):
            table = self._export.table()
            expired = [] if table is None else expired_snapshots(table, int(time.time() * 1000))
            if table is None or not expired:
                return 0
            data_files, metadata_files = _files_of_only(table, expired)
            try:
                table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in expired]).commit()
            except (VersionTaken, CommitFailedException):
                continue
            for path in (*data_files, *metadata_files):
                table.io.delete(path)
            return len(data_files)
        raise CompactionError(f"could not expire snapshots of {self._target}: other writers commit too often")

    def _commit(self, table: Table, number: int, old: Sequence[DataFile], new: Sequence[dict[str, Any]]) -> None:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        with table.transaction() as transaction:
            transaction.set_properties({_NUMBER: str(number)})
            with _replace_files(transaction, {_NUMBER: str(number)}) as snapshot:
                for file in old:
                    snapshot.delete_data_file(file)
                for description in new:
                    path = f"{self._uri}/{description['path']}"
                    snapshot.append_data_file(parquet_file_to_data_file(table.io, transaction.table_metadata, path))

    def _data_files(self, table: Table | None) -> dict[str, DataFile]:
        """Return the data files below the target that have no delete files, by their relative paths."""
        if table is None:
            return {}
        prefixes = (f"{self._uri}/", f"file://{self._uri}/")
        files: dict[str, DataFile] = {}
        for task in table.scan().plan_files():
            path = task.file.file_path
            prefix = next((prefix for prefix in prefixes if path.startswith(prefix)), None)
            if prefix is not None and not task.delete_files and task.file.spec_id == table.spec().spec_id:
                files[path.removeprefix(prefix)] = task.file
        return files


def expired_snapshots(table: Table, now_ms: int) -> list[Snapshot]:
    """Return the snapshots that may expire by the properties of the table; those of branches and tags may not."""
    age_ms = int(table.properties.get("history.expire.max-snapshot-age-ms", _SNAPSHOT_AGE_MS))
    kept_min = int(table.properties.get("history.expire.min-snapshots-to-keep", "1"))
    protected = {reference.snapshot_id for reference in table.metadata.refs.values()}
    newest = sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms, reverse=True)[:kept_min]
    protected |= {snapshot.snapshot_id for snapshot in newest}
    return [
        snapshot
        for snapshot in table.snapshots()
        if snapshot.snapshot_id not in protected and snapshot.timestamp_ms < now_ms - age_ms
    ]


def _files_of_only(table: Table, expired: Sequence[Snapshot]) -> tuple[set[str], set[str]]:
    """Return the data files and the metadata files that only these snapshots have."""
    gone = {snapshot.snapshot_id for snapshot in expired}
    manifests: dict[bool, dict[str, ManifestFile]] = {True: {}, False: {}}
    for snapshot in table.snapshots():
        found = {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
        manifests[snapshot.snapshot_id in gone].update(found)
    unused = {path: manifest for path, manifest in manifests[True].items() if path not in manifests[False]}
    kept = _live_files(table, manifests[False].values())
    lists = {snapshot.manifest_list for snapshot in expired}
    return _live_files(table, unused.values()) - kept, {*unused, *lists}


def _live_files(table: Table, manifests: Iterable[ManifestFile]) -> set[str]:
    return {
        entry.data_file.file_path
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }


def _number(table: Table | None) -> int:
    return -1 if table is None else int(table.properties.get(_NUMBER, "-1"))


def _replace_files(transaction: Any, properties: Mapping[str, str]) -> Any:
    """Return an update that replaces data files in one snapshot, without a change of rows."""
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    class ReplaceFiles(_OverwriteFiles):
        """An overwrite whose snapshot states that no row has changed."""

        def _summary(self, snapshot_properties: Mapping[str, str] = properties) -> Summary:
            summary = super()._summary(dict(snapshot_properties))
            return Summary(Operation.REPLACE, **summary.additional_properties)

    return ReplaceFiles(
        operation=Operation.OVERWRITE,
        transaction=transaction,
        io=transaction._table.io,
        snapshot_properties=dict(properties),
    )
