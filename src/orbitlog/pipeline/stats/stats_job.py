"""Statistics job: all statistics of stores, as rows for display and scripts, and as Spark DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from orbitlog.jobs.local_runner import PhaseProgress, Runner
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.pipeline.runtime.spark_runner import runner
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.pipeline.stats.consumer_lag import StoreProgress, read_progress
from orbitlog.pipeline.stats.log_stats import KINDS, LogStatistics, count_logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROGRESS_TABLES = tuple(field.name for field in fields(StoreProgress))
TABLES = (*(f"{kind}s" if kind != "queue" else "queues" for kind in KINDS), *PROGRESS_TABLES)
_TIMES = ("oldestTimestamp", "newestTimestamp", "nextDueTimestamp", "hour")
_SUMS = [
    ("messages", pa.int64()),
    ("storedBytes", pa.int64()),
    ("bodyBytes", pa.int64()),
    ("bodyP50", pa.int64()),
    ("bodyP99", pa.int64()),
    ("messagesPerSecond", pa.float64()),
    ("oldestTimestamp", pa.int64()),
    ("newestTimestamp", pa.int64()),
]
_TOPIC = [("brokerName", pa.string()), ("topic", pa.string())]
_SCHEMAS = {
    "topics": [*_TOPIC, *_SUMS],
    "queues": [*_TOPIC, ("queueId", pa.int32()), *_SUMS],
    "tags": [*_TOPIC, ("tag", pa.string()), *_SUMS],
    "hours": [*_TOPIC, ("hour", pa.int64()), *_SUMS],
    "hosts": [*_TOPIC, ("host", pa.string()), *_SUMS],
    "lag": [
        ("brokerName", pa.string()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("nextOffset", pa.int64()),
        ("latestOffset", pa.int64()),
        ("lag", pa.int64()),
    ],
    "delays": [
        ("brokerName", pa.string()),
        ("level", pa.int32()),
        ("pending", pa.int64()),
        ("nextDueTimestamp", pa.int64()),
    ],
    "transactions": [
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("halfMessages", pa.int64()),
        ("pending", pa.int64()),
    ],
    "retries": [*_TOPIC, ("group", pa.string()), ("messages", pa.int64())],
    "dead_letters": [*_TOPIC, ("group", pa.string()), ("messages", pa.int64())],
}


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Rows by table (`TABLES`); times are milliseconds."""

    log: LogStatistics
    tables: dict[str, list[dict[str, Any]]]

    def frame(self, spark: SparkSession, table: str) -> DataFrame:
        """Return one table as a DataFrame; times become timestamps."""
        rows = self.tables[table]
        columns = []
        for name, kind in _SCHEMAS[table]:
            column = pa.array([row[name] for row in rows], kind)
            if name in _TIMES:
                column = column.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
            columns.append(column)
        return spark.createDataFrame(pa.table(columns, names=[name for name, _ in _SCHEMAS[table]]))


def store_statistics(
    run: Runner,
    stores: Sequence[BrokerStore],
    *,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    fail_on_damage: bool = True,
    progress: PhaseProgress | None = None,
) -> StoreStatistics:
    """Count the logs of stores and read the progress of their consumers."""
    log = count_logs(run, stores, split_bytes=split_bytes, fail_on_damage=fail_on_damage, progress=progress)
    tables = {f"{kind}s": log.rows(kind) for kind in KINDS}
    progress_of_stores = [read_progress(store) for store in stores]
    for name in PROGRESS_TABLES:
        tables[name] = [row for store_progress in progress_of_stores for row in getattr(store_progress, name)]
    return StoreStatistics(log, tables)


def stats_frames(spark: SparkSession, stores: Sequence[BrokerStore], **more: Any) -> dict[str, DataFrame]:
    """Return all statistics as DataFrames, by table."""
    statistics = store_statistics(runner(spark), stores, **more)
    return {table: statistics.frame(spark, table) for table in TABLES}
