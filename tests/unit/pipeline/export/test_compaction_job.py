"""Compaction: a table has the same rows in fewer files, whatever happens in between."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export import (
    compaction_job,
    delta_compaction,
    iceberg_compaction,
    iceberg_export,
    parquet_compaction,
)
from orbitlog.pipeline.export.compaction_job import (
    CompactionRequest,
    compact_table,
    delete_expired,
    plan_compaction,
)
from orbitlog.pipeline.export.compaction_locks import TableLocked
from orbitlog.pipeline.export.compaction_plan import CompactionError
from orbitlog.pipeline.export.delta_export import DeltaExport
from orbitlog.pipeline.export.export_files import export_schema
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic, writer_lock
from orbitlog.pipeline.export.export_plan import ExportError, ExportState
from orbitlog.pipeline.export.iceberg_export import latest_metadata
from orbitlog.pipeline.export.parquet_export import ParquetTable
from orbitlog.pipeline.sources.json_columns import parse_json_columns
from tests.support.exported_rows import places, read_table

FORMATS = ["parquet", "delta", "iceberg"]
DAY_MS = 86_400_000
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning", "ignore:.*:UserWarning"
)
Send = Callable[..., None]
RequestOf = Callable[..., ExportRequest]


class Crash(BaseException):
    """Stands for a killed driver: nothing catches it."""


def export(request: ExportRequest) -> int:
    return sum(batch.messages for batch in export_topic(run_here, request))


def compact(request: ExportRequest, run: Any = run_here, **more: Any) -> list[tuple[int, int]]:
    """Compact a table; return how many files became how many, by day."""
    days = compact_table(run, CompactionRequest(request.target, **more))
    return [(day.files, day.new_files) for day in days]


def table_files(request: ExportRequest) -> list[str]:
    """List the files of the current version with a reader of the format."""
    if request.table_format == "delta":
        from deltalake import DeltaTable

        return sorted(Path(uri).name for uri in DeltaTable(request.target).file_uris())
    if request.table_format == "iceberg":
        from pyiceberg.table import StaticTable

        scan = StaticTable.from_metadata(str(latest_metadata(request.target))).scan()
        return sorted(Path(task.file.file_path).name for task in scan.plan_files())
    listed = pa.dataset.dataset(request.target, format="parquet", partitioning="hive")
    names = sorted(Path(path).name for path in listed.files)
    assert names == sorted(path.name for path in ParquetTable(request.target).files())
    return names


def merged_on_disk(request: ExportRequest) -> list[str]:
    """List all merged files outside the replaced directories, and those of attempts, whether in the table or not."""
    found = (path for path in Path(request.target).rglob("*compact-*.parquet*") if "replaced" not in path.parts)
    return sorted(path.name for path in found)


@pytest.mark.parametrize("table_format", FORMATS)
def test_small_files_of_a_day_become_one_and_rows_stay(
    send: Send, clock: list[int], request_of: RequestOf, table_format: str
) -> None:
    request = request_of(table_format, batch_messages=5)
    send(30)
    clock[0] += DAY_MS
    send(10)
    assert export(request) == 40
    rows = read_table(request.target, table_format)
    before = table_files(request)
    plans = plan_compaction(CompactionRequest(request.target))
    assert [(plan.day, len(plan.files)) for plan in plans] == [("2024-10-04", 6), ("2024-10-05", 2)]
    assert table_files(request) == before  # a plan changes nothing
    assert compact(request) == [(6, 1), (2, 1)]
    assert read_table(request.target, table_format) == rows
    assert len(table_files(request)) == 2
    assert compact(request) == []
    send(7)
    assert export(request) == 7
    assert len(table_files(request)) == 4
    assert compact(request, files_min=4) == []
    assert compact(request, days=frozenset(["2024-10-04"])) == []
    assert compact(request) == [(3, 1)]
    assert places(request.target, table_format) == [(0, number) for number in range(47)]
    assert len(table_files(request)) == 2
    assert merged_on_disk(request)[0] == table_files(request)[0]


def test_merged_file_has_schema_order_and_encodings_of_an_export(send: Send, request_of: RequestOf) -> None:
    request = request_of(batch_messages=5)
    send(20)
    export(request)
    compact(request)
    (path,) = ParquetTable(request.target).files()
    assert pq.read_schema(path).equals(export_schema(None))
    assert pq.read_table(path).column("queueOffset").to_pylist() == list(range(20))
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert "RLE_DICTIONARY" in columns["topic"].encodings
    assert "DELTA_BINARY_PACKED" in columns["queueOffset"].encodings
    assert columns["queueOffset"].statistics.max == 19


def test_commits_state_that_no_row_has_changed(send: Send, request_of: RequestOf) -> None:
    from pyiceberg.table import StaticTable

    send(20)
    for table_format in ("delta", "iceberg"):
        request = request_of(table_format, batch_messages=5)
        export(request)
        compact(request)
    log = sorted((request_of("delta").target / "_delta_log").glob("*.json"))[-1].read_text().splitlines()
    changes = [action[name] for action in map(json.loads, log) for name in ("add", "remove") if name in action]
    assert len(changes) == 5
    assert not any(change["dataChange"] for change in changes)
    snapshot = StaticTable.from_metadata(str(latest_metadata(request.target))).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary["total-records"] == "20"
    assert snapshot.summary["total-data-files"] == "1"


STEPS = ("begun", "written", "before commit", "after commit")
PARQUET_STEPS = ("linked", "recorded", "exchanged")


@pytest.mark.parametrize(
    ("table_format", "step"),
    [(name, step) for name in FORMATS for step in STEPS] + [("parquet", step) for step in PARQUET_STEPS],
)
def test_compaction_killed_between_any_two_steps_loses_and_repeats_nothing(
    send: Send, request_of: RequestOf, table_format: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(table_format, batch_messages=5)
    send(30)
    export(request)
    rows = 30

    def killed_runner(function: Any, tasks: Any, **more: Any) -> Any:
        if step == "begun":
            raise Crash
        reports = run_here(function, tasks, **more)
        if step == "written":
            raise Crash
        return reports

    def crash(*_: Any) -> None:
        raise Crash

    def then_crash(function: Any) -> Any:
        def call(*arguments: Any) -> None:
            function(*arguments)
            raise Crash

        return call

    steps = compaction_job._ParquetSteps if table_format == "parquet" else compaction_job._CommittedSteps
    commits = {
        "parquet": compaction_job.ParquetCompaction,
        "delta": compaction_job.DeltaCompaction,
        "iceberg": compaction_job.IcebergCompaction,
    }[table_format]
    for _ in range(2):
        with monkeypatch.context() as patch:
            if step == "before commit":
                patch.setattr(steps, "replace", crash)
            elif step == "after commit":
                patch.setattr(commits, "replace", then_crash(commits.replace))
            elif step == "linked":
                patch.setattr(parquet_compaction, "link_files", then_crash(parquet_compaction.link_files))
            elif step == "recorded":
                patch.setattr(parquet_compaction, "exchange_directories", crash)
            elif step == "exchanged":
                exchange = then_crash(parquet_compaction.exchange_directories)
                patch.setattr(parquet_compaction, "exchange_directories", exchange)
            with pytest.raises(Crash):
                compact(request, killed_runner)
        assert places(request.target, table_format) == [(0, number) for number in range(rows)]
        table_files(request)  # the directory and the commit files agree
        send(6)
        rows += 6
        assert export(request) == 6
        assert places(request.target, table_format) == [(0, number) for number in range(rows)]
    compact(request)
    assert compact(request) == []
    assert len(table_files(request)) == 1
    assert places(request.target, table_format) == [(0, number) for number in range(rows)]
    committed = {path.name for path in Path(request.target).rglob("*.parquet") if "replaced" not in path.parts}
    assert set(merged_on_disk(request)) <= committed
    assert not list((request.target / "_orbitlog" / "compactions").glob("*")) or table_format == "parquet"


@pytest.mark.parametrize("table_format", FORMATS)
def test_files_of_a_killed_compaction_are_deleted_by_the_next(
    send: Send, request_of: RequestOf, table_format: str
) -> None:
    request = request_of(table_format, batch_messages=5)
    send(10)
    export(request)

    def written(function: Any, tasks: Any, **more: Any) -> Any:
        run_here(function, tasks, **more)
        output = Path(request.target) / tasks[0].output
        output.with_name(f".{output.name}.0123").write_bytes(b"an attempt that was killed")
        raise Crash

    with pytest.raises(Crash):
        compact(request, written)
    left = [path for path in Path(request.target).rglob("*compact-*") if path.is_file()]
    assert len(left) == 2
    assert compact(request) == [(2, 1)]
    assert not any(path.exists() for path in left)
    assert len(places(request.target, table_format)) == 10


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_export_that_commits_during_a_compaction_keeps_its_rows(
    send: Send, request_of: RequestOf, table_format: str
) -> None:
    request = request_of(table_format, batch_messages=5)
    send(20)
    export(request)

    def meanwhile(function: Any, tasks: Any, **more: Any) -> Any:
        send(10)
        assert export(request) == 10
        return run_here(function, tasks, **more)

    assert compact(request, meanwhile) == [(4, 1)]
    assert places(request.target, table_format) == [(0, number) for number in range(30)]
    assert len(table_files(request)) == 3
    assert export(request) == 0


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_compaction_that_commits_during_an_export_does_not_stop_it(
    send: Send, request_of: RequestOf, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(table_format)
    for _ in range(4):
        send(5)
        export(request)
    send(5)
    assert sum(batch.messages for batch in export_topic(_compacting_runner(request), request)) == 5
    assert places(request.target, table_format) == [(0, number) for number in range(25)]
    assert len(table_files(request)) == 2
    send(5)
    # The version that the commit is based on is read here.
    owner, name = (DeltaExport, "_with_all_columns") if table_format == "delta" else (iceberg_export, "_last_batch")
    monkeypatch.setattr(owner, name, compacting_once(request, getattr(owner, name), after=True))
    assert export(request) == 5
    assert places(request.target, table_format) == [(0, number) for number in range(30)]
    assert len(table_files(request)) == 2


def compacting_once(request: ExportRequest, function: Any, *, after: bool) -> Any:
    """Return a function that compacts the table at its first call, before or after its own work."""
    left = [True]

    def call(*arguments: Any) -> Any:
        result = function(*arguments) if after else None
        if left and left.pop():
            compact(request)
        return result if after else function(*arguments)

    return call


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_compaction_between_the_check_and_the_commit_of_another_is_noticed(
    send: Send, request_of: RequestOf, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(table_format, batch_messages=5)
    send(20)
    export(request)
    monkeypatch.setattr(compaction_job, "table_lock", no_lock)
    monkeypatch.setattr(compaction_job.CompactionRecords, "clean_up", lambda *_: None)
    owner, name = (delta_compaction, "_actions") if table_format == "delta" else (iceberg_compaction, "_replace_files")
    monkeypatch.setattr(owner, name, compacting_once(request, getattr(owner, name), after=False))
    with pytest.raises(CompactionError, match="another writer has replaced or deleted files"):
        compact(request)
    assert places(request.target, table_format) == [(0, number) for number in range(20)]
    assert len(table_files(request)) == 1


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_export_between_the_check_and_the_commit_of_a_compaction_delays_it(
    send: Send, request_of: RequestOf, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(table_format, batch_messages=5)
    send(20)
    export(request)
    owner, name = (delta_compaction, "_actions") if table_format == "delta" else (iceberg_compaction, "_replace_files")
    function, exported = getattr(owner, name), list[int]()

    def export_first(*arguments: Any) -> Any:
        if not exported:
            send(5)
            exported.append(export(request))
        return function(*arguments)

    monkeypatch.setattr(owner, name, export_first)
    assert compact(request) == [(4, 1)]
    assert exported == [5]
    assert places(request.target, table_format) == [(0, number) for number in range(25)]
    assert len(table_files(request)) == 2


def _compacting_runner(request: ExportRequest) -> Any:
    def run(function: Any, tasks: Any, **more: Any) -> Any:
        reports = run_here(function, tasks, **more)
        compact(request)
        return reports

    return run


@contextmanager
def no_lock(*_: Any, **__: Any) -> Iterator[None]:
    yield


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_two_compactions_at_once_leave_each_row_once(
    send: Send, request_of: RequestOf, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(table_format, batch_messages=5)
    send(20)
    export(request)

    def meanwhile(function: Any, tasks: Any, **more: Any) -> Any:
        with pytest.raises(TableLocked, match="another compaction is writing to"):
            compact(request)
        with monkeypatch.context() as patch:  # as on an object store, which has no locks
            patch.setattr(compaction_job, "table_lock", no_lock)
            patch.setattr(compaction_job.CompactionRecords, "clean_up", lambda *_: None)
            assert compact(request) == [(4, 1)]
        return run_here(function, tasks, **more)

    with pytest.raises(CompactionError, match="another writer has replaced or deleted files"):
        compact(request, meanwhile)
    assert places(request.target, table_format) == [(0, number) for number in range(20)]
    assert len(table_files(request)) == 1


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_compaction_that_was_taken_for_abandoned_does_not_commit(
    send: Send, request_of: RequestOf, table_format: str
) -> None:
    request = request_of(table_format, batch_messages=5)
    send(20)
    export(request)

    def meanwhile(function: Any, tasks: Any, **more: Any) -> Any:
        reports = run_here(function, tasks, **more)
        for record in (request.target / "_orbitlog" / "compactions").iterdir():
            record.unlink()
        return reports

    with pytest.raises(CompactionError, match="has deleted the files of this one"):
        compact(request, meanwhile)
    assert len(table_files(request)) == 4


def test_compaction_of_another_writer_is_not_repeated(send: Send, request_of: RequestOf) -> None:
    from deltalake import DeltaTable

    request = request_of("delta", batch_messages=5)
    send(20)
    export(request)

    def meanwhile(function: Any, tasks: Any, **more: Any) -> Any:
        reports = run_here(function, tasks, **more)
        DeltaTable(request.target).optimize.compact()
        return reports

    with pytest.raises(CompactionError, match="another writer has replaced or deleted files"):
        compact(request, meanwhile)
    assert places(request.target, "delta") == [(0, number) for number in range(20)]
    assert compact(request) == []  # its files are not touched
    send(5)
    assert export(request) == 5
    assert len(places(request.target, "delta")) == 25


def test_export_and_compaction_of_parquet_files_exclude_each_other(send: Send, request_of: RequestOf) -> None:
    request = request_of(batch_messages=5)
    send(20)
    batches = export_topic(run_here, request)
    next(batches)
    next(batches)
    with pytest.raises(TableLocked, match="an export or a compaction is writing to"):
        compact(request)
    assert len(list(batches)) == 2
    with writer_lock(request), pytest.raises(TableLocked, match="an export or a compaction is writing to"):
        export(request)
    assert compact(request) == [(4, 1)]


def test_readers_of_parquet_files_never_see_a_row_twice_or_not_at_all(send: Send, request_of: RequestOf) -> None:
    request = request_of(batch_messages=5)
    send(300)
    export(request)
    day = request.target / "dt=2024-10-04"
    stop, listings = threading.Event(), set[tuple[str, ...]]()

    def list_names() -> None:
        while not stop.is_set():
            listings.add(tuple(sorted(path.name for path in day.iterdir() if not path.name.startswith("."))))

    reader = threading.Thread(target=list_names)
    reader.start()
    try:
        for _ in range(8):
            assert len(compact(request)) == 1
            send(50)
            assert export(request) == 50
    finally:
        stop.set()
        reader.join()
    written = {name: [name] for name in sorted(path.name for path in replaced_files(request) | set(day.iterdir()))}
    table = ParquetTable(request.target)
    for number in table.records():
        record = table.record(number)
        merged, replaced = ([Path(path).name for path in record[key]] for key in ("merged", "replaced"))
        written[merged[0]] = [part for name in replaced for part in written[name]]
    parts = sorted(name for name in written if name.startswith("part-"))
    assert len(parts) == 60 + 8 * 10
    for listing in listings:
        # Each listing has the first batches, each once, whether merged or not.
        listed = sorted(part for name in listing for part in written[name])
        assert len(listed) >= 60
        assert listed == parts[: len(listed)]
    assert len(listings) > 8


def replaced_files(request: ExportRequest) -> set[Path]:
    return set((request.target / "_orbitlog" / "replaced").glob("*/*.parquet"))


def test_replaced_parquet_files_are_deleted_after_an_hour(
    send: Send, request_of: RequestOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(batch_messages=5)
    replaced = request.target / "_orbitlog" / "replaced"
    for number in range(3):
        send(10)
        export(request)
        compact(request)
        assert len(list(replaced.iterdir())) == number + 1
    monkeypatch.setattr(parquet_compaction, "_KEPT_MS", 0)
    assert compact(request) == []
    assert list(replaced.iterdir()) == []
    assert len(places(request.target, "parquet")) == 30


def test_late_attempt_of_a_task_does_not_bring_merged_rows_back(send: Send, request_of: RequestOf) -> None:
    request = request_of(batch_messages=5)
    send(10)
    export(request)
    late = ParquetTable(request.target).files()[-1]
    data = late.read_bytes()
    compact(request)
    late.with_name(f".{late.name}").write_bytes(data)
    assert export(request) == 0
    assert len(places(request.target, "parquet")) == 10
    assert not late.exists()


def test_file_system_without_exchange_leaves_the_table_as_it_is(
    send: Send, request_of: RequestOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(batch_messages=5)
    send(20)
    export(request)

    def refuse(*_: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    with monkeypatch.context() as patch:
        patch.setattr(parquet_compaction, "exchange_directories", refuse)
        with pytest.raises(CompactionError, match="needs hard links and the exchange of two directories"):
            compact(request)
    assert len(table_files(request)) == 4
    assert compact(request) == [(4, 1)]


def test_other_files_of_a_day_stay(send: Send, request_of: RequestOf) -> None:
    request = request_of(batch_messages=5)
    send(10)
    export(request)
    day = request.target / "dt=2024-10-04"
    (day / "_note").write_text("mine")
    assert compact(request) == [(2, 1)]
    assert (day / "_note").read_text() == "mine"
    (day / "more").mkdir()
    send(5)
    export(request)
    with pytest.raises(CompactionError, match="has a directory more, which no export has written"):
        compact(request)
    assert len(places(request.target, "parquet")) == 15


@pytest.mark.parametrize("table_format", FORMATS)
def test_files_with_fewer_json_columns_have_null_in_them(send: Send, request_of: RequestOf, table_format: str) -> None:
    for body, schema in ((b'{"id":1}', ""), (b'{"id":2}', "id bigint"), (b'{"id":3,"n":"x"}', "id bigint, n string")):
        send(1, body=body)
        request = request_of(table_format, json_columns=parse_json_columns(schema) if schema else None)
        export(request)
    rows = read_table(request.target, table_format)
    assert compact(request) == [(3, 1)]
    assert read_table(request.target, table_format) == rows
    assert [row["id"] for row in rows] == [None, 2, 3]


def test_iceberg_table_of_a_catalog_needs_its_catalog(send: Send, request_of: RequestOf) -> None:
    request = request_of("iceberg", batch_messages=5)
    state = ExportState(request.target)
    state.begin({**request.identity, "catalogTable": "shop.orders"})
    with pytest.raises(CompactionError, match=r"is table shop\.orders of a catalog; give --catalog-table"):
        compact(request)


def test_table_that_cannot_be_compacted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompactionError, match="contains no export; give the directory of a table that export wrote"):
        plan_compaction(CompactionRequest(tmp_path))
    with pytest.raises(CompactionError, match="is a plain Parquet table on an object store"):
        parquet_compaction.ParquetCompaction("s3://bucket/table")


def test_two_exports_of_the_same_iceberg_batch_commit_it_once(send: Send, request_of: RequestOf) -> None:
    request = request_of("iceberg")
    send(5)

    def meanwhile(function: Any, tasks: Any, **more: Any) -> Any:
        reports = run_here(function, tasks, **more)
        assert export(request) == 5
        return reports

    with pytest.raises(ExportError, match="another process is writing to"):
        list(export_topic(meanwhile, request))
    assert len(places(request.target, "iceberg")) == 5


WEEK_S = 7 * 86_400


@pytest.mark.parametrize("table_format", FORMATS)
def test_replaced_files_are_deleted_once_their_retention_has_passed(
    send: Send, request_of: RequestOf, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(table_format, batch_messages=5)
    send(20)
    export(request)
    compact(request)
    send(5)
    export(request)
    asked = CompactionRequest(request.target)
    assert delete_expired(asked) == 0
    present = data_files(request)
    assert len(present) == 6
    pass_retention(request, monkeypatch)
    rows = read_table(request.target, table_format)
    assert delete_expired(asked) == 4
    assert delete_expired(asked) == 0
    assert data_files(request) == sorted(table_files(request))
    assert len(data_files(request)) == 2
    assert read_table(request.target, table_format) == rows
    send(5)
    assert export(request) == 5
    assert compact(request) == [(3, 1)]
    assert places(request.target, table_format) == [(0, number) for number in range(30)]


def data_files(request: ExportRequest) -> list[str]:
    """List all data files below the directory, once for each name."""
    return sorted({path.name for path in Path(request.target).rglob("*.parquet") if "_delta_log" not in path.parts})


def pass_retention(request: ExportRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the retention of a table to zero, as its properties allow."""
    if request.table_format == "delta":
        from deltalake import DeltaTable

        properties = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
        DeltaTable(request.target).alter.set_table_properties(properties)
    elif request.table_format == "iceberg":
        table = iceberg_export.IcebergExport(request.target, pa.schema([])).table()
        assert table is not None
        with table.transaction() as transaction:
            # A second of the future: the clock need not advance.
            transaction.set_properties({"history.expire.max-snapshot-age-ms": "-1000"})
    else:
        monkeypatch.setattr(parquet_compaction, "_KEPT_MS", 0)


