"""Export job: writes a topic to Parquet, Delta or Iceberg in batches, each exactly once, resumable at any point.

    save plan -> tasks write files -> commit with the batch number -> next plan

The table stores the number of its last committed batch together with the data. After a crash between any two steps, the
next run can detect whether the planned batch is in the table, and repeats it if not. A streaming export uses the same
steps (`export_stream`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import orjson

from orbitlog.jobs.local_runner import PhaseProgress, Runner, TaskReport, phase_of
from orbitlog.pipeline.export.compaction_locks import WRITER_LOCK, table_lock
from orbitlog.pipeline.export.export_files import ExportTask, export_schema, write_task
from orbitlog.pipeline.export.export_plan import ExportBatch, ExportError, ExportState, plan_batch
from orbitlog.pipeline.export.iceberg_export import IcebergCatalog, IcebergExport
from orbitlog.pipeline.export.parquet_export import ParquetTable
from orbitlog.pipeline.network.network_options import ClusterOptions
from orbitlog.pipeline.runtime.location_files import LocationFiles, is_remote
from orbitlog.pipeline.sources.broker_stores import BrokerStore, log_path_options
from orbitlog.pipeline.sources.json_columns import JsonColumns, parse_json_columns
from orbitlog.pipeline.sources.queue_scan import record_bytes
from orbitlog.pipeline.sources.rate_limit import limit_offsets
from orbitlog.pipeline.sources.read_plan import plan_ranges
from orbitlog.pipeline.sources.source_options import TopicOptions, parse_topic_options
from orbitlog.pipeline.sources.subscribed_queues import open_subscribed_queues
from orbitlog.pipeline.sources.topic_offsets import Offsets, nested

FORMATS = ("parquet", "delta", "iceberg")
BATCH_MESSAGES_DEFAULT = 4_000_000


class ExportTable(Protocol):
    """Target of batches; `committed` returns the number of the last batch in the table, -1 for none."""

    is_hidden: bool
    by_day: bool

    def committed(self) -> int: ...
    def commit(self, batch: ExportBatch, files: list[dict[str, Any]]) -> None: ...


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The topic to export, its stores, and the target."""

    stores: tuple[BrokerStore, ...]
    topic: str
    target: Path | str
    """A local directory, or a URI (`s3://`)."""
    table_format: str = "parquet"
    json_columns: JsonColumns | None = None
    starting: str = "earliest"
    batch_messages: int = BATCH_MESSAGES_DEFAULT
    check_crc: bool = True
    fail_on_data_loss: bool = True
    cluster: ClusterOptions | None = None
    """The cluster to export from; None for stores."""
    catalog: IcebergCatalog | None = None
    """The table of an Iceberg catalog; None for a table that is only a directory."""

    def source_options(self) -> TopicOptions:
        if self.cluster is not None:
            return self._cluster_options(self.cluster)
        paths = ",".join(f"{store.broker_name}={store.root}" for store in self.stores)
        options = {"storePath": paths, "subscribe": self.topic, "startingOffsets": self.starting}
        options |= log_path_options(self.stores)
        options["failOnDataLoss"] = str(self.fail_on_data_loss).lower()
        return parse_topic_options(options, is_stream=True)

    def _cluster_options(self, cluster: ClusterOptions) -> TopicOptions:
        options = {"nameServer": cluster.name_server, "subscribe": self.topic, "startingOffsets": self.starting}
        options["failOnDataLoss"] = str(self.fail_on_data_loss).lower()
        return replace(parse_topic_options(options, is_stream=True), cluster=cluster)

    def as_text(self) -> str:
        """Return the request as JSON, for an option of a data source; it may contain credentials."""
        value = {name: getattr(self, name) for name in ("topic", "table_format", "starting", "batch_messages")}
        value |= {"check_crc": self.check_crc, "fail_on_data_loss": self.fail_on_data_loss}
        stores = [[store.broker_name, store.root, store.log_settings] for store in self.stores]
        value |= {"stores": stores, "target": str(self.target), "json": self._json_fields}
        catalog = None if self.catalog is None else [self.catalog.table, self.catalog.properties]
        value |= {"cluster": self.cluster and self.cluster.as_dict(), "catalog": catalog}
        return orjson.dumps(value).decode()

    @classmethod
    def from_text(cls, text: str) -> ExportRequest:
        value = orjson.loads(text)
        fields = value.pop("json")
        return cls(
            **value
            | {
                "stores": tuple(_named_store(*store) for store in value["stores"]),
                "target": value["target"] if is_remote(value["target"]) else Path(value["target"]),
                "cluster": value["cluster"] and ClusterOptions.from_dict(value["cluster"]),
                "catalog": value["catalog"] and _catalog(*value["catalog"]),
            },
            json_columns=parse_json_columns(", ".join(fields)) if fields else None,
        )

    @property
    def _json_fields(self) -> list[str]:
        return [] if self.json_columns is None else [f"{name} {kind}" for name, kind in self.json_columns.fields]

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that must not change between runs."""
        identity = {
            "topic": self.topic,
            "format": self.table_format,
            "stores": sorted(store.broker_name for store in self.stores),
            "jsonColumns": self._json_fields,
        }
        identity |= {} if self.cluster is None else {"source": "cluster"}
        return identity | ({} if self.catalog is None else {"catalogTable": self.catalog.table})


@dataclass(frozen=True, slots=True)
class ExportedBatch:
    """A committed batch."""

    number: int
    messages: int
    scanned_bytes: int
    files: int
    file_bytes: int
    end: dict[str, Any]
    seconds: float


def open_table(request: ExportRequest) -> ExportTable:
    schema = export_schema(request.json_columns)
    if request.table_format == "delta":
        from orbitlog.pipeline.export.delta_export import DeltaExport

        return DeltaExport(request.target, schema)
    if request.table_format == "iceberg":
        return IcebergExport(request.target, schema, request.catalog)
    if request.table_format != "parquet":
        raise ExportError(f"{request.table_format!r} is not one of {', '.join(FORMATS)}")
    return ParquetTable(request.target)


def export_topic(
    run: Runner, request: ExportRequest, *, progress: PhaseProgress | None = None
) -> Iterator[ExportedBatch]:
    """Export all current messages batch by batch; yield each batch after its commit."""
    options = request.source_options()
    state = ExportState(request.target)
    state.begin(request.identity)
    table = open_table(request)
    with writer_lock(request):
        while True:
            done = table.committed()
            batch = state.load(done + 1)
            if batch is None:
                batch = next_batch(state, request, options, done)
            if batch is None:
                return
            yield _write_batch(run, request, table, batch, progress)


def writer_lock(request: ExportRequest) -> AbstractContextManager[None]:
    """Keep compactions by other processes away from a plain Parquet table; the other formats detect them."""
    if request.table_format != "parquet":
        return nullcontext()
    return table_lock(request.target, WRITER_LOCK, is_required=False)


def next_batch(
    state: ExportState, request: ExportRequest, options: TopicOptions, done: int, until: Offsets | None = None
) -> ExportBatch | None:
    """Plan the batch after the last one, up to `until`, and save the plan; return None if there is nothing new."""
    previous = state.load(done) if done >= 0 else None
    if done >= 0 and previous is None:
        raise ExportError(
            f"{state.directory} has no plan of batch {done}, which {request.target} contains; restore it to continue"
        )
    # The first batch needs every broker: a queue that is found later is exported from its start.
    with open_subscribed_queues(options, must_exist=previous is None) as queues:
        exported: Offsets = {} if previous is None else previous.end
        start = queues.start() if previous is None else dict(exported)
        latest = {**exported, **queues.latest}
        if until is not None:
            latest = {key: max(min(stop, until.get(key, 0)), exported.get(key, 0)) for key, stop in latest.items()}
        for key in latest:
            start.setdefault(key, queues.bounds[key].earliest if key in queues.bounds else 0)
        end = limit_offsets(start, latest, request.batch_messages)
        kept_start, kept_end = queues.clip_to_existing(start, end)
        ranges = plan_ranges(kept_start, kept_end, queues.shapes)
    if not ranges:
        return None
    batch = plan_batch(done + 1, kept_start, kept_end, ranges)
    state.save(batch)
    return batch


def _write_batch(
    run: Runner, request: ExportRequest, table: ExportTable, batch: ExportBatch, progress: PhaseProgress | None
) -> ExportedBatch:
    began = time.monotonic()
    tasks = tasks_of(request, table, batch)
    # Sizes of records are known only to a store; without them no bar is shown.
    is_sized = progress is not None and request.cluster is None
    total_bytes = sum(record_bytes(queue_range) for task in batch.tasks for queue_range in task) if is_sized else 0
    phase = phase_of(progress, f"batch {batch.number}", total_bytes)
    reports = run(write_task, tasks, progress=phase, name=f"export {request.topic}, batch {batch.number}")
    return commit_batch(request, table, batch, reports, began)


def tasks_of(request: ExportRequest, table: ExportTable, batch: ExportBatch) -> list[ExportTask]:
    """Return the tasks of a planned batch; they are the same in every run."""
    return [
        ExportTask(
            batch.number,
            number,
            ranges,
            str(request.target),
            table.is_hidden,
            table.by_day,
            request.json_columns,
            request.check_crc,
            request.fail_on_data_loss,
            request.cluster,
        )
        for number, ranges in enumerate(batch.tasks)
    ]


def commit_batch(
    request: ExportRequest, table: ExportTable, batch: ExportBatch, reports: Sequence[TaskReport], began: float
) -> ExportedBatch:
    """Commit the files that tasks have written to the table."""
    files = [file for report in reports for file in report["files"]]
    # The names must be durable before the commit refers to them.
    location = LocationFiles(request.target)
    for directory in {str(file["path"]).rpartition("/")[0] for file in files}:
        location.sync(directory)
    table.commit(batch, files)
    return ExportedBatch(
        number=batch.number,
        messages=sum(report["messages"] for report in reports),
        scanned_bytes=sum(report["scanned_bytes"] for report in reports),
        files=len(files),
        file_bytes=sum(file["size_bytes"] for file in files),
        end=nested(batch.end),
        seconds=time.monotonic() - began,
    )


def _catalog(table: str, properties: list[list[str]]) -> IcebergCatalog:
    return IcebergCatalog(table, tuple((key, text) for key, text in properties))


def _named_store(broker_name: str, root: str, log_settings: list[list[str]]) -> BrokerStore:
    return BrokerStore(broker_name, root, tuple((key, text) for key, text in log_settings))
