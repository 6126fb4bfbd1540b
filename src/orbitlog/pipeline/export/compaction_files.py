"""Compaction files: one task merges small Parquet files of one day into a new file, in one Python call.

Sources are read batch by batch and written with the encodings of an export, so memory is bounded by a row group. A task
that runs twice, even concurrently, leaves one complete file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orbitlog.jobs.local_runner import TaskReport
from orbitlog.pipeline.export.compaction_plan import CompactionError
from orbitlog.pipeline.export.export_files import CODE_COLUMNS, ROW_GROUP_BYTES, finish_file, open_parquet_writer
from orbitlog.pipeline.runtime.location_files import LocationFiles

_BATCH_ROWS = 8192


@dataclass(frozen=True, slots=True)
class MergeTask:
    """One task: the files to merge and the file to write, relative to the table."""

    directory: str
    sources: tuple[str, ...]
    source_bytes: int
    output: str
    day: str


def merge_files(task: MergeTask) -> TaskReport:
    """Write the merged file of a task and return its description."""
    files = LocationFiles(task.directory)
    metadata = [_open(files, name) for name in task.sources]
    rows_expected = sum(rows for rows, _ in metadata)
    try:
        schema = pa.unify_schemas([schema for _, schema in metadata])
    except pa.ArrowException as error:
        raise CompactionError(f"files of {task.day} in {files} have different column types: {error}") from None
    directory, _, name = task.output.rpartition("/")
    files.filesystem.create_dir(files.path(directory), recursive=True)
    # An object store shows an object when it is complete: it gets its name at once.
    attempt = f"{directory}/.{name}.{uuid.uuid4().hex}" if files.is_local else task.output
    rows = _write(files, attempt, schema, task.sources)
    if rows != rows_expected:
        raise CompactionError(f"{task.output} has {rows} rows, and the files that it merges have {rows_expected}")
    size_bytes = finish_file(files, attempt, task.output)
    description = {"path": task.output, "day": task.day, "rows": rows, "size_bytes": size_bytes}
    return {"file": description, "scanned_bytes": task.source_bytes, "messages": rows}


def _write(files: LocationFiles, name: str, schema: pa.Schema, sources: Sequence[str]) -> int:
    writer: pq.ParquetWriter | None = None
    rows = 0
    try:
        for table in _row_groups(files, schema, sources):
            if writer is None:
                writer = open_parquet_writer(files, name, schema, table.column("body"))
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
            rows += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    return rows


def _row_groups(files: LocationFiles, schema: pa.Schema, sources: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of all sources in tables of about the size of a row group."""
    pending: list[pa.RecordBatch] = []
    pending_bytes = 0
    for name in sources:
        with files.filesystem.open_input_file(files.path(name)) as source:
            for batch in pq.ParquetFile(source, read_dictionary=CODE_COLUMNS).iter_batches(_BATCH_ROWS):
                pending.append(_with_all_columns(batch, schema))
                pending_bytes += batch.nbytes
                if pending_bytes >= ROW_GROUP_BYTES:
                    yield pa.Table.from_batches(pending, schema).unify_dictionaries()
                    pending, pending_bytes = [], 0
    if pending:
        # With more than one dictionary in a row group, the writer falls back to plain encoding.
        yield pa.Table.from_batches(pending, schema).unify_dictionaries()


def _with_all_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with null in columns that the table gained after its file was written."""
    present = set(batch.schema.names)
    arrays: list[Any] = [
        batch.column(field.name) if field.name in present else pa.nulls(len(batch), field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _open(files: LocationFiles, name: str) -> tuple[int, pa.Schema]:
    """Return rows and schema of a file."""
    with files.filesystem.open_input_file(files.path(name)) as source:
        file = pq.ParquetFile(source, read_dictionary=CODE_COLUMNS)
        return file.metadata.num_rows, file.schema_arrow.remove_metadata()
