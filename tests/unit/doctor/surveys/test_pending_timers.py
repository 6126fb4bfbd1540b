"""Pending timer messages must be in the timer log: otherwise a Java broker never delivers them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.doctor.surveys.pending_timers import waiting_findings
from orbitlog.formats.derived.timer_checkpoint import decode_timer_checkpoint
from orbitlog.formats.derived.timer_log import TIMER_UNIT_BYTES, TimerLogUnit, read_timer_unit_at
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from tests.support.damage_zoo import patch_file


@pytest.fixture
def root(golden_550_crash: GoldenStore, tmp_path: Path) -> Path:
    """A store of a 5.5.0 broker; its large wheel is rebuilt from the timer log."""
    shutil.copytree(golden_550_crash.store, tmp_path / "store", ignore=shutil.ignore_patterns("timerwheel"))
    return tmp_path / "store"


def a_unit_that_waits(root: Path) -> tuple[Path, int, TimerLogUnit]:
    path = find_store_files(root).timer_log[0].path
    read_to_ms = decode_timer_checkpoint((root / "config" / "timercheck").read_bytes()).last_read_time_ms
    data = path.read_bytes()
    for position in range(0, len(data), TIMER_UNIT_BYTES):
        unit = read_timer_unit_at(data, position)
        if isinstance(unit, TimerLogUnit) and unit.due_time_ms > read_to_ms + 60_000 and not unit.is_delete:
            return path, position, unit
    raise AssertionError("no message waits")


def test_messages_of_a_sound_store_are_known(root: Path) -> None:
    assert list(waiting_findings(find_store_files(root))) == []


@pytest.mark.parametrize("field,wrong", [(28, ">q"), (36, ">i")])
def test_unit_that_leads_elsewhere_is_reported_and_repaired(field: int, wrong: str, root: Path) -> None:
    path, position, unit = a_unit_that_waits(root)
    right = unit.physical_offset if field == 28 else unit.record_bytes
    patch_file(path, position + field, struct.pack(wrong, right + 7))
    (finding,) = waiting_findings(find_store_files(root))
    assert (finding.kind, finding.count) == ("timer", 1)
    assert not examine(root).is_sound
    assert apply_repair(root).is_sound
    assert not (root / "timerlog").exists() and not (root / "config" / "timercheck").exists()


def test_units_of_what_was_delivered_may_be_gone(root: Path) -> None:
    """Java deletes files of the timer log in which nothing waits any more."""
    checkpoint = root / "config" / "timercheck"
    patch_file(checkpoint, 0, struct.pack(">q", 4_102_444_800_000))
    path = find_store_files(root).timer_log[0].path
    path.write_bytes(bytes(path.stat().st_size))
    assert list(waiting_findings(find_store_files(root))) == []
