"""Data sources and jobs on a store whose CommitLog is in two directories outside its root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from orbitlog.errors import StoreLayoutError
from orbitlog.jobs.check.store_check import check_with
from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.sources.broker_stores import OptionError, log_path_options, name_stores, with_log_paths
from orbitlog.pipeline.sources.commitlog_source import CommitLogSource
from orbitlog.pipeline.sources.topic_source import TopicSource
from orbitlog.pipeline.stats.stats_job import store_statistics
from orbitlog.settings.setting import SettingError
from orbitlog.settings.store_settings import load_settings
from orbitlog.testing.golden import GoldenStore
from tests.support.source_runs import read_batch
from tests.support.spread_stores import spread

COLUMNS = "topic string, queueId int, queueOffset bigint"


@pytest.fixture
def root(golden_497: GoldenStore, tmp_path: Path) -> Path:
    return golden_497.copy_to(tmp_path / "spread" / "store").store


@pytest.fixture
def directories(root: Path, tmp_path: Path) -> str:
    return spread(root, 65536, tmp_path / "b", tmp_path / "a")


def sorted_rows(source: type, options: dict[str, str]) -> list[tuple[object, ...]]:
    table = read_batch(source, options, COLUMNS)
    return sorted(zip(*(table.column(name).to_pylist() for name in table.schema.names), strict=True))


def test_sources_read_all_directories(root: Path, directories: str, golden_497: GoldenStore, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir=/gone\nstorePathCommitLog={directories}\n")
    for source, more in ((TopicSource, {"subscribePattern": ".*"}), (CommitLogSource, {})):
        expected = sorted_rows(source, {"path": str(golden_497.store), **more})
        assert expected
        for where in (
            {"storePathCommitLog": directories},
            {"config": str(conf)},
            {"storePathCommitLog": json.dumps({"spread": directories})},
        ):
            assert sorted_rows(source, {"path": str(root), **where, **more}) == expected
        with pytest.raises(StoreLayoutError, match="storePathCommitLog"):
            sorted_rows(source, {"path": str(root), **more})


def test_options_for_several_stores_are_given_by_name(root: Path, directories: str, golden_497: GoldenStore) -> None:
    stores = name_stores([f"a={root}", f"b={golden_497.store}"])
    with pytest.raises(OptionError, match="given for 2 stores"):
        with_log_paths(stores, None, {"storePathCommitLog": directories})
    with pytest.raises(OptionError, match="no store of the query has that name"):
        with_log_paths(stores, None, {"storePathCommitLog": json.dumps({"c": directories})})
    named = with_log_paths(stores, None, {"storePathCommitLog": json.dumps({"a": directories})})
    assert with_log_paths(stores, None, log_path_options(named)) == named
    found = store_statistics(run_here, named)
    counts = {(row["brokerName"], row["topic"]): row["messages"] for row in found.tables["topics"]}
    assert counts["a", "OrderEvents"] == counts["b", "OrderEvents"] > 0


def test_check_on_tasks_finds_nothing(root: Path, directories: str) -> None:
    settings = load_settings(None, [f"storePathCommitLog={directories}"])
    (checked,) = check_with(run_here, [root], settings=settings, split_bytes=64 * 1024)
    assert (checked.messages, list(checked.findings)) == (547, [])
    with pytest.raises(SettingError, match="one by one"):
        check_with(run_here, [root, root], settings=settings, split_bytes=64 * 1024)
