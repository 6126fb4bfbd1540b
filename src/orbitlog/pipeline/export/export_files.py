"""Export files: one task writes the messages of its queue ranges into Parquet files, one per day, in one Python call.

File names follow from batch, task and day. A file is written under a name unique to the attempt and then renamed, so a
task that runs twice, even concurrently, leaves the same files. Rows are sorted by queue and offset.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from orbitlog.jobs.local_runner import TaskReport
from orbitlog.pipeline.network.network_options import ClusterOptions
from orbitlog.pipeline.runtime.location_files import LocationFiles
from orbitlog.pipeline.sources.json_columns import JsonColumns
from orbitlog.pipeline.sources.message_columns import MESSAGE_COLUMNS, Rows, columns_needed, constant_codes
from orbitlog.pipeline.sources.queue_scan import IDENTITY_COLUMNS, ScanRules
from orbitlog.pipeline.sources.range_scan import open_scan
from orbitlog.pipeline.sources.read_plan import QueueRange
from orbitlog.storefiles.disk import start_writeback

DAY_MS = 86_400_000
EXPORTED = tuple(name for name, column in MESSAGE_COLUMNS.items() if column.by_default)
_KINDS = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
# Columns with few distinct values are passed as dictionary arrays, so that the writer does not hash each row.
_CODES: Mapping[str, Callable[[Rows, QueueRange], pa.Array]] = {
    "topic": lambda rows, queue_range: constant_codes(queue_range.topic, len(rows)),
    "brokerName": lambda rows, queue_range: constant_codes(queue_range.shape.broker_name, len(rows)),
    "bornHost": lambda rows, _: rows.host_codes("born_host_raw"),
    "storeHost": lambda rows, _: rows.host_codes("store_host_raw"),
}
CODE_COLUMNS = list(_CODES)
_CODE_TYPE = pa.dictionary(pa.int32(), pa.string())
# Property names repeat in every row: dictionary encoding makes writing them a third faster.
_DICTIONARIES = [*_CODES, "tags", "properties.key_value.key"]
# Ascending numbers are delta-encoded: a third of the time, and half of the bytes.
_DIFFERENCES = {
    name: "DELTA_BINARY_PACKED" for name in ("queueOffset", "bornTimestamp", "storeTimestamp", "commitLogOffset")
}
_STATISTICS = ["queueId", *_DIFFERENCES]
_OPEN_FILES_MAX = 32
ROW_GROUP_BYTES = 32 * 1024 * 1024
_COMPRESSION = "zstd"  # at Arrow's own level, the first
# Incompressible bodies (random, encrypted or already compressed) shrink little, and compressing them takes half of the
# time of a file of 1 KB bodies. Snappy gives up early on such data.
_COMPRESSION_OF_INCOMPRESSIBLE = "snappy"
_COMPRESSIBLE_RATIO = 0.7
_SAMPLE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class ExportTask:
    """One task: the ranges to export, the target directory, and how to name the files."""

    batch_number: int
    task_number: int
    ranges: tuple[QueueRange, ...]
    directory: str
    is_hidden: bool
    """Whether files get a leading dot until a commit lists them."""
    by_day: bool
    """Whether each day gets a directory `dt=2026-01-31`."""
    json_columns: JsonColumns | None
    check_crc: bool
    fail_on_data_loss: bool
    cluster: ClusterOptions | None = None
    """The cluster to read; None if the ranges are of stores."""


def export_schema(json_columns: JsonColumns | None) -> pa.Schema:
    """Return the schema of the files."""
    fields = [pa.field(name, _KINDS[MESSAGE_COLUMNS[name].kind]) for name in EXPORTED]
    return pa.schema([*fields, *(json_columns.arrow_fields if json_columns else [])])


def _writer_schema(json_columns: JsonColumns | None) -> pa.Schema:
    """Return the schema of the batches passed to the writer; the files have that of `export_schema`."""
    schema = export_schema(json_columns)
    for name in _CODES:
        schema = schema.set(schema.get_field_index(name), pa.field(name, _CODE_TYPE))
    return schema


def write_task(task: ExportTask) -> TaskReport:
    """Write the files of a task and return their descriptions."""
    needs = [need for name in EXPORTED for need in MESSAGE_COLUMNS[name].needs]
    scan = open_scan(
        columns_needed(needs, (*IDENTITY_COLUMNS, "store_timestamp_ms", "size_bytes")),
        ScanRules((), task.check_crc, task.fail_on_data_loss),
        task.cluster,
    )
    files = _DayFiles(task)
    scanned_bytes = messages = 0
    for queue_range, batch in scan.read(task.ranges):
        scanned_bytes += int(batch.column("size_bytes").to_numpy().sum())
        messages += batch.num_rows
        for day, rows in _by_day(batch):
            files.write(day, _exported(rows, queue_range, task.json_columns))
    return {"files": files.close(), "scanned_bytes": scanned_bytes, "messages": messages}


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split rows by the day on which they were stored; usually there is one."""
    if not batch.num_rows:
        return
    days = batch.column("store_timestamp_ms").to_numpy(zero_copy_only=True) // DAY_MS
    if days[0] == days[-1] and (days == days[0]).all():
        yield int(days[0]), batch
        return
    for day in np.unique(days).tolist():
        yield day, batch.filter(pa.array(days == day))


