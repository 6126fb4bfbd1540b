"""`orbitlog pipeline rebuild` and `check` as commands: what they print and how they end; tasks run in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orbitlog.cli.main import cli
from orbitlog.jobs.local_runner import run_here
from orbitlog.testing.golden import GoldenStore


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def session(master: str, command: str, *, only_tasks: bool) -> Iterator[None]:
        assert only_tasks, "no row reaches the JVM in these jobs"
        yield None

    for job in ("rebuild", "check"):
        monkeypatch.setattr(f"orbitlog.cli.pipeline.pipeline_{job}.spark_session", session)
        monkeypatch.setattr(f"orbitlog.pipeline.{job}.runner", lambda spark: run_here)
    monkeypatch.setattr("orbitlog.pipeline.rebuild.index_writers", lambda spark: 2)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["pipeline", *map(str, arguments)])


def test_rebuild_shows_what_it_made(without_spark: None, golden_497: GoldenStore, tmp_path: Path) -> None:
    done = run("rebuild", golden_497.store, "--out", tmp_path / "out")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "547 messages up to physical offset 413332: 41 files of 38 queues, 1615 keys in 5 index files" in done.stdout
    again = run("rebuild", golden_497.store, "--out", tmp_path / "out")
    assert (again.exit_code, "nothing to do" in again.stdout) == (0, True)
    told = json.loads(run("rebuild", golden_497.store, "--out", tmp_path / "out", "--json").stdout)
    assert (told["messages"], told["published"], told["wasFinished"]) == (547, True, True)


@pytest.mark.parametrize("more", [[], ["--in-place", "--out", "x"]])
def test_rebuild_wants_to_know_where_to(more: list[str], golden_497: GoldenStore) -> None:
    done = run("rebuild", golden_497.store, *more)
    assert done.exit_code == 2
    assert "give either --out DIR or --in-place" in done.stderr


def test_check_of_a_sound_store(without_spark: None, golden_497: GoldenStore) -> None:
    done = run("check", golden_497.store)
    assert (done.exit_code, done.stderr) == (0, "")
    assert ": sound: 547 messages" in done.stdout


def test_damage_is_named_and_ends_with_one(without_spark: None, golden_copy, golden_497: GoldenStore) -> None:
    store = golden_copy(golden_497).store
    path = store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[4] ^= 0xFF
    path.write_bytes(data)
    for job in (["check", store], ["rebuild", store, "--in-place"]):
        done = run(*job)
        assert done.exit_code == 1
        # A check also names the topic of what is lost.
        assert re.search(rf"{re.escape(str(path))}: byte 0, physical offset 0(, \w+)?: magic", done.stderr)
        told = [json.loads(line) for line in run(*job, "--json").stdout.splitlines()]
        assert told[0]["findings"][0] | {"reason": "", "count": 0} == told[0]["findings"][0] | {
            "kind": "record",
            "path": str(path),
            "position": 0,
            "physicalOffset": 0,
            "reason": "",
            "count": 0,
        }


@pytest.mark.parametrize("job", ["rebuild", "check"])
def test_without_java_there_is_one_sentence(
    job: str, golden_497: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    done = run(job, golden_497.store, *(["--out", str(tmp_path / "out")] if job == "rebuild" else []))
    assert done.exit_code == 1
    assert done.stderr.startswith("orbitlog: Spark needs Java, and ")
    assert len(done.stderr.splitlines()) == 1
