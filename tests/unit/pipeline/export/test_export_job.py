"""Exports: every message exactly once in every kind of table, whatever happens in between."""

from __future__ import annotations

import hashlib
import json
import pickle
from base64 import b85encode
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitlog.formats.hosts import parse_host
from orbitlog.formats.records.message import make_message
from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export import export_job
from orbitlog.pipeline.export.export_files import export_schema
from orbitlog.pipeline.export.export_job import ExportRequest, commit_batch, export_topic, open_table
from orbitlog.pipeline.export.export_plan import ExportError, ExportState
from orbitlog.pipeline.export.export_source import ExportSource, ExportStreamReader
from orbitlog.pipeline.export.parquet_export import ParquetTable
from orbitlog.pipeline.sources.broker_stores import BrokerStore, OptionError
from orbitlog.pipeline.sources.json_columns import parse_json_columns
from orbitlog.store.message_store import MessageStore
from orbitlog.testing.golden import GoldenStore
from tests.support.exported_rows import places, read_table
from tests.support.source_runs import struct

FORMATS = ["parquet", "delta", "iceberg"]
DAY_MS = 86_400_000
# The packages warn about things of their own.
pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")


Send = Callable[..., None]


def run(request: ExportRequest) -> list[int]:
    return [batch.messages for batch in export_topic(run_here, request)]


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_topic_of_a_golden_store(golden_497: GoldenStore, tmp_path: Path, table_format: str) -> None:
    topics = [message["topic"] for message in golden_497.manifest["messages"]]
    topic = max({name for name in topics if not name.startswith(("%", "RMQ_", "SCHEDULE"))}, key=topics.count)
    request = ExportRequest((BrokerStore("b", str(golden_497.store)),), topic, tmp_path / "out", table_format)
    assert sum(run(request)) == topics.count(topic)
    expected = [message for message in golden_497.manifest["messages"] if message["topic"] == topic]
    expected.sort(key=lambda message: (message["queueId"], message["queueOffset"]))
    found = read_table(tmp_path / "out", table_format)
    for row, message in zip(found, expected, strict=True):
        for name in ("topic", "queueId", "queueOffset", "keys", "tags", "uniqKey", "sysFlag", "commitLogOffset"):
            assert row[name] == message[name]
        assert hashlib.sha256(row["body"]).hexdigest() == message["bodySha256"]
        assert dict(row["properties"]) == message["properties"]
        assert row["storeTimestamp"] == datetime.fromtimestamp(message["storeTimestamp"] / 1000, UTC)


@pytest.mark.parametrize("table_format", FORMATS)
def test_what_is_new_is_added_and_nothing_twice(
    send: Send, clock: list[int], request_of: Callable[..., ExportRequest], table_format: str
) -> None:
    request = request_of(table_format, batch_messages=30)
    send(50)
    send(20, queue_id=1)
    batches = list(export_topic(run_here, request))
    assert sum(batch.messages for batch in batches) == 70
    assert len(batches) > 2
    assert run(request) == []
    clock[0] += DAY_MS
    send(5)
    send(5, queue_id=2)
    assert sum(run(request)) == 10
    expected = [(0, number) for number in range(55)] + [(1, n) for n in range(20)] + [(2, n) for n in range(5)]
    assert places(request.target, table_format) == expected


def test_days_are_directories_with_the_rows_of_that_day(
    send: Send, clock: list[int], request_of: Callable[..., ExportRequest]
) -> None:
    request = request_of()
    for _ in range(3):
        send(4)
        clock[0] += DAY_MS // 2
    run(request)
    counts = {path.name: pq.ParquetDataset(path).read().num_rows for path in request.target.glob("dt=*")}
    assert counts == {"dt=2024-10-04": 8, "dt=2024-10-05": 4}


STEPS = ("planned", "written", "before commit", "after commit")


class Crash(BaseException):
    """Stands for a killed driver: nothing catches it."""


