"""The data sources and the jobs over them inside a real Spark: what only Spark itself can show."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orbitlog.cli.main import cli
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import make_message
from orbitlog.pipeline.runtime import session
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.golden import GoldenStore
from tests.spark.conftest import Cluster, environment
from tests.spark.found_processes import kill_planners

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
ORDERS = 500


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with a topic of JSON orders."""
    root = tmp_path_factory.mktemp("orders") / "store"
    with MessageStore.open(root, StoreConfig(StoreGeometry(1 << 20, 6000)), lambda: 1_800_000_000_000) as store:
        for number in range(ORDERS):
            body = json.dumps({"amount": number / 4, "customer": f"c{number % 7}"}).encode()
            properties = {"KEYS": f"order-{number}", "TAGS": "paid" if number % 3 else "open"}
            store.append(make_message("Orders", body, properties=properties, queue_id=number % 4))
            store.append(make_message("Other", b"x"))
        store.flush_log()
        store.dispatch_once()
    return root


def test_the_tour_of_the_documentation(spark: Any, orders: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python tour\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 6
    names: dict[str, Any] = {"DIR": str(orders), "OUT": str(tmp_path)}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert [tuple(row) for row in names["by_tag"].collect()] == [("open", 167), ("paid", 333)]
    assert names["copied"] == names["exported"] == ORDERS
    assert {row.topic for row in names["newest"].collect()} == {"Orders", "Other"}


def test_sources_are_found_if_the_python_path_has_a_space(orders: Path, tmp_path: Path) -> None:
    python = tmp_path / "a space" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    program = f"""
from orbitlog.pipeline.runtime.session import build_session, use_session
spark = use_session(build_session("local[1]"))
print(spark.read.format("rocketmq").option("subscribe", "Orders").load({str(orders)!r}).count())
print(spark.read.format("rocketmq-commitlog").load({str(orders)!r}).count())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment() | {"PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.split() == [str(ORDERS), str(2 * ORDERS)], done.stderr[-2000:]


def test_every_option_and_column_is_in_the_documentation() -> None:
    from orbitlog.pipeline.sources.message_columns import KAFKA_COLUMNS, MESSAGE_COLUMNS
    from orbitlog.pipeline.sources.source_options import COMMITLOG_OPTIONS, TOPIC_OPTIONS

    text = PAGE.read_text()
    known = {*TOPIC_OPTIONS, *COMMITLOG_OPTIONS, *MESSAGE_COLUMNS, *KAFKA_COLUMNS} - {"path"}
    assert [name for name in sorted(known) if f"`{name}`" not in text] == []


def test_golden_stores_through_both_sources(spark: Any, golden_497: GoldenStore, golden_550_crash: GoldenStore) -> None:
    for golden in (golden_497, golden_550_crash):
        messages = golden.manifest["messages"]
        log = spark.read.format("rocketmq-commitlog").load(str(golden.store))
        assert [row.commitLogOffset for row in log.collect()] == [message["commitLogOffset"] for message in messages]
        never_null = "commitLogOffset bigint NOT NULL, topic string NOT NULL, tags string, body binary NOT NULL"
        declared = spark.read.format("rocketmq-commitlog").schema(never_null).load(str(golden.store))
        assert [field.nullable for field in declared.schema] == [False, False, True, False]
        assert declared.collect() == log.select(*declared.columns).collect()
        topics = spark.read.format("rocketmq").option("subscribePattern", ".*").load(str(golden.store))
        queued = [message for message in messages if flags.enters_queue(message["sysFlag"])]
        found = {(row.topic, row.queueId, row.queueOffset): row for row in topics.collect()}
        assert found.keys() == {(m["topic"], m["queueId"], m["queueOffset"]) for m in queued}
        for message in queued:
            row = found[message["topic"], message["queueId"], message["queueOffset"]]
            assert (row.tags, row.keys, row.properties) == (message["tags"], message["keys"], message["properties"])


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters_with_and_without_pushdown(spark: Any, orders: Path, pushdown: str) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, pushdown)
    try:
        frame = spark.read.format("rocketmq").option("subscribePattern", ".*").load(str(orders))
        assert frame.where("topic = 'Orders' and queueId = 1 and queueOffset >= 100").count() == 25
        assert frame.where("tags = 'open' and storeTimestamp > '2027-01-01'").count() == 167
        assert frame.where("storeTimestamp < '2027-01-01'").count() == 0
        assert frame.where("tags is null").count() == ORDERS
    finally:
        spark.conf.set(setting, before)


def test_a_mistake_reaches_the_user_as_its_sentence(spark: Any, orders: Path) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="unknown option 'subscibe'; did you mean subscribe"):
        spark.read.format("rocketmq").option("subscibe", "Orders").load(str(orders))
    with pytest.raises(PySparkException, match="no store has topic 'Order'; did you mean 'Orders'"):
        spark.read.format("rocketmq").option("subscribe", "Order").load(str(orders)).count()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", StoreConfig(StoreGeometry(65536, 2000)), lambda: 1_000) as store:
        yield store


def send(store: MessageStore, topic: str, count: int) -> None:
    for number in range(count):
        store.append(make_message(topic, str(number).encode(), queue_id=number % 3))
    store.flush_log()
    store.dispatch_once()


@pytest.mark.parametrize("source", ["rocketmq", "rocketmq-commitlog"])
def test_a_query_that_is_restarted_reads_everything_once(
    spark: Any, live: MessageStore, tmp_path: Path, source: str
) -> None:
    def run() -> int:
        """Run until nothing is new; returns how many micro-batches had rows."""
        reader = spark.readStream.format(source).option("storePath", str(tmp_path / "store"))
        reader = reader.option("startingOffsets", "earliest").option("maxBytesPerTrigger", "4000")
        reader = reader.option("subscribePattern", "T.*") if source == "rocketmq" else reader
        writer = reader.load().select("topic", "queueId", "queueOffset").writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(progress["numInputRows"] > 0 for progress in query.recentProgress)

    send(live, "Ta", 50)
    assert run() > 1
    send(live, "Ta", 10)
    send(live, "Tb", 5)
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert len(rows) == len(set(rows)) == 65


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_an_export_that_follows_is_a_streaming_query(
    spark: Any, live: MessageStore, tmp_path: Path, table_format: str
) -> None:
    from orbitlog.pipeline.export.export_job import ExportedBatch, ExportRequest
    from orbitlog.pipeline.export.export_stream import ExportQuery
    from orbitlog.pipeline.sources.broker_stores import BrokerStore

    stores = (BrokerStore("b", str(tmp_path / "store")),)
    request = ExportRequest(stores, "Ta", tmp_path / "table", table_format, batch_messages=30)
    counts: list[int] = []
    send(live, "Ta", 50)
    ExportQuery(spark, request, on_batch=lambda batch: counts.append(batch.messages)).run(Event(), trigger_s=None)
    assert (sum(counts), len(counts)) == (50, 2)
    stop, seen, warned = Event(), list[int](), list[str]()
    has_proc = Path("/proc/self/stat").exists()

    def on_batch(batch: ExportedBatch) -> None:
        seen.append(batch.messages)
        assert [query.isActive for query in spark.streams.active] == [True]
        if len(seen) == 1 and has_proc:
            assert kill_planners() > 0  # which ends the query
        if len(seen) < 3:
            send(live, "Ta", 7)
        else:
            stop.set()

    send(live, "Ta", 9)
    ExportQuery(spark, request, on_batch=on_batch, on_restart=warned.append).run(stop, trigger_s=0.1)
    assert seen == [9, 7, 7]
    assert bool(warned) == has_proc and all(sentence.endswith("restarting the query") for sentence in warned)
    assert spark.streams.active == []
    frame = spark.read.parquet(*map(str, (tmp_path / "table").glob("dt=*/*.parquet")))
    rows = frame.select("queueId", "queueOffset").collect()
    assert len(rows) == len(set(rows)) == 73


def test_commands_on_a_cluster(spark_cluster: Cluster, orders: Path, tmp_path: Path) -> None:
    export: list[str | Path] = ["pipeline", "export", orders, "--topic", "Orders", "--to", tmp_path / "table"]
    export += ["--format", "iceberg"]
    found, rows, exported, nothing_new = spark_cluster.run_all(
        ["pipeline", "query", orders, "--topic", "Orders", "--key", "order-17"],
        ["pipeline", "stats", orders, "--by", "topics"],
        export,
        [*export, "--follow", "--trigger", "available-now"],
    )
    assert [row["keys"] for row in found] == ["order-17"]
    assert found[0]["bodyLength"] == len('{"amount": 4.25, "customer": "c3"}')
    assert {row["topic"]: row["messages"] for row in rows} == {"Orders": ORDERS, "Other": ORDERS}
    assert sum(batch["messages"] for batch in exported) == ORDERS
    assert nothing_new == []


@pytest.fixture
def orbitlog(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Commands in this process, on the session that the tests share."""
    monkeypatch.setattr(session, "end_session", lambda _: None)
    return lambda *words: CliRunner().invoke(cli, ["pipeline", *map(str, words), "--master", "local[2]"])


def test_query_with_sql_and_into_parquet(
    orders: Path, tmp_path: Path, spark: Any, orbitlog: Callable[..., Result]
) -> None:
    sql = "select tags, count(*) n, min(storeTimestamp) t from messages where topic = 'Orders' group by tags order by 1"
    done = orbitlog("query", orders, "--sql", sql, "--json")
    assert done.exit_code == 0, done.output
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"tags": "open", "n": 167, "t": 1_800_000_000_000},
        {"tags": "paid", "n": 333, "t": 1_800_000_000_000},
    ]
    done = orbitlog("query", orders, "--sql", sql, "-f", "{n}x{tags}")
    assert done.stdout == "167xopen\n333xpaid\n", done.output
    done = orbitlog("query", orders, "--contains", '"c3"', "--out", tmp_path / "found")
    assert done.exit_code == 0, done.output
    assert spark.read.parquet(str(tmp_path / "found")).count() == len(range(3, ORDERS, 7))
    wrong = orbitlog("query", orders, "--sql", "selec 1")
    assert wrong.exit_code == 1
    assert re.fullmatch(r"orbitlog: \[PARSE_SYNTAX_ERROR\][^\n]*\n", wrong.stderr)
