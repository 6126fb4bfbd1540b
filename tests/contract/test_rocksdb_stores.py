"""Every offline reader over stores with queues or tables in RocksDB: the same facts as over the converted store."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.doctor.convert.store_convert import convert_store
from orbitlog.doctor.examination import examine
from orbitlog.doctor.explanation import explain
from orbitlog.errors import StoreLayoutError
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.pipeline.sources.commitlog_source import CommitLogSource
from orbitlog.pipeline.sources.topic_source import TopicSource
from orbitlog.pipeline.stats.consumer_lag import read_progress
from orbitlog.settings.store_settings import StoreSettings
from tests.support.rocksdb_archives import JOINT, ONE_PER_TABLE, unpack_rocksdb_store
from tests.support.source_runs import read_batch
from tests.support.store_kinds import fingerprint

pytest.importorskip("rocksdict")


@pytest.fixture(scope="module", params=[ONE_PER_TABLE, JOINT])
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store of Apache RocketMQ 5.5.0, and what it is converted to."""
    directory = tmp_path_factory.mktemp("rocksdb")
    store = unpack_rocksdb_store(request.param, directory)
    convert_store(store, directory / "converted", StoreSettings())
    return store, directory / "converted"


def dumped(command: str, root: Path) -> list[dict[str, Any]]:
    done = CliRunner().invoke(cli, ["dump", command, str(root), "--json"], catch_exceptions=False)
    if done.exit_code:
        raise StoreLayoutError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def without_versions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if not row["file"].endswith((".bak", "metrics", "Metrics"))]


READERS: dict[str, Callable[[Path], Any]] = {
    "doctor explain": lambda root: replace(explain(root), store=""),
    "dump config": lambda root: without_versions(dumped("config", root)),
    "dump consumequeue": lambda root: dumped("consumequeue", root),
    "dump commitlog": lambda root: dumped("commitlog", root),
    "progress": lambda root: read_progress(BrokerStore("b", str(root))),
    "topics": lambda root: read_batch(TopicSource, {"storePath": f"b={root}", "subscribePattern": ".*"}),
    "log": lambda root: read_batch(CommitLogSource, {"storePath": f"b={root}"}),
}


@pytest.mark.parametrize("reader", READERS)
def test_reader_returns_what_the_converted_store_has(reader: str, stores: tuple[Path, Path]) -> None:
    store, converted = stores
    before, times = fingerprint(store), _times(store)
    found, expected = READERS[reader](store), READERS[reader](converted)
    if reader == "doctor explain":
        found.signs = expected.signs = []
    assert found == expected
    assert found
    assert fingerprint(store) == before
    assert _times(store) == times


def _times(root: Path) -> dict[str, int]:
    return {
        os.path.relpath(Path(directory, name), root): Path(directory, name).stat().st_mtime_ns
        for directory, directories, files in os.walk(root)
        for name in (*directories, *files)
    }


def test_check_compares_units_and_tables_with_the_log(stores: tuple[Path, Path]) -> None:
    examination = examine(stores[0])
    assert examination.is_sound, examination.problems
    assert (examination.check.messages, examination.check.units) == (24, 24)
    assert not [finding for finding in examination.findings if "among" in finding.reason]


def test_check_locates_a_wrong_unit_and_advises_the_conversion(tmp_path: Path) -> None:
    import rocksdict

    store = unpack_rocksdb_store(ONE_PER_TABLE, tmp_path)
    directory = str(store / "consumequeue")
    families = rocksdict.Rdict.list_cf(directory, rocksdict.Options(raw_mode=True))
    options = {name: rocksdict.Options(raw_mode=True) for name in families}
    opened = rocksdict.Rdict(directory, rocksdict.Options(raw_mode=True), options)
    key, value = list(opened.items())[2]
    opened[key] = value[:8] + b"\0\0\0\1" + value[12:]
    opened.close()
    (store / "consumequeue" / "rocksdict-config.json").unlink(missing_ok=True)
    (problem,) = examine(store).problems
    assert problem.finding.queue_id == 0 and problem.finding.queue_offset == 2
    assert problem.finding.path.startswith(str(store / "consumequeue"))
    assert problem.command == f"orbitlog doctor convert {store} --out DIR"


@pytest.mark.parametrize("reader", sorted(READERS.keys() - {"dump commitlog", "log"}))
def test_reader_without_the_binding_names_the_extra(
    reader: str, stores: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = stores
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    if reader in ("topics", "dump consumequeue") and not (store / "consumequeue" / "CURRENT").exists():
        assert READERS[reader](store)  # its queues are files
        return
    with pytest.raises(StoreLayoutError, match=r"orbitlog doctor convert|orbitlog\[rocksdb\]"):
        READERS[reader](store)


def test_check_without_the_binding_states_what_it_did_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = unpack_rocksdb_store(JOINT, tmp_path)
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    found = examine(store)
    assert any("tables in RocksDB, not read" in finding.reason for finding in found.findings)
    assert found.check.units == 24
