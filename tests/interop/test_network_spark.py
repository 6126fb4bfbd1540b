"""Spark's source and sink over the network at Apache's brokers: every field as Java's client reads and writes it.

The source and the sink are driven as Spark drives them, in this process: partitions, readers and rows are those that
workers get. `tests/spark` runs the same code inside Spark, at Orbitlog.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import types as T

from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
from orbitlog.pipeline.network.cluster_session import close_sessions
from orbitlog.pipeline.network.network_options import ClusterOptions
from orbitlog.pipeline.replay.replay_job import ReplayRequest, replay
from orbitlog.pipeline.replay.replay_rows import ReplayRules
from orbitlog.pipeline.sink.epoch_commit import commit_write
from orbitlog.pipeline.sink.partition_write import write_partition
from orbitlog.pipeline.sink.sink_columns import SinkColumns
from orbitlog.pipeline.sink.sink_marks import PartitionReport
from orbitlog.pipeline.sink.sink_options import SinkOptions, parse_sink_options
from orbitlog.pipeline.sink.write_identity import WriteIdentity
from orbitlog.pipeline.sources.topic_source import TopicSource
from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import java_clients
from tests.interop.harness.processes import JsonObject
from tests.interop.harness.stored_messages import stored
from tests.support.source_runs import Stream, read_batch

pytestmark = pytest.mark.interop

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ONE = WriteIdentity("write", 0, 0)
SCHEMA = T.StructType(
    [
        T.StructField("body", T.BinaryType()),
        T.StructField("keys", T.StringType()),
        T.StructField("tags", T.StringType()),
        T.StructField("properties", T.MapType(T.StringType(), T.StringType())),
        T.StructField("flag", T.IntegerType()),
    ]
)
ALL_COLUMNS = (
    "topic string, queueId int, queueOffset bigint, brokerName string, body binary, tags string, keys string,"
    " properties map<string,string>, flag int, sysFlag int, bornTimestamp timestamp, storeTimestamp timestamp,"
    " bornHost string, storeHost string, reconsumeTimes int, commitLogOffset bigint, storeSize int, msgId string,"
    " bodyCRC int, preparedTransactionOffset bigint"
)


@pytest.fixture(autouse=True)
def closed_sessions() -> Iterator[None]:
    yield
    close_sessions()


def source(client: Client, topic: str, **more: str) -> dict[str, str]:
    return {"nameServer": client.system.name_server_address, "subscribe": topic, **more}


def read(client: Client, topic: str, columns: str = ALL_COLUMNS, **more: str) -> list[dict[str, Any]]:
    rows = read_batch(TopicSource, source(client, topic, **more), columns).to_pylist()
    return sorted(rows, key=lambda row: (row.get("queueId", 0), row.get("queueOffset", 0)))


def as_row(message: JsonObject, broker_name: str) -> dict[str, Any]:
    """Return the row that a message must be, from Java's decoding of it."""
    copied = (
        *("topic", "queueId", "queueOffset", "tags", "keys", "flag", "sysFlag", "reconsumeTimes", "commitLogOffset"),
        *("storeSize", "msgId", "bodyCRC", "preparedTransactionOffset"),
    )
    return {name: message[name] for name in copied} | {
        "brokerName": broker_name,
        "body": message["bodySha256"],
        "properties": message["properties"],
        "bornTimestamp": EPOCH + timedelta(milliseconds=message["bornTimestamp"]),
        "storeTimestamp": EPOCH + timedelta(milliseconds=message["storeTimestamp"]),
        "bornHost": _address(message["bornHost"]),
        "storeHost": _address(message["storeHost"]),
    }


def _address(host: str) -> str:
    digits, _, port = host.rpartition(":")
    return f"{'.'.join(map(str, bytes.fromhex(digits)))}:{port}"


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**row, "body": hashlib.sha256(row["body"]).hexdigest(), "properties": dict(row["properties"])} for row in rows
    ]


def options(client: Client, topic: str, **more: str) -> SinkOptions:
    return parse_sink_options(
        {"nameServer": client.system.name_server_address, "topic": topic, **more}, is_stream=False
    )


def write(given: SinkOptions, rows: pa.RecordBatch, *, is_retry: bool = False) -> PartitionReport:
    return write_partition(given, SinkColumns(SCHEMA, given.topic), ONE, [rows], is_retry=is_retry)


def batch(count: int, body_bytes: int = 20) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "body": [(b"%d " % number).ljust(body_bytes, b"x") for number in range(count)],
            "keys": [f"key-{number} all" for number in range(count)],
            "tags": ["A" if number % 2 else "B" for number in range(count)],
            "properties": [[("n", str(number)), ("имя", "значение 🛰")] for number in range(count)],
            "flag": pa.array(range(count), pa.int32()),
        },
        schema=pa.schema(
            [
                ("body", pa.binary()),
                ("keys", pa.string()),
                ("tags", pa.string()),
                ("properties", pa.map_(pa.string(), pa.string())),
                ("flag", pa.int32()),
            ]
        ),
    )


@java_clients
def test_source_reads_what_java_wrote(client: Client) -> None:
    topic = client.topic("SparkReads", queues=3)
    producer = client.producer()
    client.send(producer, topic, count=120, body="one", tags="A,B", keys="key-{}", **{"property.n": "{}"})
    client.send(producer, topic, verb="batch", count=7, body="member", tags="T", keys="member-{}")
    client.send(producer, topic, body="y" * 9000)  # compressed by the client
    found = sorted(stored(client, topic, 3, 128), key=lambda one: (one["queueId"], one["queueOffset"]))
    expected = [as_row(message, client.system.broker_name) for message in found]
    rows = compared(read(client, topic, minPartitions="4"))
    assert [row["body"] for row in rows] == [row["body"] for row in expected]
    for row, wanted in zip(rows, expected, strict=True):
        # Java's client clears the compression bits of a body that it has inflated.
        assert row | {"sysFlag": wanted["sysFlag"]} == wanted


