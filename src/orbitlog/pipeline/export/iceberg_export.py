"""Iceberg export: one snapshot per batch, which records the batch's number and range.

The table is a directory in Hadoop-table layout (`metadata/v<N>.metadata.json`, `version-hint.text`), so it needs no
catalog service: `pyiceberg.table.StaticTable.from_metadata` and engines that accept a path can read it. A new version
is hard-linked under its name, which fails if another process has created that version.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from orbitlog.pipeline.export.export_plan import ExportBatch, ExportError, write_whole

if TYPE_CHECKING:
    from pyiceberg.table import Table

_NUMBER = "orbitlog.batch"
_RANGE = "orbitlog.range"
_VERSION = re.compile(r"v([0-9]+)\.metadata\.json")
_NAME = ("orbitlog", "export")


class IcebergExport:
    """Export target: a directory with Iceberg metadata."""

    is_hidden, by_day = False, False

    def __init__(self, target: Path, schema: pa.Schema) -> None:
        self._target = target
        self._schema = schema

    def committed(self) -> int:
        location = latest_metadata(self._target)
        if location is None:
            return -1
        snapshot = _open_table(self._target, location).current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return -1
        return int(snapshot.summary.additional_properties.get(_NUMBER, "-1"))

    def commit(self, batch: ExportBatch, files: Sequence[dict[str, Any]]) -> None:
        location = latest_metadata(self._target) or self._create()
        table = _open_table(self._target, location)
        paths = [str(self._target / file["path"]) for file in files]
        properties = {_NUMBER: str(batch.number), _RANGE: batch.range_id}
        table.add_files(paths, snapshot_properties=properties, check_duplicate_files=False)

    def _create(self) -> Path:
        """Create the table, partitioned by the day of `storeTimestamp`, before its first batch."""
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import assign_fresh_schema_ids
        from pyiceberg.table.metadata import new_table_metadata
        from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
        from pyiceberg.transforms import DayTransform

        schema = assign_fresh_schema_ids(_iceberg_schema(self._schema))
        source_id = schema.find_field("storeTimestamp").field_id
        spec = PartitionSpec(PartitionField(source_id, 1000, DayTransform(), "dt"))
        metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, str(self._target), {"format-version": "2"})
        return _write_version(self._target, 1, metadata.model_dump_json().encode())


def latest_metadata(target: Path) -> Path | None:
    """Return the newest metadata file of a table; the version hint may be older."""
    directory = target / "metadata"
    if not directory.is_dir():
        return None
    versions = {int(match[1]): path for path in directory.iterdir() if (match := _VERSION.fullmatch(path.name))}
    return versions[max(versions)] if versions else None


def _iceberg_schema(schema: pa.Schema) -> Any:
    try:
        from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
    except ImportError as error:
        raise ExportError("Iceberg tables need the package pyiceberg: pip install 'orbitlog[lake]'") from error
    return _pyarrow_to_schema_without_ids(schema, format_version=2)


def _open_table(target: Path, location: Path) -> Table:
    """Open a version of the table; a commit to it creates the next version."""
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io import load_file_io
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import CommitTableResponse, Table
    from pyiceberg.table.update import update_table_metadata

    class DirectoryCatalog(NoopCatalog):
        """A catalog of this one table."""

        def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
            for requirement in requirements:
                requirement.validate(table.metadata)
            metadata = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
            match = _VERSION.fullmatch(Path(table.metadata_location).name)
            assert match is not None
            written = _write_version(target, int(match[1]) + 1, metadata.model_dump_json().encode())
            return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": str(written)})

    io = load_file_io({}, str(location))
    metadata = FromInputFile.table_metadata(io.new_input(str(location)))
    return Table(_NAME, metadata, str(location), io, DirectoryCatalog("directory"))


def _write_version(target: Path, version: int, data: bytes) -> Path:
    """Write a version durably; raise `ExportError` if another process has written it."""
    path = target / "metadata" / f"v{version}.metadata.json"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    write_whole(temporary, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise ExportError(f"another process is writing to {target}: version {version} already exists") from None
    finally:
        temporary.unlink(missing_ok=True)
    write_whole(path.with_name("version-hint.text"), str(version).encode())
    return path