@pytest.mark.parametrize("hosts", [["10.0.0.1:80"], ["10.0.0.1:80", "fe80:0:0:0:0:0:0:1:81", "10.0.0.2:80"]])
def test_columns_with_few_values_are_codes_in_the_file_and_text_for_its_reader(
    writer: MessageStore, request_of: Callable[..., ExportRequest], hosts: list[str]
) -> None:
    for number in range(12):
        host = parse_host(hosts[number % len(hosts)])
        writer.append(make_message("T", b"body" * 40, queue_id=number % 4, born_host=host))
    writer.flush_log()
    writer.dispatch_once()
    request = request_of()
    assert run(request) == [12]
    rows = read_table(request.target, "parquet")
    assert [row["bornHost"] for row in rows] == [
        hosts[(row["queueOffset"] * 4 + row["queueId"]) % len(hosts)] for row in rows
    ]
    (path,) = ParquetTable(request.target).files()
    assert pq.read_schema(path).equals(export_schema(None))
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    for name in ("topic", "brokerName", "bornHost", "storeHost"):
        assert columns[name].has_dictionary_page
        assert "RLE_DICTIONARY" in columns[name].encodings
    assert "DELTA_BINARY_PACKED" in columns["queueOffset"].encodings
    assert columns["queueOffset"].statistics.max == 2
    assert {column.compression for column in columns.values()} == {"ZSTD"}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_driver_that_dies_between_any_two_steps(
    send: Send,
    request_of: Callable[..., ExportRequest],
    table_format: str,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = request_of(table_format, batch_messages=10)
    send(25)

    def dying_runner(function: Any, tasks: Any, **more: Any) -> Any:
        if step == "planned":
            raise Crash
        reports = run_here(function, tasks, **more)
        if step == "written":
            raise Crash
        return reports

    def dying_table(asked: ExportRequest) -> Any:
        table = real_table(asked)
        commit = table.commit

        def dying_commit(batch: Any, files: Any) -> None:
            if step == "before commit":
                raise Crash
            commit(batch, files)
            raise Crash

        table.commit = dying_commit
        return table

    real_table = export_job.open_table
    for _ in range(3):
        with monkeypatch.context() as patch:
            if step in ("before commit", "after commit"):
                patch.setattr(export_job, "open_table", dying_table)
            with pytest.raises(Crash):
                list(export_topic(dying_runner if step in ("planned", "written") else run_here, request))
        send(1)  # more messages arrive meanwhile
    run(request)
    assert places(request.target, table_format) == [(0, number) for number in range(28)]


def test_files_of_an_unfinished_batch_are_not_seen(send: Send, request_of: Callable[..., ExportRequest]) -> None:
    request = request_of()
    send(5)

    def written_and_dead(function: Any, tasks: Any, **more: Any) -> Any:
        run_here(function, tasks, **more)
        raise Crash

    with pytest.raises(Crash):
        list(export_topic(written_and_dead, request))
    assert pa.dataset.dataset(request.target, format="parquet").to_table().num_rows == 0
    run(request)
    assert len(places(request.target, "parquet")) == 5


def test_a_commit_whose_renames_were_cut_short_is_finished(
    send: Send, request_of: Callable[..., ExportRequest]
) -> None:
    request = request_of()
    send(5)
    run(request)
    (final,) = ParquetTable(request.target).files()
    final.rename(final.with_name(f".{final.name}"))
    assert run(request) == []
    assert final.exists()


def test_tasks_that_run_twice_leave_the_same_files(send: Send, request_of: Callable[..., ExportRequest]) -> None:
    request = request_of()
    send(40)

    def twice(function: Any, tasks: Any, **more: Any) -> Any:
        first = run_here(function, tasks, **more)
        assert run_here(function, tasks, **more) == first
        return first

    assert [batch.messages for batch in export_topic(twice, request)] == [40]
    assert len(places(request.target, "parquet")) == 40
    assert [path.name for path in request.target.rglob(".part*")] == []


@pytest.mark.parametrize(
    ("bodies", "share_min", "share_max"),
    [
        # Letters without any repeat: fewer bits would do for each, and that is not worth its time.
        ([b85encode(hashlib.shake_256(bytes([number])).digest(200)) for number in range(30)], 0.95, 1.05),
        ([b'{"order": 17, "note": "as before"}' * 10 for _ in range(30)], 0, 0.2),
        ([b"" for _ in range(3)], 0, 2),
    ],
)
def test_bodies_are_squeezed_where_it_pays(
    send: Send, request_of: Callable[..., ExportRequest], bodies: list[bytes], share_min: float, share_max: float
) -> None:
    for body in bodies:
        send(1, body=body)
    request = request_of()
    assert run(request) == [len(bodies)]
    assert [row["body"] for row in read_table(request.target, "parquet")] == bodies
    (path,) = request.target.rglob("*.parquet")
    group = pq.read_metadata(path).row_group(0)
    (column,) = [
        group.column(number) for number in range(group.num_columns) if group.column(number).path_in_schema == "body"
    ]
    assert share_min <= column.total_compressed_size / column.total_uncompressed_size <= share_max


def test_progress_counts_the_bytes_of_the_topic_alone(
    send: Send, writer: MessageStore, request_of: Callable[..., ExportRequest]
) -> None:
    told: list[tuple[str, int, int, int]] = []
    writer.append(make_message("Other", bytes(1000)))
    send(30)
    (batch,) = export_topic(run_here, request_of(), progress=lambda *state: told.append(state))
    assert told[-1] == ("batch 0", batch.scanned_bytes, batch.scanned_bytes, 30)


def stream_batch(request: ExportRequest, until: bool = False) -> tuple[dict[str, Any], list[Any]]:
    """Do what a new query does: find where the table is, plan, and have the tasks write; commits nothing."""
    reader = ExportSource({"secretRequest": request.as_text()}).streamReader(struct("batch bigint, report binary"))
    assert isinstance(reader, ExportStreamReader)
    if until:
        reader.prepareForTriggerAvailableNow()
    start = json.loads(json.dumps(reader.initialOffset()))
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    reader = pickle.loads(pickle.dumps(reader))
    return end, [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_stream_makes_the_planned_batch_again_until_it_is_in_the_table(
    send: Send, request_of: Callable[..., ExportRequest], table_format: str
) -> None:
    request = request_of(table_format, batch_messages=30)
    state = ExportState(request.target)
    state.begin(request.identity)
    send(40)
    end, rows = stream_batch(request)
    assert end["batch"] == 1
    send(5)
    again, rows_again = stream_batch(
        request, until=True
    )  # killed before the commit: the same range, whatever came since
    assert again == end
    assert (
        [json.loads(row["report"])["messages"] for row in rows_again]
        == [30]
        == [json.loads(row["report"])["messages"] for row in rows]
    )
    batch = state.load(rows[0]["batch"])
    assert batch is not None
    commit_batch(request, open_table(request), batch, [json.loads(row["report"]) for row in rows_again], 0.0)
    end, _ = stream_batch(request)  # killed after the commit
    assert end["batch"] == 2
    # A run without --follow continues with the next batch.
    assert [found.messages for found in export_topic(run_here, request)] == [15]
    assert places(request.target, table_format) == [(0, number) for number in range(45)]
    assert stream_batch(request) == ({"batch": 2, "next": {"T": {"b": {"0": 45}}}}, [])


def test_a_request_survives_being_an_option(request_of: Callable[..., ExportRequest]) -> None:
    request = request_of("delta", json_columns=parse_json_columns("id bigint, note string"), check_crc=False)
    assert ExportRequest.from_text(request.as_text()) == request


def test_json_bodies_as_columns(send: Send, request_of: Callable[..., ExportRequest]) -> None:
    columns = parse_json_columns("id bigint, price double, note string, paid boolean")
    request = request_of(json_columns=columns)
    bodies = [
        b'{"id":1,"price":2.5,"note":"n","paid":true}',
        b'{"id":1.5,"note":{"a":[1]}}',
        b"no json",
        b'{"id":7,"more":1}',
        b"[1]",
        b'{"id":null,"price":3}',
    ]
    for body in bodies:
        send(1, body=body)
    run(request)
    names = ("id", "price", "note", "paid", "body")
    assert [tuple(row[name] for name in names) for row in read_table(request.target, "parquet")] == [
        (1, 2.5, "n", True, None),
        (None, None, '{"a":[1]}', None, bodies[1]),
        (None, None, None, None, b"no json"),
        (7, None, None, None, bodies[3]),
        (None, None, None, None, b"[1]"),
        (None, 3.0, None, None, None),
    ]


def test_export_continues_after_a_compaction_of_its_delta_table(
    send: Send, request_of: Callable[..., ExportRequest]
) -> None:
    from deltalake import DeltaTable

    request = request_of("delta", batch_messages=5)
    send(20)
    assert run(request) == [5, 5, 5, 5]
    table = DeltaTable(request.target)
    assert table.optimize.compact()["numFilesRemoved"] == 4
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert len(list(request.target.glob("dt=*/*.parquet"))) == 1
    send(3)
    assert run(request) == [3]
    assert places(request.target, "delta") == [(0, number) for number in range(23)]


@pytest.mark.parametrize("table_format", FORMATS)
def test_later_run_adds_json_columns_and_keeps_the_earlier_rows(
    send: Send, request_of: Callable[..., ExportRequest], table_format: str
) -> None:
    bodies = [b'{"id":1}', b'{"id":2,"note":"two"}', b'{"id":3,"note":"three"}', b'{"id":4,"note":"four","paid":true}']
    schemas = ["", "id bigint", "id bigint, note string", "paid boolean, note string, id long"]
    for body, schema in zip(bodies, schemas, strict=True):
        send(1, body=body)
        columns = parse_json_columns(schema) if schema else None
        assert run(request_of(table_format, json_columns=columns)) == [1]
    rows = read_table(request_of(table_format).target, table_format)
    assert [(row["id"], row["note"], row["paid"], row["body"]) for row in rows] == [
        (None, None, None, bodies[0]),
        (2, None, None, bodies[1]),
        (3, "three", None, None),
        (4, "four", True, None),
    ]


@pytest.mark.parametrize("table_format", FORMATS)
def test_interrupted_batch_is_repeated_with_more_json_columns(
    send: Send, request_of: Callable[..., ExportRequest], table_format: str
) -> None:
    send(1, body=b'{"id":1}')
    run(request_of(table_format, json_columns=parse_json_columns("id bigint")))
    send(1, body=b'{"id":2,"note":"two"}')

    def written_and_dead(function: Any, tasks: Any, **more: Any) -> Any:
        run_here(function, tasks, **more)
        raise Crash

    with pytest.raises(Crash):
        list(export_topic(written_and_dead, request_of(table_format, json_columns=parse_json_columns("id bigint"))))
    assert run(request_of(table_format, json_columns=parse_json_columns("id bigint, note string"))) == [1]
    rows = read_table(request_of(table_format).target, table_format)
    assert [(row["id"], row["note"], row["body"]) for row in rows] == [(1, None, None), (2, "two", None)]


@pytest.mark.parametrize("schema", ["", "note string", "id double, note string", "id int, note string"])
def test_json_columns_of_the_table_must_stay(send: Send, request_of: Callable[..., ExportRequest], schema: str) -> None:
    send(1, body=b'{"id":1,"note":"one"}')
    run(request_of(json_columns=parse_json_columns("id bigint, note string")))
    columns = parse_json_columns(schema) if schema else None
    with pytest.raises(
        ExportError, match="has JSON columns id bigint, note string, and the schema leaves out or changes"
    ):
        run(request_of(json_columns=columns))
    assert run(request_of(json_columns=parse_json_columns("id long, note string"))) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id", "'id' is not a valid column; write `name type`"),
        ("id decimal", "'id decimal' is not a valid column"),
        ("topic string", "column 'topic' already exists"),
        ("a int, A int", "column 'A' already exists"),
        (", ".join(["a int"] * 1001), "the maximum is 1000"),
    ],
)
def test_schemas_that_cannot_be(text: str, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_json_columns(text)
    assert sentence in str(caught.value)


def test_a_directory_with_something_else_is_refused(send: Send, request_of: Callable[..., ExportRequest]) -> None:
    request = request_of()
    send(1)
    run(request)
    with pytest.raises(ExportError, match="holds an export with format 'parquet', not 'delta'"):
        run(replace(request, table_format="delta"))
    with pytest.raises(ExportError, match="holds an export with topic 'T', not 'U'"):
        run(replace(request, topic="U"))
    foreign = request_of("iceberg")
    foreign.target.mkdir()
    (foreign.target / "notes.txt").write_text("mine")
    with pytest.raises(ExportError, match="is not empty and contains no export"):
        run(foreign)