def _exported(batch: pa.RecordBatch, queue_range: QueueRange, json_columns: JsonColumns | None) -> pa.RecordBatch:
    rows = Rows(batch, queue_range.shape.broker_name, inflate=True)
    arrays: list[Any] = [
        _CODES[name](rows, queue_range) if name in _CODES else MESSAGE_COLUMNS[name].make(rows) for name in EXPORTED
    ]
    if json_columns is not None:
        columns, kept = json_columns.split_bodies(arrays[EXPORTED.index("body")])
        arrays[EXPORTED.index("body")] = kept
        arrays += columns
    return pa.RecordBatch.from_arrays(arrays, schema=_writer_schema(json_columns))


class _DayFiles:
    """The open files of a task by day; closes the least recently used one if there are too many."""

    def __init__(self, task: ExportTask) -> None:
        self._task = task
        self._open: dict[int, _DayFile] = {}
        self._counts: dict[int, int] = {}
        self._closed: list[dict[str, Any]] = []

    def write(self, day: int, batch: pa.RecordBatch) -> None:
        file = self._open.pop(day, None)
        if file is None:
            if len(self._open) >= _OPEN_FILES_MAX:
                self._closed.append(self._open.pop(next(iter(self._open))).close())
            sequence = self._counts.get(day, 0)
            self._counts[day] = sequence + 1
            file = _DayFile(self._task, day, sequence)
        self._open[day] = file
        file.write(batch)

    def close(self) -> list[dict[str, Any]]:
        """Close all files and return their descriptions."""
        self._closed += [file.close() for file in self._open.values()]
        self._open.clear()
        return sorted(self._closed, key=lambda description: str(description["path"]))


class _DayFile:
    """A Parquet file that is being written."""

    def __init__(self, task: ExportTask, day: int, sequence: int) -> None:
        self._day = datetime.fromtimestamp(day * DAY_MS // 1000, UTC).date().isoformat()
        name = f"part-{task.batch_number:08d}-{task.task_number:05d}-{self._day}-{sequence:03d}.parquet"
        self._relative = f"dt={self._day}/{name}" if task.by_day else f"data/{name}"
        self._files = LocationFiles(task.directory)
        directory = self._relative.rpartition("/")[0]
        self._files.filesystem.create_dir(self._files.path(directory), recursive=True)
        self._staged = f"{directory}/.{name}" if task.is_hidden else self._relative
        # An object store shows an object when it is complete: it gets its name at once.
        self._attempt = f"{directory}/.{name}.{uuid.uuid4().hex}" if self._files.is_local else self._staged
        self._rows = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._schema = _writer_schema(task.json_columns)
        self._writer: pq.ParquetWriter | None = None
        self._begun_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._pending_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            # With more than one dictionary in a row group, the writer falls back to plain encoding.
            table = pa.Table.from_batches(self._pending, self._schema).unify_dictionaries()
            if self._writer is None:
                self._writer = open_parquet_writer(self._files, self._attempt, self._schema, table.column("body"))
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self._pending, self._pending_bytes = [], 0
            if self._files.is_local:
                self._start_writeback()

    def _start_writeback(self) -> None:
        """Start writeback of the data so far, so that the final fsync has less to wait for."""
        with Path(self._files.path(self._attempt)).open("rb") as file:
            written_bytes = os.fstat(file.fileno()).st_size
            start_writeback(file.fileno(), self._begun_bytes, written_bytes - self._begun_bytes)
        self._begun_bytes = written_bytes

    def close(self) -> dict[str, Any]:
        """Sync the file and rename it to its final or staged name; return its description."""
        self._flush()
        assert self._writer is not None, "a file is opened with its first rows"
        self._writer.close()
        size_bytes = finish_file(self._files, self._attempt, self._staged)
        return {"path": self._relative, "day": self._day, "rows": self._rows, "size_bytes": size_bytes}


def finish_file(files: LocationFiles, attempt: str, name: str) -> int:
    """Sync a file and rename it from the name of its attempt; return its size."""
    if files.is_local:
        path = Path(files.path(attempt))
        # Synced before the rename: a power cut must not leave the name with incomplete data.
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        path.replace(files.path(name))
    return int(files.filesystem.get_file_info(files.path(name)).size)


def open_parquet_writer(
    files: LocationFiles, name: str, schema: pa.Schema, bodies: pa.ChunkedArray
) -> pq.ParquetWriter:
    """Open a file with compression chosen by its first bodies; the same rows always produce the same file."""
    return pq.ParquetWriter(
        files.path(name),
        schema,
        filesystem=files.filesystem,
        compression={name: _COMPRESSION for name in _leaves(schema)} | {"body": _body_compression(bodies)},
        use_dictionary=_DICTIONARIES,
        column_encoding=_DIFFERENCES,
        write_statistics=_STATISTICS,
        store_schema=False,  # would store the dictionary types of `_writer_schema`
    )


def _leaves(schema: pa.Schema) -> Iterator[str]:
    """Yield the leaf columns of the Parquet schema: a map has one of keys and one of values."""
    for field in schema:
        if pa.types.is_map(field.type):
            yield from (f"{field.name}.key_value.{leaf}" for leaf in ("key", "value"))
        else:
            yield field.name


def _body_compression(bodies: pa.ChunkedArray) -> str:
    """Return the codec for bodies, chosen by compressing a sample of the first ones."""
    chunk = bodies.chunk(0)
    data = chunk.buffers()[2]
    if data is None or not data.size:
        return _COMPRESSION
    first, last = (int(chunk.offset), int(chunk.offset) + len(chunk))
    ends = np.frombuffer(chunk.buffers()[1], np.int32)
    sample = data[ends[first] : min(ends[last], ends[first] + _SAMPLE_BYTES)]
    shrunk = pa.Codec(_COMPRESSION).compress(sample)
    return _COMPRESSION if shrunk.size < _COMPRESSIBLE_RATIO * len(sample) else _COMPRESSION_OF_INCOMPRESSIBLE
