"""Compaction with Spark: between the batches of a streaming export, and as tasks of a job."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from orbitlog.formats.records.message import make_message
from orbitlog.pipeline.export.compaction_job import CompactionRequest, compact_table
from orbitlog.pipeline.export.export_job import ExportedBatch, ExportRequest
from orbitlog.pipeline.export.export_stream import ExportQuery
from orbitlog.pipeline.runtime.spark_runner import runner
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from tests.support.exported_rows import places

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")
DAY_MS = 86_400_000


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_followed_export_compacts_its_table(spark: Any, tmp_path: Path, table_format: str) -> None:
    root, target = tmp_path / "store", tmp_path / "lake"
    request = ExportRequest((BrokerStore("b", str(root)),), "T", target, table_format, batch_messages=10)
    reports: list[str] = []
    stop = threading.Event()
    geometry = StoreGeometry(segment_bytes=65536, queue_file_bytes=2000)
    with MessageStore.open(root, StoreConfig(geometry), lambda: 20_000 * DAY_MS) as store:

        def send(count: int) -> None:
            for _ in range(count):
                store.append(make_message("T", b"body", queue_id=0))
            store.flush_log()
            store.dispatch_once()

        def on_batch(batch: ExportedBatch) -> None:
            if batch.number < 7:
                send(10)
            else:
                stop.set()

        send(10)
        query = ExportQuery(spark, request, on_batch=on_batch, on_restart=reports.append, compact_files=4)
        query.run(stop, trigger_s=0.1)
    assert [report.partition(" (")[0] for report in reports] == ["2024-10-04: 4 files merged into 1"] * 2
    assert places(target, table_format) == [(0, number) for number in range(80)]
    days = list(compact_table(runner(spark), CompactionRequest(target)))
    assert [(day.files, day.new_files, day.messages) for day in days] == [(2, 1, 80)]
    assert places(target, table_format) == [(0, number) for number in range(80)]
    if table_format == "parquet":
        assert spark.read.parquet(str(target)).count() == 80
