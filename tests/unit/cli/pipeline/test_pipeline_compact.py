"""`orbitlog pipeline compact`: refusals, the dry run, and the rows of a compaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from orbitlog.cli.main import cli
from orbitlog.cli.pipeline import pipeline_compact
from orbitlog.formats.records.message import make_message
from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
from orbitlog.pipeline.export.export_plan import ExportState
from orbitlog.pipeline.runtime import spark_runner
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    geometry = StoreGeometry(segment_bytes=8192, queue_file_bytes=400)
    with MessageStore.open(tmp_path / "store", StoreConfig(geometry), lambda: 20_000 * 86_400_000) as store:
        for _ in range(20):
            store.append(make_message("T", b"body"))
        store.flush_log()
        store.dispatch_once()
    target = tmp_path / "lake"
    request = ExportRequest((BrokerStore("b", str(tmp_path / "store")),), "T", target, batch_messages=5)
    assert sum(batch.messages for batch in export_topic(run_here, request)) == 20
    return target


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run tasks in this process; return the masters that were asked for."""
    masters: list[str] = []

    @contextmanager
    def session(master: str, *_: Any, **__: Any) -> Iterator[None]:
        masters.append(master)
        yield

    monkeypatch.setattr(pipeline_compact, "spark_session", session)
    monkeypatch.setattr(spark_runner, "runner", lambda _: run_here)
    return masters


def compact(*arguments: object) -> Any:
    return CliRunner().invoke(cli, ["pipeline", "compact", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["NOWHERE"], 1, "contains no export; give the directory of a table that export wrote"),
        (["NOWHERE", "--day", "yesterday"], 2, "a day is YYYY-MM-DD, such as 2026-01-31"),
        (["NOWHERE", "--min-files", "1"], 2, "1 is not in the range x>=2"),
        (
            ["NOWHERE", "--dry-run", "--delete-expired"],
            2,
            "--dry-run changes nothing; give it without --delete-expired",
        ),
        (["NOWHERE", "--catalog", "type=sql"], 2, "a catalog needs --catalog-table NAMESPACE.NAME"),
        (["NOWHERE", "--json", "--format", "{nothing}"], 2, "nothing"),
    ],
)
def test_compact_with_invalid_arguments_is_refused(
    tmp_path: Path, arguments: list[str], code: int, sentence: str
) -> None:
    result = compact(*(tmp_path / word if word == "NOWHERE" else word for word in arguments))
    assert (result.exit_code, sentence in result.stderr) == (code, True), result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_dry_run_shows_the_days_and_starts_no_spark(table: Path, without_spark: list[str]) -> None:
    before = sorted(table.rglob("*"))
    result = compact(table, "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.startswith("2024-10-04: 4 files, ")
    assert result.stdout.endswith(" KiB, would become 1 file\n")
    row = json.loads(compact(table, "--dry-run", "--json").stdout)
    assert (row["day"], row["files"], row["newFiles"], row["newFileBytes"]) == ("2024-10-04", 4, 1, None)
    assert compact(table, "--dry-run", "--day", "2024-10-05").stdout.startswith("nothing to merge: no day has 2 ")
    assert sorted(table.rglob("*")) == before
    assert without_spark == []


def test_compaction_prints_each_day(table: Path, without_spark: list[str]) -> None:
    row = json.loads(compact(table, "--json", "--master", "local[1]").stdout)
    assert list(row) == ["day", "files", "fileBytes", "newFiles", "newFileBytes", "messages", "seconds"]
    assert (row["day"], row["files"], row["newFiles"], row["messages"]) == ("2024-10-04", 4, 1, 20)
    result = compact(table, "--delete-expired")
    assert result.stderr == "0 expired files deleted\n"
    assert result.stdout == "nothing to merge: no day has 2 small files that fit into one\n"
    assert without_spark == ["local[1]"]  # nothing to do is known without Spark


def test_compaction_prints_lines_for_people(table: Path, without_spark: list[str]) -> None:
    result = compact(table, "--min-files", "4")
    assert result.stdout.startswith("2024-10-04: 4 files, ")
    assert " merged into 1 file, " in result.stdout
    assert " (20 messages, " in result.stdout
    assert without_spark == ["local[*]"]


def test_compaction_beside_an_export_of_parquet_files_is_refused(table: Path, tmp_path: Path) -> None:
    request = ExportRequest((BrokerStore("b", str(tmp_path / "store")),), "T", table)
    ExportState(table).begin(request.identity)
    from orbitlog.pipeline.export.compaction_locks import WRITER_LOCK, table_lock

    with table_lock(table, WRITER_LOCK), pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_compact, "spark_session", _no_session)
        patch.setattr(spark_runner, "runner", lambda _: run_here)
        result = compact(table)
    assert result.exit_code == 1
    assert f"an export or a compaction is writing to {table}; wait until it has ended" in result.stderr


@contextmanager
def _no_session(*_: object, **__: object) -> Iterator[None]:
    yield


def test_compact_of_an_export_needs_follow(tmp_path: Path) -> None:
    words = ["pipeline", "export", str(tmp_path), "--topic", "T", "--to", str(tmp_path / "lake"), "--compact"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert "--compact is for --follow; run `orbitlog pipeline compact` after an export" in result.stderr
