"""The sink without Spark: rows arrive once with all fields, and repeated partitions are recognised."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from orbitlog.pipeline.network.cluster_session import close_sessions
from orbitlog.pipeline.sink import stored_check
from orbitlog.pipeline.sink.epoch_commit import abort_write, commit_write
from orbitlog.pipeline.sink.partition_write import RowsChanged, write_partition
from orbitlog.pipeline.sink.row_sender import RowSender
from orbitlog.pipeline.sink.side_tables import RowRefused
from orbitlog.pipeline.sink.sink_columns import SinkColumns
from orbitlog.pipeline.sink.sink_marks import PartitionReport
from orbitlog.pipeline.sink.sink_options import SinkOptions, parse_sink_options
from orbitlog.pipeline.sink.write_identity import WriteIdentity
from orbitlog.pipeline.sources.topic_source import TopicSource
from orbitlog.testing.running_broker import RunningBroker
from tests.support.source_runs import read_batch

SCHEMA = T.StructType(
    [
        T.StructField("body", T.BinaryType()),
        T.StructField("keys", T.ArrayType(T.StringType())),
        T.StructField("tags", T.StringType()),
        T.StructField("properties", T.MapType(T.StringType(), T.StringType())),
    ]
)
ONE = WriteIdentity("write", 3, 0)


@pytest.fixture(autouse=True)
def closed_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stored_check, "_SETTLE_S", 0.0)  # no attempt is killed here
    yield
    close_sessions()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("store"), {"brokerName": "broker-a"}) as running:
        yield running


def options(broker: RunningBroker, **more: str) -> SinkOptions:
    given = {"nameServer": broker.address, "brokerTimeoutMs": "20000", **more}
    return parse_sink_options(given, is_stream=False)


def batch(numbers: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "body": [b"body %d" % number for number in numbers],
            "keys": [[f"k{number}", "all"] for number in numbers],
            "tags": ["even" if number % 2 == 0 else None for number in numbers],
            "properties": [[("number", str(number)), ("UNIQ_KEY", "copied"), ("TAGS", "old")] for number in numbers],
        },
        schema=pa.schema(
            [
                ("body", pa.binary()),
                ("keys", pa.list_(pa.string())),
                ("tags", pa.string()),
                ("properties", pa.map_(pa.string(), pa.string())),
            ]
        ),
    )


def write(
    given: SinkOptions,
    *batches: pa.RecordBatch,
    identity: WriteIdentity = ONE,
    is_retry: bool = False,
    schema: T.StructType = SCHEMA,
) -> PartitionReport:
    return write_partition(given, SinkColumns(schema, given.topic), identity, batches, is_retry=is_retry)


def rows(broker: RunningBroker, topic: str, columns: str | None = None) -> list[dict[str, Any]]:
    return read_batch(TopicSource, {"nameServer": broker.address, "subscribe": topic}, columns).to_pylist()


def test_rows_arrive_with_all_fields(broker: RunningBroker) -> None:
    report = write(options(broker, topic="Fields", batchRows="7"), batch(range(30)))
    assert (report.sent, report.found, report.failed) == (30, 0, 0)
    found = sorted(rows(broker, "Fields"), key=lambda row: int(row["body"][5:]))
    assert [row["body"] for row in found] == [b"body %d" % number for number in range(30)]
    assert [row["keys"] for row in found] == [f"k{number} all" for number in range(30)]
    assert [row["tags"] for row in found] == ["even", None] * 15
    assert [dict(row["properties"])["number"] for row in found] == [str(number) for number in range(30)]
    assert len({row["uniqKey"] for row in found}) == 30
    assert all(row["uniqKey"] == row["msgId"] and len(row["uniqKey"]) == 32 for row in found)


def test_repeated_task_sends_only_what_is_missing(broker: RunningBroker) -> None:
    given = options(broker, topic="Retried", batchRows="5")
    write(given, batch(range(13)))
    report = write(given, batch(range(20)), is_retry=True)
    assert (report.sent, report.found) == (7, 13)
    assert len(rows(broker, "Retried")) == 20


def test_equal_rows_are_all_sent_and_all_recognised(broker: RunningBroker) -> None:
    given = options(broker, topic="Equal")
    same = pa.Table.from_batches([batch(range(1))] * 5).combine_chunks().to_batches()
    assert write(given, *same).sent == 5
    assert write(given, *same, is_retry=True).found == 5
    assert len(rows(broker, "Equal")) == 5


def test_done_mark_is_recognised_in_any_row_order(broker: RunningBroker, tmp_path: Path) -> None:
    given = options(broker, topic="Marked", markPath=str(tmp_path / "marks"), writeId="w")
    write(given, batch(range(10)), batch(range(10, 20)))
    again = write(given, batch(range(10, 20)), batch(range(10)))
    assert (again.is_repeated, again.sent) == (True, 20)
    assert len(rows(broker, "Marked")) == 20
    assert write(given, batch(range(5)), identity=WriteIdentity("write", 4, 0)).sent == 5
    with pytest.raises(RowsChanged, match="was sent with other rows"):
        write(given, batch(range(11)))


def test_begun_mark_after_a_crash_sends_the_rest(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(broker, topic="Crashed", markPath=f"file://{tmp_path}/marks", batchRows="4")
    sent: list[int] = []
    original = RowSender._request

    async def failing(self: RowSender, queue: Any, group: Any) -> None:
        if len(sent) == 3:
            raise RuntimeError("killed")
        sent.append(len(group))
        await original(self, queue, group)

    monkeypatch.setattr(RowSender, "_request", failing)
    with pytest.raises(RuntimeError, match="killed"):
        write(given, batch(range(40)))
    monkeypatch.undo()
    report = write(given, batch(range(40)))
    assert report.found >= 12
    assert report.found + report.sent == 40
    assert len(rows(broker, "Crashed")) == 40


def test_lost_answer_does_not_duplicate_a_batch(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    from orbitlog.errors import ConnectionLost

    original = RowSender._request
    lost: list[str] = []

    async def losing(self: RowSender, queue: Any, group: Any) -> None:
        await original(self, queue, group)
        if not lost:
            lost.append("answer")
            raise ConnectionLost("the connection was closed")

    monkeypatch.setattr(RowSender, "_request", losing)
    assert write(options(broker, topic="Lost"), batch(range(10))).sent == 10
    assert lost
    assert len(rows(broker, "Lost")) == 10


def test_chosen_queues_keep_their_order(broker: RunningBroker) -> None:
    write(options(broker, topic="Ordered"), batch(range(1)))  # creates the topic
    schema = T.StructType([T.StructField("body", T.StringType()), T.StructField("shardingKey", T.StringType())])
    keyed = pa.RecordBatch.from_pydict(
        {"body": [str(number) for number in range(60)], "shardingKey": [f"s{number % 5}" for number in range(60)]}
    )
    write(options(broker, topic="Ordered", batchRows="3", sendsInFlight="8"), keyed, schema=schema)
    found = [row for row in rows(broker, "Ordered") if row["body"] != b"body 0"]
    for key in range(5):
        of_key = [row for row in found if dict(row["properties"])["__SHARDINGKEY"] == f"s{key}"]
        assert len({row["queueId"] for row in of_key}) == 1
        assert [int(row["body"]) for row in of_key] == list(range(key, 60, 5))
    schema = T.StructType([T.StructField("body", T.StringType()), T.StructField("queueId", T.IntegerType())])
    placed = pa.RecordBatch.from_pydict({"body": ["x", "y"], "queueId": pa.array([2, 99], pa.int32())})
    with pytest.raises(RowRefused, match="has no writable queue 99"):
        write(options(broker, topic="Ordered"), placed, schema=schema)


def test_failed_rows_go_to_the_side_table(broker: RunningBroker, tmp_path: Path) -> None:
    bad = pa.RecordBatch.from_pydict({"value": [b"good", b"", None, b"fine"], "topic": ["Side", "Side", "Side", "a b"]})
    schema = T.StructType([T.StructField("value", T.BinaryType()), T.StructField("topic", T.StringType())])
    with pytest.raises(RowRefused, match="failedRowsPath"):
        write(options(broker), bad, schema=schema)
    report = write(options(broker, failedRowsPath=str(tmp_path / "failed")), bad, schema=schema, is_retry=True)
    assert (report.sent + report.found, report.failed) == (1, 3)
    table = pq.read_table(tmp_path / "failed").to_pylist()
    assert [row["value"] for row in table] == [b"", None, b"fine"]
    assert all(row["_error"] and row["_epoch"] == 3 and row["_partition"] == 0 for row in table)


def test_scheduled_rows_wait(broker: RunningBroker) -> None:
    schema = T.StructType([T.StructField("body", T.StringType()), T.StructField("deliverTimestamp", T.TimestampType())])
    soon = datetime.now(UTC) + timedelta(seconds=1)
    late = pa.RecordBatch.from_pydict(
        {"body": ["x", "y"], "deliverTimestamp": pa.array([soon, None], pa.timestamp("us", "UTC"))}
    )
    write(options(broker, topic="Later"), late, schema=schema)
    assert [row["body"] for row in rows(broker, "Later")] == [b"y"]
    broker.wait_for(lambda: len(rows(broker, "Later")) == 2)


def test_transactional_rows_are_visible_after_the_commit(broker: RunningBroker, tmp_path: Path) -> None:
    given = options(broker, topic="Tx", transactional="true", markPath=str(tmp_path))
    write(options(broker, topic="Tx"), batch(range(1)))
    failed_attempt = write(options(broker, topic="Tx", transactional="true"), batch(range(8)))
    report = write(given, batch(range(8)))
    assert len(failed_attempt.halves) == len(report.halves) == 8
    assert len(rows(broker, "Tx")) == 1
    commit_write(given, "write", 3, [report])
    assert sorted(row["body"] for row in rows(broker, "Tx")) == sorted(b"body %d" % n for n in [0, *range(8)])
    # A driver that died before Spark noted the commit repeats the epoch: marks and look-ups make it harmless.
    repeated = write(given, batch(range(8)))
    assert repeated.halves == report.halves
    commit_write(given, "write", 3, [repeated])
    assert len(rows(broker, "Tx")) == 9


def test_aborted_transaction_is_never_visible(broker: RunningBroker) -> None:
    given = options(broker, topic="Aborted", transactional="true")
    write(options(broker, topic="Aborted"), batch(range(1)))
    abort_write(given, [write(given, batch(range(4)))])
    assert len(rows(broker, "Aborted")) == 1


def test_broker_restart_during_a_write_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"brokerName": "b"}) as running:
        given = options(running, topic="T", batchRows="2", sendsInFlight="2")

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch(range(20))
            running.restart_broker()
            yield batch(range(20, 40))

        report = write_partition(given, SinkColumns(SCHEMA, "T"), ONE, batches(), is_retry=False)
        assert report.sent == 40
        assert len(rows(running, "T")) == 40


def test_sent_rows_are_recorded_with_their_places(broker: RunningBroker, tmp_path: Path) -> None:
    schema = T.StructType([T.StructField("body", T.StringType()), T.StructField("_from", T.IntegerType())])
    numbered = pa.RecordBatch.from_pydict(
        {"body": [str(number) for number in range(20)], "_from": pa.array(range(20), pa.int32())}
    )
    given = options(broker, topic="Recorded", sentRowsPath=str(tmp_path), batchRows="6", maxRowsPerSecondPerTask="1000")
    write(given, numbered, schema=schema)
    recorded = {row["_from"]: row for row in pq.read_table(tmp_path).to_pylist()}
    found = {int(row["body"]): row for row in rows(broker, "Recorded")}
    assert recorded.keys() == found.keys() == set(range(20))
    for number, row in found.items():
        place = tuple(recorded[number][name] for name in ("topic", "uniqKey", "brokerName", "queueId", "queueOffset"))
        assert place == ("Recorded", row["uniqKey"], row["brokerName"], row["queueId"], row["queueOffset"])
        assert "_from" not in dict(row["properties"])
    write(given, numbered, schema=schema, is_retry=True)
    assert {row["queueId"] for row in pq.read_table(tmp_path).to_pylist()} == {None}
