"""Iceberg export: one snapshot per batch, which records the batch's number and range.

Without a catalog the table is a directory in Hadoop-table layout (`metadata/v<N>.metadata.json`, `version-hint.text`):
`pyiceberg.table.StaticTable.from_metadata` and engines that accept a path can read it. In a local directory a new
version is hard-linked under its name, which fails if another process has created that version. With a catalog (SQL,
REST and others of pyiceberg) the catalog makes the commit atomic.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from orbitlog.pipeline.export.export_plan import ExportBatch, ExportError, write_whole
from orbitlog.pipeline.runtime.location_files import LocationFiles, s3_endpoint

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_NUMBER = "orbitlog.batch"
_RANGE = "orbitlog.range"
_VERSION = re.compile(r"v([0-9]+)\.metadata\.json")
_NAME = ("orbitlog", "export")
COMMITS_MAX = 20


class VersionTaken(ExportError):
    """Another process has created the version that a commit would create."""


@dataclass(frozen=True, slots=True)
class IcebergCatalog:
    """A table of a catalog; `properties` are those of pyiceberg's `load_catalog` and its `name` ("default").

    They may contain credentials.
    """

    table: str
    properties: tuple[tuple[str, str], ...] = ()


class IcebergExport:
    """Export target: a directory with Iceberg metadata, or a table of a catalog whose files are in the directory."""

    is_hidden, by_day = False, False

    def __init__(self, target: Path | str, schema: pa.Schema, catalog: IcebergCatalog | None = None) -> None:
        # pyiceberg warns once for each file and column without statistics; exports leave them out on purpose.
        logging.getLogger("pyiceberg.io.pyarrow").addFilter(_is_wanted)
        self._files = LocationFiles(target)
        self._schema = schema
        self._catalog = catalog

    def committed(self) -> int:
        return _last_batch(self.table())

    def commit(self, batch: ExportBatch, files: Sequence[dict[str, Any]]) -> None:
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(COMMITS_MAX):
            try:
                table = self.table() or self._create()
                if _last_batch(table) >= batch.number:
                    break
                return self._commit_to(table, batch, files)
            except (VersionTaken, CommitFailedException):
                continue  # by a compaction, or by another export, whose batch is then in the table
        raise _other_writer(str(self._files), f"batch {batch.number} or a version of the table")

    def _commit_to(self, table: Table, batch: ExportBatch, files: Sequence[dict[str, Any]]) -> None:
        paths = [f"{self._files.uri}/{file['path']}" for file in files]
        properties = {_NUMBER: str(batch.number), _RANGE: batch.range_id}
        # The property of the table outlives its snapshots, which other writers may expire.
        with table.transaction() as transaction:
            transaction.set_properties({_NUMBER: str(batch.number)})
            present = {field.name for field in table.schema().fields}
            if missing := [field for field in self._schema if field.name not in present]:
                # Columns that the schema has since gained: rows so far have null in them.
                with transaction.update_schema() as update:
                    update.union_by_name(pa.schema(missing))
            transaction.add_files(paths, snapshot_properties=properties, check_duplicate_files=False)

    def table(self) -> Table | None:
        """Return the current version of the table, or None."""
        if self._catalog is None:
            location = latest_metadata(self._files.uri)
            return None if location is None else _open_table(self._files, location)
        catalog = _load_catalog(self._catalog)
        if not catalog.table_exists(self._catalog.table):
            return None
        table: Table = catalog.load_table(self._catalog.table)
        if table.location().rstrip("/") != self._location:
            raise ExportError(
                f"table {self._catalog.table} is at {table.location()}, not at {self._location}; give that directory,"
                " or another table"
            )
        return table

    @property
    def _location(self) -> str:
        return f"file://{self._files.uri}" if self._files.is_local and self._catalog is not None else self._files.uri

    def _create(self) -> Table:
        """Create the table, partitioned by the day of `storeTimestamp`, before its first batch."""
        from pyiceberg.schema import assign_fresh_schema_ids
        from pyiceberg.table.metadata import new_table_metadata
        from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

        schema = assign_fresh_schema_ids(_iceberg_schema(self._schema))
        if self._catalog is not None:
            catalog = _load_catalog(self._catalog)
            catalog.create_namespace_if_not_exists(self._catalog.table.rpartition(".")[0])
            created: Table = catalog.create_table(
                self._catalog.table, schema, location=self._location, partition_spec=_by_day(schema)
            )
            return created
        metadata = new_table_metadata(
            schema, _by_day(schema), UNSORTED_SORT_ORDER, self._location, {"format-version": "2"}
        )
        return _open_table(self._files, _write_version(self._files, 1, metadata.model_dump_json().encode()))


def _is_wanted(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("PyArrow statistics missing for column")


def _last_batch(table: Table | None) -> int:
    if table is None:
        return -1
    number = table.properties.get(_NUMBER)
    if number is not None:
        return int(number)
    # Tables of earlier versions have the number in their snapshots alone.
    summaries = [snapshot.summary.additional_properties for snapshot in table.snapshots() if snapshot.summary]
    return max((int(summary.get(_NUMBER, "-1")) for summary in summaries), default=-1)


def _by_day(schema: Schema) -> PartitionSpec:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform

    return PartitionSpec(PartitionField(schema.find_field("storeTimestamp").field_id, 1000, DayTransform(), "dt"))


def _load_catalog(catalog: IcebergCatalog) -> Any:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise ExportError("Iceberg tables need the package pyiceberg: pip install 'orbitlog[lake]'") from error
    properties = {**_io_properties(), **dict(catalog.properties)}
    # An SQL catalog keeps the tables of several catalogs apart by their names.
    return load_catalog(properties.pop("name", "default"), **properties)


def _io_properties() -> Mapping[str, str]:
    """Return the settings of AWS tools that pyiceberg does not read from the environment."""
    given = {"s3.endpoint": s3_endpoint(), "s3.region": os.environ.get("AWS_REGION")}
    return {name: value for name, value in given.items() if value}


def latest_metadata(target: Path | str) -> str | None:
    """Return the newest metadata file of a table; the version hint may be older."""
    files = LocationFiles(target)
    versions = {int(match[1]): name for name in files.names("metadata") if (match := _VERSION.fullmatch(name))}
    return f"{files.uri}/metadata/{versions[max(versions)]}" if versions else None


def _iceberg_schema(schema: pa.Schema) -> Any:
    try:
        from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
    except ImportError as error:
        raise ExportError("Iceberg tables need the package pyiceberg: pip install 'orbitlog[lake]'") from error
    return _pyarrow_to_schema_without_ids(schema, format_version=2)


def _open_table(files: LocationFiles, location: str) -> Table:
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
            written = _write_version(files, int(match[1]) + 1, metadata.model_dump_json().encode())
            return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": written})

    io = load_file_io(dict(_io_properties()), location)
    metadata = FromInputFile.table_metadata(io.new_input(location))
    return Table(_NAME, metadata, location, io, DirectoryCatalog("directory"))


def _write_version(files: LocationFiles, version: int, data: bytes) -> str:
    """Write a version durably; raise `ExportError` if another process has written it."""
    name = f"metadata/v{version}.metadata.json"
    if files.is_local:
        _link_version(Path(files.path(name)), data)
    elif files.exists(name):
        raise _other_writer(str(files), f"version {version}")
    else:
        files.write(name, data)
    files.write("metadata/version-hint.text", str(version).encode())
    return f"{files.uri}/{name}"


def _link_version(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    write_whole(temporary, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise _other_writer(str(path.parent.parent), f"version {path.name[1:].partition('.')[0]}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _other_writer(target: str, present: str) -> VersionTaken:
    return VersionTaken(f"another process is writing to {target}: {present} already exists")
