"""Records that are, or state that they are, at a wrong offset: after a repair the log is what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from tests.support import damage_zoo


def log_bytes(root: Path) -> dict[str, bytes]:
    return {segment.path.name: segment.path.read_bytes() for segment in find_store_files(root).segments}


@pytest.mark.parametrize(
    "damage",
    [
        damage_zoo.two_records_swapped,
        damage_zoo.neighbours_swapped,
        damage_zoo.record_with_a_wrong_physical_offset,
    ],
)
def test_every_byte_is_brought_back(damage: damage_zoo.Damage, golden_497: GoldenStore, tmp_path: Path) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    before = log_bytes(root)
    damage(root)
    assert log_bytes(root) != before
    assert apply_repair(root).is_sound
    assert log_bytes(root) == before


@pytest.mark.parametrize(
    "damage,first,last",
    [
        (damage_zoo.segment_written_some_bytes_too_late, 2 * 65536 - 1000, 2 * 65536),
        (damage_zoo.sector_left_out_by_a_copy, 65536 + 9216, 65536 + 9728),
    ],
)
def test_what_was_shifted_is_put_back(
    damage: damage_zoo.Damage, first: int, last: int, golden_497: GoldenStore, tmp_path: Path
) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    before = damage_zoo.records(root)
    damage(root)
    assert apply_repair(root).is_sound
    after = {message.physical_offset: message for message in damage_zoo.records(root)}
    changed = [one for one in before if after.get(one.physical_offset) != one]
    assert all(one.physical_offset < last and one.physical_offset + one.size_bytes > first for one in changed)


def test_a_second_copy_moves_nothing(golden_497: GoldenStore, tmp_path: Path) -> None:
    """A record written over another one, and still in its own place: the other one is lost, the copy is filler."""
    root = golden_497.copy_to(tmp_path / "store").store
    one = damage_zoo.middle(root)
    found = damage_zoo.records(root)
    other = next(each for each in found if each.size_bytes == one.size_bytes and each != one)
    record = damage_zoo.read_log(root, one.physical_offset, one.size_bytes)
    damage_zoo.patch(root, other.physical_offset, record)
    assert apply_repair(root).is_sound
    after = {message.physical_offset: message for message in damage_zoo.records(root)}
    assert after[one.physical_offset] == one
    assert after[other.physical_offset].properties.get("ORBITLOG_LOST") is not None
