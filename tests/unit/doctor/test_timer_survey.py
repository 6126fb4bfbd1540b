"""Timer files of a 5.x broker: sound ones are, and damage is told, and mended by what the log has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.doctor.repair import apply_repair
from orbitlog.doctor.repair_journal import undo_last
from orbitlog.doctor.timer_survey import timer_findings
from orbitlog.store.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from tests.unit.doctor.damage_zoo import patch_file
from tests.unit.doctor.test_repair import fingerprint


def timer_log(root: Path) -> Path:
    return find_store_files(root).timer_log[0].path


def torn_unit(root: Path) -> None:
    patch_file(timer_log(root), 52, b"\0\0\0\x33")


def noise_behind_the_last_unit(root: Path) -> None:
    used = -(-len(timer_log(root).read_bytes().rstrip(b"\0")) // 52) * 52
    patch_file(timer_log(root), used + 30, b"noise")


def noise_on_the_wheel(root: Path) -> None:
    patch_file(root / "timerwheel", 4096, b"\x77" * 5000)


def wheel_cut(root: Path) -> None:
    os.truncate(root / "timerwheel", 1000)


def log_cut_that_the_wheel_leads_to(root: Path) -> None:
    os.truncate(timer_log(root), 52)


def log_deleted(root: Path) -> None:
    shutil.rmtree(root / "timerlog")


def wheel_deleted(root: Path) -> None:
    (root / "timerwheel").unlink()


@pytest.fixture(scope="module")
def sound(golden_550_crash: GoldenStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The timer files of a killed 5.5.0 broker, and what makes a store of them."""
    root = tmp_path_factory.mktemp("timers") / "store"
    (root / "commitlog").mkdir(parents=True)
    shutil.copytree(golden_550_crash.store / "timerlog", root / "timerlog")
    shutil.copy2(golden_550_crash.store / "timerwheel", root / "timerwheel")
    return root


def test_files_of_a_broker_are_sound(sound: Path) -> None:
    assert list(timer_findings(find_store_files(sound))) == []
    assert timer_log(sound).read_bytes().strip(b"\0")


@pytest.mark.parametrize(
    "damage",
    [
        torn_unit,
        noise_behind_the_last_unit,
        noise_on_the_wheel,
        wheel_cut,
        log_cut_that_the_wheel_leads_to,
        log_deleted,
        wheel_deleted,
    ],
)
def test_damage_is_told_and_mended(damage: Callable[[Path], None], sound: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    damage(root)
    assert {finding.kind for finding in timer_findings(find_store_files(root))} == {"timer"}
    before = fingerprint(root)
    assert apply_repair(root).is_sound
    assert not (root / "timerwheel").exists() and not (root / "timerlog").exists()
    undo_last(root)
    assert fingerprint(root) == before
