"""Damage to the files of a DLedger directory: found, and named with file and position."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.doctor.examination import Examination, examine
from orbitlog.formats.records.dledger import ENTRY_HEADER_BYTES, INDEX_UNIT_BYTES
from orbitlog.jobs.check.store_check import check_with
from orbitlog.jobs.local_runner import run_here
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.testing.golden import GoldenStore
from tests.support.store_kinds import DLEDGER_KINDS, KINDS, SEGMENT_BYTES, make_dledger_store, make_store

DATA, INDEX = "dledger-n0/data/{:020d}", "dledger-n0/index/00000000000000000000"
ENTRY_COUNT = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ledger") / "store"
    make_dledger_store(root, ENTRY_COUNT)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return copy_of(made, tmp_path / "store")


def copy_of(made: Path, to: Path) -> Path:
    """Copy a store; its index file of 160 MiB stays a hole."""
    shutil.copytree(made, to, copy_function=_copy_sparse)
    return to


def _copy_sparse(source: str, target: str) -> None:
    size_bytes = Path(source).stat().st_size
    with Path(source).open("rb") as read:
        Path(target).write_bytes(read.read(1 << 20))
    os.truncate(target, size_bytes)


def flip(path: Path, position: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


def found_in(root: Path, path: Path) -> list[Finding]:
    """Return the findings of a check about one file."""
    (checked,) = check_with(run_here, [root], settings=StoreSettings(), split_bytes=4096)
    return [finding for finding in checked.findings if finding.path == str(path)]


def entries_of(root: Path) -> list[tuple[Path, int]]:
    """Return file and position of each entry."""
    with (root / INDEX).open("rb") as file:
        raw = file.read(ENTRY_COUNT * INDEX_UNIT_BYTES)
    offsets = [int.from_bytes(raw[at + 4 : at + 12], "big") for at in range(0, len(raw), INDEX_UNIT_BYTES)]
    return [(root / DATA.format(offset // SEGMENT_BYTES * SEGMENT_BYTES), offset % SEGMENT_BYTES) for offset in offsets]


@pytest.mark.parametrize("kind", sorted(DLEDGER_KINDS))
def test_sound_store_has_no_finding(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    KINDS[kind](root)
    kinds = {one.finding.kind for one in examine(root).problems}
    # Queues and index of the made converted store lack the messages in entries.
    derived = {FindingKind.QUEUE_FILE, FindingKind.QUEUE_UNIT, FindingKind.INDEX, FindingKind.TOPIC}
    assert kinds <= (derived if kind == "converted to DLedger" else set())


def test_golden_store_is_sound(golden_497_dledger: GoldenStore) -> None:
    found = examine(golden_497_dledger.store)
    assert found.diagnoses == ()
    assert (found.check.messages, found.check.keys) == (405, 1163)
    assert found.check.log_end == golden_497_dledger.manifest["endOfLastRecord"]


@pytest.mark.parametrize("number", [0, 1, 15, 16, 30, 58, 59])
def test_every_byte_of_an_entry_header_is_checked(root: Path, number: int) -> None:
    path, position = entries_of(root)[number]
    for byte in range(ENTRY_HEADER_BYTES):
        flip(path, position + byte, byte % 8)
        findings = found_in(root, path)
        assert findings, byte
        assert any(position <= (one.position or 0) <= position + ENTRY_HEADER_BYTES for one in findings), findings
        assert {one.kind for one in findings} <= {FindingKind.ENTRY, FindingKind.RECORD}
        flip(path, position + byte, byte % 8)
    assert found_in(root, path) == []


@pytest.mark.parametrize("number", [0, 1, 16, 40, 59])
def test_every_byte_of_an_index_unit_is_checked(root: Path, number: int) -> None:
    path = root / INDEX
    for byte in range(INDEX_UNIT_BYTES):
        flip(path, number * INDEX_UNIT_BYTES + byte, byte % 8)
        (finding,) = found_in(root, path)
        assert (finding.kind, finding.position) == (FindingKind.ENTRY_INDEX, number * INDEX_UNIT_BYTES)
        flip(path, number * INDEX_UNIT_BYTES + byte, byte % 8)
    assert found_in(root, path) == []


def test_damaged_header_loses_no_message(root: Path) -> None:
    path, position = entries_of(root)[20]
    flip(path, position + 5)
    found = examine(root)
    assert found.check.messages == ENTRY_COUNT
    assert found.lost == ()
    assert [one.finding.kind for one in found.problems] == [FindingKind.RECORD]


@pytest.mark.parametrize("start", range(0, ENTRY_COUNT * INDEX_UNIT_BYTES, 256))
def test_zeroed_units_are_one_finding(root: Path, start: int) -> None:
    with (root / INDEX).open("r+b") as file:
        file.seek(start)
        file.write(bytes(256))
    (finding,) = found_in(root, root / INDEX)
    count = min(8, ENTRY_COUNT - start // INDEX_UNIT_BYTES)
    assert (finding.position, finding.count) == (start, count)


@pytest.mark.parametrize("size_bytes", [0, 31, 32, 1000, 1920, 1 << 20])
def test_cut_index_file_is_found(root: Path, size_bytes: int) -> None:
    os.truncate(root / INDEX, size_bytes)
    (checked,) = check_with(run_here, [root], settings=StoreSettings(), split_bytes=4096)
    findings = [one for one in checked.findings if one.kind is FindingKind.ENTRY_INDEX]
    assert any(one.path == str(root / INDEX) and (one.position or 0) <= size_bytes for one in findings)


def test_missing_index_directory_is_found(root: Path) -> None:
    shutil.rmtree(root / "dledger-n0/index")
    (checked,) = check_with(run_here, [root], settings=StoreSettings(), split_bytes=4096)
    assert {(one.kind, one.path) for one in checked.findings} == {
        (FindingKind.ENTRY_INDEX, str(root / "dledger-n0/index"))
    }
    assert checked.messages == ENTRY_COUNT


@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_cut_and_zeroed_data_files_are_found_at_any_position(made: Path, tmp_path: Path, damage: str) -> None:
    rng = random.Random(5)
    entries = entries_of(made)
    last_path, last_position = entries[-1]
    for case in range(40):
        root = copy_of(made, tmp_path / f"store{case}")
        base = rng.choice(sorted({int(path.name) for path, _ in entries}))
        path = root / DATA.format(base)
        end = SEGMENT_BYTES if path.name != last_path.name else last_position + 200
        position = rng.randrange(end)
        if damage == "cut":
            os.truncate(path, position)
        else:
            with path.open("r+b") as file:
                file.seek(position)
                file.write(bytes(min(512, SEGMENT_BYTES - position)))
        if path.read_bytes() == (made / DATA.format(base)).read_bytes():
            continue  # they were zeros
        findings = found_in(root, path)
        assert findings, (base, position)
        assert any((one.position or 0) <= position + 512 for one in findings), (base, position, findings)
        shutil.rmtree(root)


def test_log_without_its_committed_entry_is_found(root: Path) -> None:
    (root / "dledger-n0/checkpoint").write_text("committedIndex=77\n")
    path = max((root / "dledger-n0/data").iterdir())
    (finding,) = found_in(root, path)
    assert finding.kind is FindingKind.ENTRY
    assert "ends with entry 59, but entry 77 is committed" in finding.reason


def test_last_data_file_deleted_is_found(root: Path) -> None:
    max((root / "dledger-n0/data").iterdir()).unlink()
    found = examine(root)
    assert {one.finding.kind for one in found.problems} >= {FindingKind.ENTRY}
    assert all(one.command is None for one in found.problems)


def test_data_file_of_another_place_is_found(root: Path) -> None:
    files = sorted((root / "dledger-n0/data").iterdir())
    shutil.copyfile(files[1], files[2])
    assert found_in(root, files[2])


def test_bytes_after_the_end_of_a_data_file_are_checked(root: Path) -> None:
    path = min((root / "dledger-n0/data").iterdir())
    flip(path, SEGMENT_BYTES - 1)
    (finding,) = found_in(root, path)
    assert (finding.kind, finding.position) == (FindingKind.ENTRY, SEGMENT_BYTES - 1)


def commit(root: Path, index: int) -> None:
    (root / "dledger-n0/checkpoint").write_text(f"committedIndex={index}\nendIndex=59\n")


def test_uncommitted_entries_are_noted_and_not_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root, ENTRY_COUNT, committed_index=49)
    found = examine(root)
    assert found.is_sound
    assert found.check.messages == 50
    (diagnosis,) = found.diagnoses
    assert diagnosis.finding.kind is FindingKind.UNCOMMITTED
    path, position = entries_of(root)[50]
    assert (diagnosis.finding.path, diagnosis.finding.position, diagnosis.finding.count) == (str(path), position, 10)


def test_torn_last_entry_is_the_end_of_data(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root, ENTRY_COUNT, committed_index=58)
    path, position = entries_of(root)[59]
    for length in range(180, 0, -30):
        with path.open("r+b") as file:
            file.seek(position + length)
            file.write(bytes(SEGMENT_BYTES - position - length))
        found = examine(root)
        assert found.is_sound
        assert found.check.messages == 59
        assert {one.finding.kind for one in found.diagnoses} == {FindingKind.UNCOMMITTED}


def test_checkpoint_that_states_nothing_is_noted(root: Path) -> None:
    (root / "dledger-n0/checkpoint").unlink()
    found = examine(root)
    assert found.is_sound
    assert [one.finding.kind for one in found.diagnoses] == [FindingKind.UNCOMMITTED]
    assert found.check.messages == ENTRY_COUNT


def _damage_data(root: Path) -> None:
    path, position = entries_of(root)[7]
    flip(path, position + 150)


def _damage_queue(root: Path) -> None:
    flip(root / "consumequeue/T/0/00000000000000000000", 25)


def _damage_config(root: Path) -> None:
    (root / "config/topics.json").write_text("{")


@pytest.mark.parametrize("damage", [_damage_data, _damage_queue, _damage_config])
def test_no_remedy_is_proposed_that_would_be_refused(root: Path, damage: Callable[[Path], None]) -> None:
    damage(root)
    found: Examination = examine(root)
    assert not found.is_sound
    for diagnosis in found.problems:
        assert diagnosis.command is None or diagnosis.command.endswith(" --out DIR")
        assert "doctor repair" not in str(diagnosis)


@pytest.mark.parametrize("missing", [1, 100, 1000])
def test_last_data_file_cut_after_its_last_entry_is_found(root: Path, missing: int) -> None:
    path = max((root / "dledger-n0/data").iterdir())
    os.truncate(path, SEGMENT_BYTES - missing)
    (finding,) = found_in(root, path)
    assert (finding.kind, finding.position) == (FindingKind.SEGMENT, SEGMENT_BYTES - missing)
    assert not examine(root).is_sound


def test_data_file_cut_in_the_padding_after_its_end_mark_is_found(root: Path) -> None:
    path = min((root / "dledger-n0/data").iterdir())
    os.truncate(path, SEGMENT_BYTES - 1)
    (finding,) = found_in(root, path)
    mark = path.read_bytes().rindex(b"\xff" * 4)
    assert (finding.kind, finding.position) == (FindingKind.RECORD, mark)


@pytest.mark.parametrize("distance", [0, 31, 32, 5000])
def test_bytes_after_the_last_unit_are_noted(root: Path, distance: int) -> None:
    position = ENTRY_COUNT * INDEX_UNIT_BYTES + distance
    flip(root / INDEX, position)
    (finding,) = found_in(root, root / INDEX)
    assert (finding.kind, finding.position) == (FindingKind.UNCOMMITTED, position)
    assert examine(root).is_sound


def test_zeroed_page_in_properties_is_noted(golden_497_dledger: GoldenStore, tmp_path: Path) -> None:
    root = copy_of(golden_497_dledger.store, tmp_path / "store")
    path = root / "dledger-n0/data/00000000000000196608"  # has a property of 6000 bytes
    with path.open("r+b") as file:
        file.seek(24576)
        file.write(bytes(4096))
    (finding,) = found_in(root, path)
    assert (finding.kind, finding.position, finding.count) == (FindingKind.PROPERTIES, 24576, 4096)
    assert finding.physical_offset == 196608 + 24576