@java_clients
def test_filters_times_and_streams_at_a_java_broker(client: Client) -> None:
    topic = client.topic("SparkFilters", queues=2)
    producer = client.producer()
    client.send(producer, topic, count=60, body="one", tags="A,B,C", pauseMs=5, **{"property.n": "{}"})
    everything = read(client, topic)
    assert len(everything) == 60
    assert {row["tags"] for row in read(client, topic, tags="A || C")} == {"A", "C"}
    assert len(read(client, topic, tags="A || C")) == 40
    numbers = [int(dict(row["properties"])["n"]) for row in read(client, topic, sql="n BETWEEN 10 AND 19")]
    assert sorted(numbers) == list(range(10, 20))
    instants = sorted(row["storeTimestamp"] for row in everything)
    for instant in (instants[0], instants[20], instants[-1]):
        time_ms = str((instant - EPOCH) // timedelta(milliseconds=1))
        later = read(client, topic, startingTimestamp=time_ms, startingOffsetsByTimestampStrategy="latest")
        assert later == [row for row in everything if row["storeTimestamp"] >= instant]
        assert read(client, topic, endingTimestamp=time_ms) == [
            row for row in everything if row["storeTimestamp"] < instant
        ]
    stream = Stream(
        TopicSource, source(client, topic, startingOffsets="earliest", maxOffsetsPerTrigger="25"), ALL_COLUMNS
    )
    assert sum(table.num_rows for table in stream.available_now()) == 60
    client.send(producer, topic, count=5, body="later")
    stream.start()
    with pytest.warns(UserWarning, match="resumes at its checkpoint"):
        assert sum(table.num_rows for table in stream.available_now()) == 5


@java_clients
def test_java_reads_what_the_sink_wrote(client: Client) -> None:
    topic = client.topic("SparkWrites", queues=2)
    assert write(options(client, topic, batchRows="16"), batch(100)).sent == 100
    found = stored(client, topic, 2, 100)
    rows = batch(100).to_pylist()
    by_key = {message["keys"]: message for message in found}
    assert len(found) == len(by_key) == 100
    for row in rows:
        message = by_key[row["keys"]]
        assert message["bodySha256"] == hashlib.sha256(row["body"]).hexdigest()
        assert (message["tags"], message["flag"]) == (row["tags"], row["flag"])
        user = {name: message["properties"][name] for name, _ in row["properties"]}
        assert user == dict(row["properties"])
        assert message["msgId"] == message["properties"]["UNIQ_KEY"]
    assert len({message["msgId"] for message in found}) == 100
    push = client.push(topic, client.group("spark"), tags="A")
    assert {one["tags"] for one in push.wait_for(50)} == {"A"}
    large = client.topic("SparkLarge", queues=1)
    write(options(client, large), batch(1, 20_000))
    assert [one["bodyLength"] for one in stored(client, large, 1, 1)] == [20_000]


@java_clients
def test_java_consumes_what_a_replay_of_a_table_sent(client: Client, tmp_path: Path) -> None:
    source, target = client.topic("ReplayFrom", queues=2), client.topic("ReplayTo", queues=2)
    producer = client.producer()
    client.send(producer, source, count=40, body="one", tags="A,B", keys="key-{}", **{"property.n": "{}"})
    sent = stored(client, source, 2, 40)
    cluster = ClusterOptions(client.system.name_server_address)
    table = tmp_path / "lake"
    list(export_topic(run_here, ExportRequest((), source, table, "delta", cluster=cluster)))
    request = ReplayRequest(tmp_path / "state", ReplayRules(to_topic=target), table=table, table_format="delta")
    assert replay(run_here, request, cluster).sent == 40
    push = client.push(target, client.group("replayed"))
    taken = push.wait_for(40)
    kept = ("keys", "tags", "flag", "bodySha256")
    assert sorted(tuple(one[name] for name in kept) for one in taken) == sorted(
        tuple(one[name] for name in kept) for one in sent
    )
    assert {one["properties"]["n"] for one in taken} == {str(number) for number in range(40)}
    assert replay(run_here, request, cluster).resumed_tasks >= 1
    assert len(stored(client, target, 2, 40)) == 40


@java_clients
def test_repeated_rows_are_recognised_by_the_index(client: Client) -> None:
    topic = client.topic("SparkRepeats", queues=2)
    given = options(client, topic, batchRows="8")
    write(given, batch(40))
    stored(client, topic, 2, 40)
    report = write(given, batch(60), is_retry=True)
    assert (report.found, report.sent) == (40, 20)
    assert len(stored(client, topic, 2, 60)) == 60


@java_clients
def test_transactional_rows_become_visible_once(client: Client, tmp_path: Path) -> None:
    topic = client.topic("SparkTx", queues=2)
    given = options(client, topic, transactional="true", markPath=str(tmp_path))
    abandoned = write(options(client, topic, transactional="true"), batch(10))
    report = write(given, batch(10))
    assert len(abandoned.halves) == len(report.halves) == 10
    assert read(client, topic) == []
    commit_write(given, ONE.write_id, 0, [report])
    client.eventually(lambda: len(read(client, topic)) == 10, "ten rows are visible")
    commit_write(given, ONE.write_id, 0, [write(given, batch(10))])  # the epoch is repeated
    found = stored(client, topic, 2, 10)
    assert sorted(one["keys"] for one in found) == sorted(f"key-{number} all" for number in range(10))
