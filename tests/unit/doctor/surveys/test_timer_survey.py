"""Timer files of a 5.x broker: sound ones pass, damage is reported, and repaired from the log."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair.repair_journal import undo_last
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.doctor.surveys.timer_survey import timer_findings
from orbitlog.formats.derived.timer_wheel import TURN_SLOTS_DEFAULT, wheel_bytes
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from tests.support.damage_zoo import patch_file
from tests.support.repaired_stores import fingerprint


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


def wheel_of_half_the_size(root: Path) -> None:
    os.truncate(root / "timerwheel", (root / "timerwheel").stat().st_size // 2)


def slot_that_leads_into_a_unit(root: Path) -> None:
    """Of the message that waits longest."""
    wheel = (root / "timerwheel").read_bytes()
    used = [place for place in range(0, len(wheel), 32) if wheel[place : place + 8] != bytes(8)]
    place = max(used, key=lambda place: wheel[place : place + 8])
    (last,) = struct.unpack_from(">q", wheel, place + 16)
    patch_file(root / "timerwheel", place + 16, struct.pack(">q", last + 13))


def log_cut_that_the_wheel_leads_to(root: Path) -> None:
    os.truncate(timer_log(root), 52)


def log_deleted(root: Path) -> None:
    shutil.rmtree(root / "timerlog")


@pytest.fixture(scope="module")
def sound(golden_550_crash: GoldenStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The timer files of a killed 5.5.0 broker, and what makes a store of them."""
    root = tmp_path_factory.mktemp("timers") / "store"
    (root / "commitlog").mkdir(parents=True)
    shutil.copytree(golden_550_crash.store / "timerlog", root / "timerlog")
    shutil.copy2(golden_550_crash.store / "timerwheel", root / "timerwheel")
    (root / "config").mkdir()
    shutil.copy2(golden_550_crash.store / "config" / "timercheck", root / "config" / "timercheck")
    return root


def test_files_of_a_broker_are_sound(sound: Path) -> None:
    assert list(timer_findings(find_store_files(sound))) == []
    assert timer_log(sound).read_bytes().strip(b"\0")


def checkpoint(root: Path) -> Path:
    return root / "config" / "timercheck"


def unit_with_another_magic(root: Path) -> None:
    patch_file(timer_log(root), 52 + 12, b"\x55\x55\x55\x55")


def list_of_units_that_leads_in_a_circle(root: Path) -> None:
    patch_file(timer_log(root), 52 + 4, struct.pack(">q", 52))


def unit_for_a_moment_before_it_was_made(root: Path) -> None:
    patch_file(timer_log(root), 52 + 24, struct.pack(">i", -5))


def file_of_the_log_under_another_name(root: Path) -> None:
    timer_log(root).rename(timer_log(root).with_name(f"{52:020d}"))


def second_file_that_does_not_follow(root: Path) -> None:
    shutil.copy2(timer_log(root), timer_log(root).with_name(f"{3 * timer_log(root).stat().st_size:020d}"))


def log_of_zeros(root: Path) -> None:
    timer_log(root).write_bytes(bytes(timer_log(root).stat().st_size))


def checkpoint_deleted(root: Path) -> None:
    checkpoint(root).unlink()


def checkpoint_emptied(root: Path) -> None:
    checkpoint(root).write_bytes(b"")


def checkpoint_of_zeros(root: Path) -> None:
    checkpoint(root).write_bytes(bytes(4096))


@pytest.fixture(scope="module")
def small(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without the wheel, which is large."""
    root = tmp_path_factory.mktemp("small") / "store"
    shutil.copytree(sound, root, ignore=shutil.ignore_patterns("timerwheel"))
    return root


def copy_of(sound: Path, to: Path, damage: Callable[[Path], None]) -> Path:
    shutil.copytree(sound, to)
    damage(to)
    return to


@pytest.mark.parametrize(
    "damage",
    [
        torn_unit,
        noise_behind_the_last_unit,
        log_deleted,
        unit_with_another_magic,
        list_of_units_that_leads_in_a_circle,
        unit_for_a_moment_before_it_was_made,
        file_of_the_log_under_another_name,
        second_file_that_does_not_follow,
        log_of_zeros,
        checkpoint_deleted,
        checkpoint_emptied,
        checkpoint_of_zeros,
    ],
)
def test_damage_to_the_timer_log_is_reported_and_all_is_rebuilt(
    damage: Callable[[Path], None], small: Path, tmp_path: Path
) -> None:
    root = copy_of(small, tmp_path / "store", damage)
    assert {finding.kind for finding in timer_findings(find_store_files(root))} >= {"timer"}
    before = fingerprint(root)
    assert apply_repair(root).is_sound
    assert not any(path.exists() for path in (root / "timerlog", checkpoint(root)))
    undo_last(root)
    assert fingerprint(root) == before


@pytest.mark.parametrize("damage", [log_deleted, log_cut_that_the_wheel_leads_to])
def test_damage_to_the_log_takes_the_wheel_along(damage: Callable[[Path], None], sound: Path, tmp_path: Path) -> None:
    root = copy_of(sound, tmp_path / "store", damage)
    assert apply_repair(root).is_sound
    assert not any(path.exists() for path in (root / "timerwheel", root / "timerlog", checkpoint(root)))


@pytest.mark.parametrize("damage", [noise_on_the_wheel, wheel_cut, wheel_of_half_the_size, slot_that_leads_into_a_unit])
def test_damage_to_the_wheel_is_reported_and_only_the_wheel_is_rebuilt(
    damage: Callable[[Path], None], sound: Path, tmp_path: Path
) -> None:
    """What was delivered must not be redelivered because of a file that Java rebuilds from the timer log."""
    root = copy_of(sound, tmp_path / "store", damage)
    assert {finding.kind for finding in timer_findings(find_store_files(root))} == {"timer"}
    assert apply_repair(root).is_sound
    assert not (root / "timerwheel").exists()
    assert timer_log(root).read_bytes() == timer_log(sound).read_bytes()
    assert checkpoint(root).read_bytes() == checkpoint(sound).read_bytes()


def test_a_wheel_that_is_missing_is_a_note(small: Path) -> None:
    """Our own broker leaves none, and Java makes it."""
    assert [finding.kind for finding in timer_findings(find_store_files(small))] == ["timer wheel"]
    assert examine(small).is_sound


def test_wheel_without_a_timer_log_is_sound(tmp_path: Path) -> None:
    """As 5.x leaves it if no timer message was ever sent: the wheel is created at the start, the log is not."""
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "config").mkdir()
    with (root / "timerwheel").open("wb") as wheel:
        wheel.truncate(wheel_bytes(TURN_SLOTS_DEFAULT))
    for content in (None, b"", bytes(4096)):
        if content is not None:
            checkpoint(root).write_bytes(content)
        assert list(timer_findings(find_store_files(root))) == []
        assert examine(root).is_sound
    (root / "timerlog").mkdir()
    assert list(timer_findings(find_store_files(root))) == []


def test_deleted_timer_log_shows_in_the_wheel_alone(sound: Path, tmp_path: Path) -> None:
    root = copy_of(sound, tmp_path / "store", log_deleted)
    checkpoint(root).unlink()
    assert [finding.path for finding in timer_findings(find_store_files(root))] == [str(root / "timerwheel")]
