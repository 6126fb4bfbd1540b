"""Commands on a store whose CommitLog is in two directories outside its root: read as one log, or refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orbitlog.testing.golden import GoldenStore
from tests.support.cli_run import Run, run
from tests.support.serving_process import PROGRAM, SECONDS_MAX, serving
from tests.support.spread_stores import digests, spread

SEGMENT_BYTES = 65536
__all__ = ["run"]  # a fixture of the command line's tests


@pytest.fixture
def whole(golden_497: GoldenStore, tmp_path: Path) -> Path:
    """A copy that keeps its log below the root."""
    return golden_497.copy_to(tmp_path / "whole" / "store").store


@pytest.fixture
def root(golden_497: GoldenStore, tmp_path: Path) -> Path:
    return golden_497.copy_to(tmp_path / "spread" / "store").store


@pytest.fixture
def setting(root: Path, tmp_path: Path) -> str:
    return f"storePathCommitLog={spread(root, SEGMENT_BYTES, tmp_path / 'b', tmp_path / 'a')}"


def test_dump_reads_all_directories_as_one_log(root: Path, whole: Path, setting: str, run: Run, tmp_path: Path) -> None:
    for words in (("commitlog",), ("consumequeue",), ("index", "--topic", "OrderEvents")):
        expected = run("dump", words[0], whole, *words[1:], "--json")
        found = run("dump", words[0], root, *words[1:], "--json", "--set", setting)
        assert (found.exit_code, found.stderr) == (0, "")
        assert found.stdout.replace(str(root), "") == expected.stdout.replace(str(whole), "")
        assert found.rows
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir=/gone\n{setting}\n")
    assert len(run("dump", "commitlog", root, "--json", "--config", conf).rows) == 547


def test_doctor_checks_and_rebuilds_from_all_directories(
    root: Path, whole: Path, setting: str, run: Run, tmp_path: Path
) -> None:
    checked = run("doctor", "check", root, "--set", setting)
    assert checked.exit_code == 0, checked.stdout
    assert "nothing to repair: 547 messages up to physical offset 413332, 38 queues" in checked.stdout
    assert run("doctor", "explain", root, "--set", setting).exit_code == 0
    made = []
    for store, more in ((whole, ()), (root, ("--set", setting))):
        shutil.rmtree(store / "consumequeue")
        rebuilt = run("doctor", "rebuild", store, "--queues", *more)
        assert rebuilt.exit_code == 0, rebuilt.stderr
        made.append({path.replace(str(store), ""): digest for path, digest in digests(store / "consumequeue").items()})
    assert made[0] == made[1]
    assert run("doctor", "check", root, "--set", setting).exit_code == 0


def test_repair_of_a_segment_outside_the_root_is_refused(root: Path, setting: str, run: Run, tmp_path: Path) -> None:
    segment = tmp_path / "a" / f"{2 * SEGMENT_BYTES:020d}"
    data = bytearray(segment.read_bytes())
    data[300:340] = bytes(40)
    segment.write_bytes(data)
    before = digests(tmp_path / "a", tmp_path / "b")
    refused = run("doctor", "repair", root, "--apply", "--set", setting)
    assert refused.exit_code != 0
    assert "is outside" in refused.stderr
    assert digests(tmp_path / "a", tmp_path / "b") == before


@pytest.mark.parametrize(
    "words",
    [
        ("dump", "commitlog"),
        ("doctor", "rebuild", "--queues"),
        ("doctor", "repair", "--apply"),
    ],
    ids=" ".join,
)
def test_store_without_its_log_is_refused_with_the_setting_to_give(
    root: Path, setting: str, run: Run, words: tuple[str, ...]
) -> None:
    before = digests(root)
    refused = run(*words[:2], root, *words[2:])
    assert refused.exit_code != 0
    assert "storePathCommitLog" in refused.stderr
    assert digests(root) == before


def broker(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "broker", "--store", str(root), "--port", "0", *words],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def without_logs(found: dict[str, str]) -> dict[str, str]:
    """Leave out the directory of the program's own log, which is opened before the store."""
    return {path: digest for path, digest in found.items() if "/logs" not in path}


def test_broker_refuses_a_store_whose_log_directory_is_missing(root: Path, setting: str, tmp_path: Path) -> None:
    before = digests(root, tmp_path / "a", tmp_path / "b")
    alone = broker(root)
    assert alone.returncode != 0 and "ready" not in alone.stdout
    assert "--set storePathCommitLog=DIR" in alone.stderr
    assert without_logs(digests(root, tmp_path / "a", tmp_path / "b")) == before
    (tmp_path / "b").rename(tmp_path / "unmounted")
    before = without_logs(digests(root, tmp_path / "a"))
    refused = broker(root, "--set", setting)
    assert refused.returncode != 0 and "mount the disks of" in refused.stderr
    assert without_logs(digests(root, tmp_path / "a")) == before and not (tmp_path / "b").exists()


def test_broker_serves_a_log_in_two_directories(root: Path, setting: str, run: Run, tmp_path: Path) -> None:
    words = ("broker", "--store", str(root), "--port", "0", "--set", setting, "--set", "storePathIndex=/nowhere/index")
    with serving(*words) as (process, _):
        other = broker(tmp_path / "other", "--set", f"storePathCommitLog={tmp_path / 'a'}")
        assert other.returncode != 0 and "with another root" in other.stderr
        process.terminate()
        told = process.communicate(timeout=SECONDS_MAX)[1]
    assert "storePathIndex=/nowhere/index is not read" in told
    assert not (root / "commitlog").exists()
    assert run("doctor", "check", root, "--set", setting).exit_code == 0
    rows = run("dump", "commitlog", root, "--json", "--set", setting).rows
    assert len(rows) > 547  # delayed messages that are overdue are delivered


def test_store_option_changes_the_root_alone(root: Path, setting: str, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={tmp_path / 'elsewhere'}\n{setting}\n")
    with serving("broker", "--store", str(root), "--port", "0", "--config", str(conf)) as (process, ready):
        assert ready["store"] == str(root)
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)
    assert not (tmp_path / "elsewhere").exists() and not (root / "commitlog").exists()


def test_tilde_in_a_setting_is_refused_because_java_does_not_expand_it(run: Run) -> None:
    for key in ("storePathRootDir", "storePathCommitLog"):
        refused = run("broker", "--set", f"{key}=~/store")
        assert refused.exit_code == 2 and "does not expand" in refused.stderr


def test_several_brokers_do_not_get_one_log(tmp_path: Path, run: Run) -> None:
    refused = run("up", "--brokers", "2", "--store", tmp_path / "s", "--set", f"storePathCommitLog={tmp_path / 'a'}")
    assert refused.exit_code == 2 and "share one CommitLog" in refused.stderr