def test_snapshots_of_tags_and_the_newest_ones_do_not_expire(send: Send, request_of: RequestOf) -> None:
    request = request_of("iceberg", batch_messages=5)
    send(20)
    export(request)
    table = iceberg_export.IcebergExport(request.target, pa.schema([])).table()
    assert table is not None
    oldest, second, *_ = table.snapshots()
    later_ms = oldest.timestamp_ms + 10 * WEEK_S * 1000
    assert len(iceberg_compaction.expired_snapshots(table, later_ms)) == 3
    assert iceberg_compaction.expired_snapshots(table, oldest.timestamp_ms + 4 * 86_400_000) == []
    with table.transaction() as transaction:
        transaction.set_properties({"history.expire.min-snapshots-to-keep": "2"})
    table.manage_snapshots().create_tag(oldest.snapshot_id, "audit").commit()
    table = iceberg_export.IcebergExport(request.target, pa.schema([])).table()
    assert table is not None
    assert iceberg_compaction.expired_snapshots(table, later_ms) == [second]


def test_iceberg_files_without_some_statistics_log_nothing(
    send: Send, request_of: RequestOf, caplog: pytest.LogCaptureFixture
) -> None:
    request = request_of("iceberg", batch_messages=5)
    send(10)
    export(request)
    compact(request)
    assert [record.message for record in caplog.records if record.name.startswith("pyiceberg")] == []
