"""DLedger stores in Spark: sources, rebuild, check, statistics and export give what the golden's manifest states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from orbitlog.pipeline.check import check
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
from orbitlog.pipeline.rebuild import rebuild
from orbitlog.pipeline.runtime.spark_runner import runner
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.pipeline.sources.message_query import MessageFilter, messages_frame, query_sql
from orbitlog.pipeline.stats.log_stats import count_logs
from orbitlog.testing.golden import GoldenStore
from tests.spark.generated import derived_files
from tests.support.store_kinds import KINDS, make_store

NAMES = ("topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "offsetMsgId", "keys", "tags")


def stated(golden: GoldenStore) -> list[tuple[Any, ...]]:
    return [tuple(message[name] or None for name in NAMES) for message in golden.manifest["messages"]]


def found(frame: Any) -> list[tuple[Any, ...]]:
    return [tuple(value or None for value in row) for row in frame.select(*NAMES).collect()]


def test_golden_log_is_read_checked_and_rebuilt(spark: Any, golden_497_dledger: GoldenStore, tmp_path: Path) -> None:
    store = golden_497_dledger.store
    log = messages_frame(spark, [BrokerStore("b", str(store))])
    assert sorted(found(log), key=str) == sorted(stated(golden_497_dledger), key=str)
    (result,) = rebuild(spark, [store], out=tmp_path / "out", split_bytes=64 * 1024)
    assert result.findings == ()
    made, live = derived_files(Path(result.out)), derived_files(store)
    made.pop("checkpoint"), live.pop("checkpoint")
    assert made == live
    assert [one.problems for one in check(spark, [store], split_bytes=64 * 1024)] == [[]]


def test_golden_topics_are_queried_and_streamed(spark: Any, golden_497_dledger: GoldenStore, tmp_path: Path) -> None:
    store = BrokerStore("b", str(golden_497_dledger.store))
    wanted = [message for message in golden_497_dledger.manifest["messages"] if message["topic"] == "Invoices"]
    frame = messages_frame(spark, [store], MessageFilter(topic="Invoices"))
    assert sorted(found(frame), key=str) == sorted(
        (tuple(message[name] or None for name in NAMES) for message in wanted), key=str
    )
    key = next(message["keys"].split()[0] for message in wanted if message.get("keys"))
    keyed = [message for message in golden_497_dledger.manifest["messages"] if key in (message["keys"] or "").split()]
    assert messages_frame(spark, [store], MessageFilter(key=key)).count() == len(keyed)
    stream = spark.readStream.format("rocketmq").option("storePath", store.root).option("subscribe", "Invoices")
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert pq.read_table(tmp_path / "rows").num_rows == len(wanted)


def test_switched_store_is_read_with_the_old_part(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    KINDS["converted to DLedger"](root)
    log = spark.read.format("rocketmq-commitlog").option("storePath", str(root)).load()
    assert (log.count(), log.select("commitLogOffset").distinct().count()) == (72, 72)


def test_golden_is_counted_and_exported(spark: Any, golden_497_dledger: GoldenStore, tmp_path: Path) -> None:
    store, messages = BrokerStore("b", str(golden_497_dledger.store)), golden_497_dledger.manifest["messages"]
    assert count_logs(runner(spark), [store]).messages == len(messages)
    assert query_sql(spark, [store], "SELECT count(*) AS n FROM messages").collect()[0].n == len(messages)
    batches = list(export_topic(runner(spark), ExportRequest((store,), "Invoices", tmp_path / "table")))
    assert sum(batch.messages for batch in batches) == sum(message["topic"] == "Invoices" for message in messages)
