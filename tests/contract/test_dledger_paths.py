"""Data files of DLedger outside the root (`storePathDLedgerCommitLog`): read where they are, never left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orbitlog.cli.main import cli
from orbitlog.errors import StoreLayoutError
from orbitlog.pipeline.sources.commitlog_source import CommitLogSource
from orbitlog.pipeline.sources.topic_source import TopicSource
from orbitlog.settings.setting import SettingError
from orbitlog.settings.store_settings import StoreSettings, load_settings
from orbitlog.storefiles.store_files import find_store_files
from tests.support.source_runs import read_batch
from tests.support.store_kinds import KINDS, fingerprint, make_dledger_store, make_store, move_dledger_data

KEY = "storePathDLedgerCommitLog"
COLUMNS = "topic string, queueId int, queueOffset bigint, commitLogOffset bigint"


def make(root: Path, kind: str) -> None:
    if kind == "pure":
        make_dledger_store(root)
    else:
        make_store(root)
        KINDS["converted to DLedger"](root)


def listing(root: Path) -> list[tuple[Path, int, int]]:
    """List names, sizes and times: an index file of DLedger is too large to read it often."""
    return [(path, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(root.rglob("*"))]


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def shown(result: Result) -> list[Any]:
    """Return the JSON rows without paths."""
    names = ("store", "out", "path", "file", "seconds")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [{key: value for key, value in row.items() if key not in names} for row in rows]


COMMANDS = {
    "dump commitlog": ["dump", "commitlog"],
    "dump index": ["dump", "index", "--topic", "T"],
    "doctor check": ["doctor", "check"],
    "doctor explain": ["doctor", "explain"],
    "doctor convert": ["doctor", "convert", "--dry-run", "--out", "{out}"],
}


@pytest.mark.parametrize("kind", ["pure", "switched"])
@pytest.mark.parametrize("command", COMMANDS)
def test_command_reads_data_files_outside_the_root(command: str, kind: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make(root, kind)
    words = [word.format(out=tmp_path / "out") for word in COMMANDS[command]]
    expected = run(*words, root, "--json")
    assert expected.stdout
    place = move_dledger_data(root)
    before = listing(tmp_path)
    given = run(*words, root, "--json", "--set", f"{KEY}={place}")
    assert (given.exit_code, shown(given)) == (expected.exit_code, shown(expected))
    without = run(*words, root, "--json")
    assert without.exit_code in (1, 2)
    assert without.stdout == ""
    assert KEY in without.stderr
    assert listing(tmp_path) == before


@pytest.mark.parametrize("source", [CommitLogSource, TopicSource])
def test_data_source_reads_data_files_outside_the_root(source: type[Any], tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root)
    options = {"storePath": f"b={root}", **({"subscribePattern": ".*"} if source is TopicSource else {})}
    expected = read_batch(source, options, COLUMNS).to_pylist()
    place = move_dledger_data(root)
    assert read_batch(source, {**options, KEY: str(place)}, COLUMNS).to_pylist() == expected
    assert len(expected) == 60
    with pytest.raises(StoreLayoutError, match=KEY):
        read_batch(source, options, COLUMNS)


@pytest.mark.parametrize("kind", ["pure", "switched"])
def test_store_is_converted_and_rebuilt_from_data_files_outside_the_root(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make(root, kind)
    for place in ("below", "outside"):
        given = [] if place == "below" else ["--set", f"{KEY}={move_dledger_data(root)}"]
        for job in ("convert", "rebuild"):
            ran = run("doctor", job, root, "--out", tmp_path / f"{job} {place}", *given)
            assert ran.exit_code == 0, ran.output
    for job in ("convert", "rebuild"):
        below, outside = (fingerprint(tmp_path / f"{job} {place}") for place in ("below", "outside"))
        own = {"orbitlog-rebuild.json"}  # has the time of the rebuild
        assert {name: below[name] for name in below.keys() - own} == {
            name: outside[name] for name in outside.keys() - own
        }


def test_other_log_beside_the_given_one_is_refused(tmp_path: Path) -> None:
    make_dledger_store(tmp_path / "a")
    make_dledger_store(tmp_path / "b")
    place = move_dledger_data(tmp_path / "b")
    with pytest.raises(StoreLayoutError, match="move the other away"):
        find_store_files(tmp_path / "a", StoreSettings({KEY: str(place)}))
    make_store(tmp_path / "c")
    with pytest.raises(StoreLayoutError, match="no dledger-"):
        find_store_files(tmp_path / "c", StoreSettings({KEY: str(place)}))


def test_setting_that_names_several_directories_is_refused() -> None:
    with pytest.raises(SettingError, match="several directories"):
        load_settings(None, [f"{KEY}=/a,/b"])


def test_new_store_with_an_index_of_zeros_is_not_refused(tmp_path: Path) -> None:
    make_store(tmp_path)
    (tmp_path / "dledger-n0/index").mkdir(parents=True)
    (tmp_path / "dledger-n0/index/00000000000000000000").write_bytes(bytes(4096))
    assert find_store_files(tmp_path).segments
