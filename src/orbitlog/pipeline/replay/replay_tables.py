"""Replay tables: lists the data files of one version of a Parquet, Delta or Iceberg table, and reads them in workers.

A plan names a version and its files, so a resumed replay reads the same rows even if the table has grown since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.export.export_plan import STATE_DIRECTORY
from orbitlog.pipeline.export.iceberg_export import latest_metadata
from orbitlog.pipeline.export.parquet_export import ParquetTable

if TYPE_CHECKING:
    from pyiceberg.table import DataScan

TABLE_FORMATS = ("parquet", "delta", "iceberg")
_FILES_MAX = 1_000_000


class ReplayError(OrbitlogError):
    """A replay is invalid, or its source cannot be read; nothing more is sent."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a table: a Delta version, an Iceberg metadata file; empty for plain Parquet files."""

    path: str
    table_format: str
    version: str = ""


def open_version(path: Path, table_format: str) -> TableVersion:
    """Return the current version of a table; raise `ReplayError` without a table."""
    absolute = path.absolute()
    if table_format == "delta":
        return TableVersion(str(absolute), table_format, str(_delta(str(absolute), None).version()))
    if table_format == "iceberg":
        metadata = latest_metadata(absolute)
        if metadata is None:
            raise ReplayError(f"{path} has no Iceberg metadata; give the directory of a table")
        return TableVersion(str(absolute), table_format, str(metadata))
    if not absolute.is_dir():
        raise ReplayError(f"{path} is not a directory with Parquet files")
    return TableVersion(str(absolute), table_format)


def list_files(table: TableVersion) -> list[tuple[str, int]]:
    """Return path and size of each data file, sorted by path."""
    if table.table_format == "iceberg":
        scanned = _iceberg_scan(table).plan_files()
        files = [(task.file.file_path, task.file.file_size_in_bytes) for task in scanned]
    elif table.table_format == "delta":
        actions = pa.table(_delta(table.path, int(table.version)).get_add_actions(flatten=True))
        sizes = dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))
        files = [(path, sizes.get(path, 0)) for path in _delta_dataset(table).files]
    else:
        files = [(str(path), path.stat().st_size) for path in _parquet_files(Path(table.path))]
    if len(files) > _FILES_MAX:
        raise ReplayError(f"{table.path} has {len(files)} files, over the limit of {_FILES_MAX}; compact it first")
    return sorted(files)


def read_file(table: TableVersion, path: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one data file in their order, with the columns of its partition."""
    if table.table_format == "iceberg":
        yield from _iceberg_rows(table, path)
        return
    if table.table_format == "delta":
        dataset = _delta_dataset(table)
        fragments = [fragment for fragment in dataset.get_fragments() if fragment.path == path]
        if not fragments:
            raise ReplayError(f"{path} is not in version {table.version} of {table.path}")
        # With the schema of the table, columns of the partition are added and absent ones are null.
        yield from fragments[0].scanner(schema=dataset.schema, use_threads=False).to_batches()
        return
    parts = pa.dataset.partitioning(flavor="hive")
    dataset = pa.dataset.dataset([path], format="parquet", partitioning=parts, partition_base_dir=table.path)
    yield from dataset.scanner(use_threads=False).to_batches()


def _parquet_files(directory: Path) -> list[Path]:
    if (directory / STATE_DIRECTORY).is_dir():
        return ParquetTable(directory).files()
    names = (path.relative_to(directory) for path in directory.rglob("*.parquet"))
    # Spark and Arrow skip such names: they are files of writers.
    return [directory / name for name in names if not any(part.startswith((".", "_")) for part in name.parts)]


def _delta(path: str, version: int | None) -> Any:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    except ImportError as error:
        raise ReplayError("Delta tables need the package deltalake: pip install 'orbitlog[lake]'") from error
    try:
        return DeltaTable(path, version=version)
    except TableNotFoundError as error:
        raise ReplayError(f"{path} is not a Delta table") from error


def _delta_dataset(table: TableVersion) -> Any:
    return _delta(table.path, int(table.version)).to_pyarrow_dataset()


def _iceberg_scan(table: TableVersion) -> DataScan:
    try:
        from pyiceberg.table import StaticTable
    except ImportError as error:
        raise ReplayError("Iceberg tables need the package pyiceberg: pip install 'orbitlog[lake]'") from error
    return StaticTable.from_metadata(table.version).scan()


def _iceberg_rows(table: TableVersion, path: str) -> Iterator[pa.RecordBatch]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    scan = _iceberg_scan(table)
    tasks = [task for task in scan.plan_files() if task.file.file_path == path]
    if not tasks:
        raise ReplayError(f"{path} is not in {table.version}")
    arrow = ArrowScan(scan.table_metadata, scan.io, scan.projection(), AlwaysTrue())
    yield from arrow.to_record_batches(tasks)
