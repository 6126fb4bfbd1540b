"""`orbitlog doctor` as a user calls it: sentences, JSON, exit codes, and no change that was not asked for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orbitlog.cli.main import cli
from orbitlog.jobs.local_runner import run_here
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_inference import infer_geometry, infer_rules
from orbitlog.testing.golden import GoldenStore
from tests.support.damage_zoo import ZOO
from tests.support.repaired_stores import fingerprint


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["doctor", *map(str, arguments)])


@pytest.fixture
def root(golden_497: GoldenStore, tmp_path: Path) -> Path:
    return golden_497.copy_to(tmp_path / "store").store


def damaged(root: Path, name: str) -> Path:
    ZOO[name][0](root)
    return root


def test_a_sound_store(root: Path) -> None:
    result = run("check", root)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "nothing to repair: 547 messages up to physical offset 413332, 38 queues, 1615 keys in 5" in result.stdout
    assert run("repair", root).stdout == f"{root}: nothing to repair\n"


def test_findings_state_consequence_and_repair(root: Path) -> None:
    result = run("check", damaged(root, "segment_of_zeros"))
    assert result.exit_code == 1
    first = result.stdout.splitlines()[0]
    assert first.startswith("error: ")
    assert "physical offset 131072" in first
    assert "3 messages of 2 queues lost: 3 of OrderEvents" in first
    assert first.endswith(f"Repair it: orbitlog doctor repair {root}")


def test_missing_segment_is_reported_without_advice_to_change_the_store(root: Path) -> None:
    result = run("check", damaged(root, "missing_middle_segment"))
    assert result.exit_code == 1
    first = result.stdout.splitlines()[0]
    assert first.startswith(f"error: {root}/commitlog/00000000000000131072, physical offset 131072: 65536 bytes")
    assert "queues have units for 3 messages in it: 3 of OrderEvents" in first
    assert "Repair it" not in result.stdout
    refused = run("repair", root, "--apply")
    assert refused.exit_code == 1 and "--accept-lost-segments" in refused.stderr
    assert run("repair", root, "--apply", "--accept-lost-segments").exit_code == 0
    assert run("check", root).exit_code == 0


def test_segment_reached_through_a_link_stops_every_command_that_writes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one: the rest of the log has no gap that would show it."""
    segment = find_store_files(root).segments[-1].path
    segment.rename(tmp_path / segment.name)
    segment.symlink_to(tmp_path / segment.name)
    before = fingerprint(root)
    checked = run("check", root)
    assert checked.exit_code == 1 and "Repair it" not in checked.stdout
    assert f"is a link to {tmp_path / segment.name}" in checked.stdout.splitlines()[0]
    dry_run = run("rebuild", root, "--dry-run")
    assert dry_run.exit_code == 1 and "would be refused, because the log is incomplete" in dry_run.stdout
    monkeypatch.setattr("orbitlog.cli.pipeline.pipeline_rebuild.spark_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr("orbitlog.pipeline.rebuild.runner", lambda _: run_here)
    monkeypatch.setattr("orbitlog.pipeline.rebuild.index_writers", lambda _: 1)
    by_pipeline = CliRunner().invoke(cli, ["pipeline", "rebuild", str(root), "--in-place"])
    for refused in (run("rebuild", root), run("rebuild", root, "--out", tmp_path / "out"), by_pipeline):
        assert refused.exit_code not in (0, None), refused.output
        assert "nothing is rebuilt from an incomplete log" in refused.stderr
    assert run("repair", root, "--apply", "--accept-lost-segments").exit_code == 1
    shutil.rmtree(root / ".orbitlog-doctor", ignore_errors=True)
    after = fingerprint(root)
    assert {path: after[path] for path in after if path != "lock"} == {
        path: before[path] for path in before if path != "lock"
    }


AGREED = ["missing_middle_segment", "flipped_bit_in_a_unit", "deleted_index", "deleted_checkpoint", "deleted_config"]
AGREED += ["half_written_topics_without_a_backup", "consumer_offsets_out_of_range", "queue_of_a_copied_topic"]
AGREED += ["editor_backup_among_segments", "directory_in_the_place_of_the_lock", "garbage_in_log_journal_and_lock"]


@pytest.mark.parametrize("name", [None, *AGREED])
def test_pipeline_check_has_the_verdict_of_doctor_check(
    name: str | None, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks run here instead of in Spark; all else is the command."""

    @contextmanager
    def no_session(*_: object, **__: object) -> Iterator[None]:
        yield None

    monkeypatch.setattr("orbitlog.cli.pipeline.pipeline_check.spark_session", no_session)
    monkeypatch.setattr("orbitlog.pipeline.check.runner", lambda _: run_here)
    if name is not None:
        damaged(root, name)
    by_doctor = run("check", root, "--json")
    by_pipeline = CliRunner().invoke(cli, ["pipeline", "check", str(root), "--json"])
    assert by_pipeline.exit_code == by_doctor.exit_code == (0 if name is None else 1)
    *findings, summary = map(json.loads, by_doctor.stdout.splitlines())
    verdict = json.loads(by_pipeline.stdout)
    assert verdict["findings"] == [one for one in findings if one["severity"] != "note"]
    assert {key: verdict[key] for key in ("sound", "findingCount", "messages")} == {
        key: summary[key] for key in ("sound", "findingCount", "messages")
    }


def test_findings_as_json_and_then_figures(root: Path) -> None:
    result = run("check", damaged(root, "flipped_bit_in_a_unit"), "--json")
    assert result.exit_code == 1
    *findings, summary = map(json.loads, result.stdout.splitlines())
    assert [(one["severity"], one["kind"]) for one in findings] == [("warning", "queue unit")]
    assert findings[0]["command"] == f"orbitlog doctor rebuild {root} --queues"
    assert findings[0]["consequence"]
    assert (summary["sound"], summary["messages"], summary["severities"]["warning"]) == (False, 547, 1)


def test_a_plan_changes_nothing_and_an_undone_repair_neither(root: Path) -> None:
    damaged(root, "noise_in_log_queue_and_index")
    before = fingerprint(root)
    plan = run("repair", root)
    assert plan.exit_code == 1
    assert "nothing was changed, --apply carries them out" in plan.stdout
    assert fingerprint(root) == before
    applied = run("repair", root, "--apply")
    assert applied.exit_code == 0, applied.output
    assert "nothing is left to repair" in applied.stdout
    assert run("check", root).exit_code == 0
    assert "changes undone" in run("undo", root).stdout
    assert fingerprint(root) == before


def test_wrong_use(root: Path, tmp_path: Path) -> None:
    assert run("repair", root, "--plan", "--apply").exit_code == 2
    assert run("check", tmp_path / "nowhere").exit_code == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    result = run("check", empty)
    assert result.exit_code == 1
    assert "is not a RocketMQ store" in result.stderr
    assert "has no repair to undo" in run("undo", root).stderr


def test_a_queue_is_made_again(root: Path) -> None:
    sound = fingerprint(root)
    damaged(root, "flipped_bit_in_a_unit")
    dry = run("rebuild", root, "--queues", "--dry-run")
    assert (dry.exit_code, "1 findings would be repaired; nothing was changed" in dry.stdout) == (1, True)
    topic, _ = next(iter(find_store_files(root).queues))
    result = run("rebuild", root, "--topic", topic)
    assert result.exit_code == 0, result.output
    assert "queues rebuilt from 547 messages" in result.stdout
    assert {name: found for name, found in fingerprint(root).items() if name in sound} == sound
    assert run("undo", root).exit_code == 0
    assert run("check", root).exit_code == 1


def test_old_files_are_kept_until_they_are_discarded(root: Path) -> None:
    assert run("rebuild", root).exit_code == 0
    assert (root / ".orbitlog-doctor").is_dir()
    assert run("check", root).exit_code == 0
    assert run("rebuild", root, "--index", "--discard-old").exit_code == 0
    assert not (root / ".orbitlog-doctor").exists()
    assert run("check", root).exit_code == 0


def test_parts_into_a_directory(root: Path, tmp_path: Path) -> None:
    before = fingerprint(root)
    result = run("rebuild", root, "--queues", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    made = fingerprint(tmp_path / "out")
    assert {name for name in made if name.startswith("consumequeue/")} == {
        name for name in before if name.startswith("consumequeue/")
    }
    assert all(made[name] == before[name] for name in made if name.startswith("consumequeue/"))
    assert not (tmp_path / "out" / "index").exists()
    assert fingerprint(root) == before


def test_the_engine_on_spark_makes_the_same_bytes(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark: the command hands the tasks to whatever runs them there."""
    asked: list[str] = []

    @contextmanager
    def session(master: str, command: str, *, only_tasks: bool) -> Iterator[None]:
        assert only_tasks, "no row reaches the JVM in this job"
        asked.append(master)
        yield None

    monkeypatch.setattr("orbitlog.cli.doctor.doctor_rebuild.spark_session", session)
    monkeypatch.setattr("orbitlog.pipeline.runtime.spark_runner.runner", lambda spark: run_here)
    assert run("rebuild", root, "--out", tmp_path / "here").exit_code == 0
    spark = run("rebuild", root, "--out", tmp_path / "there", "--engine", "spark", "--master", "local[2]")
    assert spark.exit_code == 0, spark.output
    assert asked == ["local[2]"]
    here, there = fingerprint(tmp_path / "here"), fingerprint(tmp_path / "there")
    assert {name for name in here if here[name] != there.get(name)} == {"orbitlog-rebuild.json"}


def test_nothing_is_made_from_a_damaged_log(root: Path) -> None:
    damaged(root, "missing_middle_segment")
    before = fingerprint(root)
    result = run("rebuild", root)
    assert (result.exit_code, "65536 bytes before this file are missing" in result.stderr) == (1, True)
    assert fingerprint(root) == before


def test_beside_a_running_broker_only_looking_is_allowed(root: Path) -> None:
    found = find_store_files(root)
    config = StoreConfig(infer_geometry(found, StoreSettings()), infer_rules(found, StoreSettings()))
    with MessageStore.open(root, config, lambda: 1_800_000_000_000) as store:
        store.dispatch_once()
        assert run("check", root).exit_code == 0
        for command in (("repair", root, "--apply"), ("rebuild", root), ("undo", root)):
            result = run(*command)
            assert (result.exit_code, "is in use by another broker" in result.stderr) == (1, True), result.output


def test_one_screen_about_a_store(root: Path) -> None:
    result = run("explain", root)
    assert result.exit_code == 0
    lines = {line[:14].strip(): line[14:] for line in result.stdout.splitlines()}
    assert len(result.stdout.splitlines()) <= 26
    assert lines["written by"] == "a broker of 4.9"
    assert lines["brokers"] == "127.0.0.1:30921"
    assert "physical offset 0 to 413332" in lines["log"]
    assert lines["delays"] == "2 at level 17, 5 at level 18"
    told = json.loads(run("explain", root, "--json").stdout)
    walk = LogWalk(find_store_files(root).segments, 65536)
    sizes = [size for message, size in walk.records() if message.topic == "OrderEvents"]
    largest = {"topic": "OrderEvents", "queues": 4, "messages": len(sizes), "storedBytes": sum(sizes)}
    assert told["topics"][0] == largest
    assert sum(one["messages"] for one in told["topics"]) == 547


def test_a_path_that_is_one_level_off_names_the_store(golden_497: GoldenStore, run: Any) -> None:
    store = golden_497.store
    for path in (store / "commitlog", store / "consumequeue", store.parent):
        ran = run("doctor", "check", path)
        assert ran.exit_code == 2
        assert f"did you mean {store}" in ran.stderr
