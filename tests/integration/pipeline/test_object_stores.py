"""Exports, replays and marks on an S3 server, and tables of a catalog: the same rows as in a local directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("moto")

import pyarrow as pa
import pyarrow.dataset
from pyarrow import fs
from pyspark.sql import types as T

from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export import compaction_job, compaction_records, iceberg_compaction
from orbitlog.pipeline.export.compaction_job import (
    CompactionRequest,
    compact_table,
    delete_expired,
    plan_compaction,
)
from orbitlog.pipeline.export.compaction_plan import CompactionError
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
from orbitlog.pipeline.export.export_plan import ExportError
from orbitlog.pipeline.export.iceberg_export import IcebergCatalog, IcebergExport, latest_metadata
from orbitlog.pipeline.export.parquet_export import ParquetTable
from orbitlog.pipeline.network.cluster_session import close_sessions
from orbitlog.pipeline.network.network_options import ClusterOptions, parse_cluster_options
from orbitlog.pipeline.runtime.location_files import LocationFiles
from orbitlog.pipeline.sink.partition_write import write_partition
from orbitlog.pipeline.sink.sink_columns import SinkColumns
from orbitlog.pipeline.sink.sink_options import parse_sink_options
from orbitlog.pipeline.sink.write_identity import WriteIdentity
from orbitlog.pipeline.sources.source_options import TOPIC_OPTIONS, OptionReader
from orbitlog.testing.running_broker import RunningBroker
from tests.support.s3_server import aws_settings, s3_server

TOPIC, BUCKET, MESSAGES = "Orders", "lake", 30


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(autouse=True)
def object_store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, text in aws_settings(endpoint).items():
        monkeypatch.setenv(name, text)
    files = fs.S3FileSystem(endpoint_override=endpoint, region="us-east-1", allow_bucket_creation=True)
    files.create_dir(BUCKET)
    yield files
    close_sessions()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("store")) as running:
        with running.connect() as mq:
            for number in range(MESSAGES):
                mq.send(TOPIC, f"body {number}")
        yield running


def cluster(broker: RunningBroker) -> ClusterOptions:
    return parse_cluster_options(OptionReader({"nameServer": broker.address}, TOPIC_OPTIONS))


def rows_of(target: str, table_format: str, files: Any, endpoint: str) -> list[bytes]:
    """Read a table with an independent reader."""
    if table_format == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(target).to_pyarrow_dataset().to_table()
    elif table_format == "iceberg":
        from pyiceberg.table import StaticTable

        properties = {"s3.endpoint": endpoint, "s3.region": "us-east-1"}
        table = StaticTable.from_metadata(str(latest_metadata(target)), properties).scan().to_arrow()
    else:
        table = pa.dataset.dataset(target.removeprefix("s3://"), filesystem=files, format="parquet").to_table()
    return sorted(table.column("body").to_pylist())


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_export_to_s3_has_each_message_once_over_several_runs(
    broker: RunningBroker, object_store: Any, endpoint: str, table_format: str
) -> None:
    target = f"s3://{BUCKET}/{table_format}"
    request = ExportRequest((), TOPIC, target, table_format, batch_messages=12, check_crc=True, cluster=cluster(broker))
    batches = list(export_topic(run_here, request))
    assert sum(batch.messages for batch in batches) == MESSAGES
    assert len(batches) > 1
    assert list(export_topic(run_here, request)) == []  # nothing is new
    assert rows_of(target, table_format, object_store, endpoint) == sorted(
        b"body %d" % number for number in range(MESSAGES)
    )
    assert ExportRequest.from_text(request.as_text()) == request
    if table_format == "parquet":
        names = ParquetTable(target).names()
        listed = LocationFiles(target).names(names[0].rpartition("/")[0], hidden=True)
        assert sorted(name.rpartition("/")[2] for name in names) == listed
    foreign = f"s3://{BUCKET}/foreign-{table_format}"
    LocationFiles(foreign).write("notes.txt", b"mine")
    with pytest.raises(ExportError, match="not empty"):
        list(export_topic(run_here, ExportRequest((), TOPIC, foreign, table_format, cluster=cluster(broker))))


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_compaction_on_s3_leaves_each_message_once(
    broker: RunningBroker,
    object_store: Any,
    endpoint: str,
    table_format: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = f"s3a://{BUCKET}/compacted-{table_format}"
    request = ExportRequest((), TOPIC, target, table_format, batch_messages=8, cluster=cluster(broker))
    assert len(list(export_topic(run_here, request))) == 4
    (plan,) = plan_compaction(CompactionRequest(target))
    directory = plan.files[0].path.rpartition("/")[0]
    present = set(LocationFiles(target).names(directory))

    def killed(function: Any, tasks: Any, **more: Any) -> Any:
        run_here(function, tasks, **more)
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        list(compact_table(killed, CompactionRequest(target)))
    written = set(LocationFiles(target).names(directory)) - present
    assert len(written) == 1
    # There are no locks: the killed compaction may still run, until it is a day old.
    with pytest.raises(CompactionError, match="has not ended; if it was killed, wait until it is a day old, or delete"):
        list(compact_table(run_here, CompactionRequest(target)))
    monkeypatch.setattr(compaction_records, "_ABANDONED_MS", 0)
    (day,) = compact_table(run_here, CompactionRequest(target))
    left = set(LocationFiles(target).names(directory))
    assert len(left - present) == 1
    assert not left & written
    assert (day.files, day.new_files, day.messages) == (len(plan.files), 1, MESSAGES)
    expected = sorted(b"body %d" % number for number in range(MESSAGES))
    assert rows_of(target.replace("s3a:", "s3:"), table_format, object_store, endpoint) == expected
    assert list(compact_table(run_here, CompactionRequest(target))) == []
    assert list(export_topic(run_here, request)) == []
    assert LocationFiles(target).names("_orbitlog/compactions") == []
    assert delete_expired(CompactionRequest(target)) == 0
    if table_format == "delta":
        from deltalake import DeltaTable

        properties = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
        DeltaTable(target.replace("s3a:", "s3:")).alter.set_table_properties(properties)
    else:
        table = IcebergExport(target, pa.schema([])).table()
        assert table is not None
        with table.transaction() as transaction:
            transaction.set_properties({"history.expire.max-snapshot-age-ms": "-1000"})
    assert delete_expired(CompactionRequest(target)) == len(plan.files)
    assert LocationFiles(target).names(directory) == sorted(left - present)
    assert rows_of(target.replace("s3a:", "s3:"), table_format, object_store, endpoint) == expected


def test_compaction_of_parquet_files_on_s3_is_refused(broker: RunningBroker) -> None:
    target = f"s3://{BUCKET}/plain"
    list(export_topic(run_here, ExportRequest((), TOPIC, target, cluster=cluster(broker))))
    with pytest.raises(CompactionError, match="is a plain Parquet table on an object store"):
        list(compact_table(run_here, CompactionRequest(target)))


@pytest.mark.parametrize("is_remote", [False, True])
def test_iceberg_table_of_a_sql_catalog(
    broker: RunningBroker, tmp_path: Path, endpoint: str, *, is_remote: bool
) -> None:
    from pyiceberg.catalog import load_catalog

    target: Path | str = f"s3a://{BUCKET}/catalog" if is_remote else tmp_path / "lake"
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    catalog = IcebergCatalog("shop.orders", tuple(properties.items()))
    request = ExportRequest((), TOPIC, target, "iceberg", batch_messages=20, cluster=cluster(broker), catalog=catalog)
    assert sum(batch.messages for batch in export_topic(run_here, request)) == MESSAGES
    assert list(export_topic(run_here, request)) == []
    # The state of another reader: a catalog of its own.
    table = load_catalog("default", **properties, **{"s3.endpoint": endpoint, "s3.region": "us-east-1"}).load_table(
        "shop.orders"
    )
    bodies = sorted(table.scan().to_arrow().column("body").to_pylist())
    assert bodies == sorted(b"body %d" % number for number in range(MESSAGES))
    assert ExportRequest.from_text(request.as_text()) == request
    (day,) = compact_table(run_here, CompactionRequest(target, catalog=catalog))
    assert (day.new_files, day.messages) == (1, MESSAGES)
    assert sorted(table.refresh().scan().to_arrow().column("body").to_pylist()) == bodies
    with pytest.raises(CompactionError, match=r"is table shop\.orders of a catalog; give --catalog-table"):
        list(compact_table(run_here, CompactionRequest(target)))
    elsewhere = ExportRequest((), TOPIC, tmp_path / "other", "iceberg", cluster=cluster(broker), catalog=catalog)
    with pytest.raises(ExportError, match="give that directory"):
        list(export_topic(run_here, elsewhere))


def test_commits_at_once_into_a_table_of_a_sql_catalog_keep_each_message_once(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    catalog = IcebergCatalog("shop.orders", tuple(properties.items()))
    target = tmp_path / "lake"
    request = ExportRequest((), TOPIC, target, "iceberg", batch_messages=5, cluster=cluster(broker), catalog=catalog)
    batches = export_topic(run_here, request)
    for _ in range(4):
        next(batches)
    asked = CompactionRequest(target, catalog=catalog)
    replace_files = iceberg_compaction._replace_files
    exported: list[int] = []

    def export_first(*arguments: Any) -> Any:
        """Export between the check of a compaction and its commit."""
        exported.append(sum(batch.messages for batch in batches))
        return replace_files(*arguments)

    monkeypatch.setattr(iceberg_compaction, "_replace_files", export_first)
    (day,) = compact_table(run_here, asked)
    assert (day.files, day.new_files) == (4, 1)
    assert exported[0] > 0

    def compacted_first(*arguments: Any) -> Any:
        monkeypatch.setattr(iceberg_compaction, "_replace_files", replace_files)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compaction_job, "table_lock", lambda *_, **__: nullcontext())
            patch.setattr(compaction_records.CompactionRecords, "clean_up", lambda *_: None)
            assert len(list(compact_table(run_here, asked))) == 1
        return replace_files(*arguments)

    monkeypatch.setattr(iceberg_compaction, "_replace_files", compacted_first)
    with pytest.raises(CompactionError, match="another writer has replaced or deleted files"):
        list(compact_table(run_here, asked))
    table = IcebergExport(target, pa.schema([]), catalog).table()
    assert table is not None
    bodies = sorted(table.scan().to_arrow().column("body").to_pylist())
    assert bodies == sorted(b"body %d" % number for number in range(MESSAGES))
    assert len(list(table.scan().plan_files())) == 1


def test_marks_and_side_tables_of_the_sink_on_s3(broker: RunningBroker, object_store: Any) -> None:
    options = {"nameServer": broker.address, "topic": "Marked", "markPath": f"s3a://{BUCKET}/marks", "writeId": "w"}
    options |= {"sentRowsPath": f"s3a://{BUCKET}/sent", "failedRowsPath": f"s3a://{BUCKET}/failed"}
    given = parse_sink_options(options, is_stream=False)
    schema = T.StructType([T.StructField("body", T.StringType())])
    rows = pa.RecordBatch.from_pydict({"body": ["one", "two", ""]})
    identity = WriteIdentity("w", 0, 0)
    report = write_partition(given, SinkColumns(schema, given.topic), identity, [rows], is_retry=False)
    assert (report.sent, report.failed) == (2, 1)
    repeated = write_partition(given, SinkColumns(schema, given.topic), identity, [rows], is_retry=False)
    assert (repeated.is_repeated, repeated.sent) == (True, 2)
    sent = pa.dataset.dataset(f"{BUCKET}/sent", filesystem=object_store, format="parquet").to_table()
    assert sent.num_rows == 2
    failed = pa.dataset.dataset(f"{BUCKET}/failed", filesystem=object_store, format="parquet").to_table()
    assert failed.column("body").to_pylist() == [""]
