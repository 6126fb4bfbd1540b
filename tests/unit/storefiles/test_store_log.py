"""The committed end of a DLedger log, from its checkpoint, its index units, its entries, or its queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats.records.dledger import INDEX_UNIT_BYTES
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_log import committed_end, read_checkpoint, uncommitted_tail
from orbitlog.testing.golden import GoldenStore
from tests.support.store_kinds import KINDS, SEGMENT_BYTES, make_dledger_log, make_dledger_store, make_store

INDEX = "dledger-n0/index/00000000000000000000"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_dledger_log(tmp_path / "store", 60)
    return tmp_path / "store"


def commit(root: Path, index: int | None) -> None:
    text = "endIndex=59\n" if index is None else f"committedIndex={index}\n"
    (root / "dledger-n0/checkpoint").write_text(text)


def ends(root: Path) -> list[int]:
    """Return the end of each entry, from the intact index file."""
    raw = (root / INDEX).read_bytes()
    units = [raw[at : at + INDEX_UNIT_BYTES] for at in range(0, 60 * INDEX_UNIT_BYTES, INDEX_UNIT_BYTES)]
    return [int.from_bytes(unit[4:12], "big") + int.from_bytes(unit[12:16], "big") for unit in units]


def test_golden_log_ends_after_its_last_entry(golden_497_dledger: GoldenStore) -> None:
    store = find_store_files(golden_497_dledger.store)
    end = committed_end(store)
    assert end == golden_497_dledger.manifest["endOfLastRecord"]
    assert uncommitted_tail(store, end) is None
    assert {segment.log_format for segment in store.segments} == {LogFormat.DLEDGER}


def test_ordinary_log_has_no_committed_end(golden_497: GoldenStore) -> None:
    assert committed_end(find_store_files(golden_497.store)) is None


@pytest.mark.parametrize("index", [-1, 0, 1, 21, 22, 58, 59])
def test_committed_end_is_the_end_of_the_committed_entry(root: Path, index: int) -> None:
    commit(root, index)
    store = find_store_files(root)
    assert committed_end(store) == (ends(root)[index] if index >= 0 else 0)
    tail = uncommitted_tail(store, committed_end(store))
    assert (0 if tail is None else tail.entry_count) == 59 - index


@pytest.mark.parametrize("damage", ["no index", "unit", "previous unit too", "blank unit", "wrong offset"])
@pytest.mark.parametrize("index", [0, 22, 40, 59])
def test_damaged_index_does_not_move_the_committed_end(root: Path, index: int, damage: str) -> None:
    expected = ends(root)[index]
    commit(root, index)
    raw = bytearray((root / INDEX).read_bytes())
    at = index * INDEX_UNIT_BYTES
    match damage:
        case "no index":
            (root / INDEX).unlink()
        case "unit" | "previous unit too":
            raw[at] ^= 0x40
        case "blank unit":
            raw[at : at + INDEX_UNIT_BYTES] = bytes(INDEX_UNIT_BYTES)
        case _:
            raw[at + 11] ^= 1
    if damage == "previous unit too" and index:
        raw[at - INDEX_UNIT_BYTES] ^= 0x40
    if damage != "no index":
        (root / INDEX).write_bytes(raw)
    assert committed_end(find_store_files(root)) == expected


def test_damaged_committed_entry_does_not_move_the_end(root: Path) -> None:
    expected = ends(root)
    for index in (20, 59):
        commit(root, index)
        path = root / f"dledger-n0/data/{expected[index - 1] // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
        data = bytearray(path.read_bytes())
        data[expected[index - 1] % SEGMENT_BYTES] ^= 0x10
        path.write_bytes(data)
        assert committed_end(find_store_files(root)) == expected[index]


def test_log_without_the_committed_entry_has_no_end(root: Path) -> None:
    commit(root, 500)
    assert committed_end(find_store_files(root)) is None


def test_checkpoint_without_a_committed_index_limits_nothing(root: Path) -> None:
    commit(root, None)
    assert committed_end(find_store_files(root)) is None
    (root / "dledger-n0/checkpoint.bak").write_text("committedIndex=7\n")
    assert read_checkpoint(root / "dledger-n0").committed_index == 7
    (root / "dledger-n0/checkpoint").write_bytes(b"committedIndex=x\n")
    assert committed_end(find_store_files(root)) == ends(root)[7]


def test_queue_units_show_a_later_end_after_a_crash_only(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root)
    commit(root, 30)
    assert committed_end(find_store_files(root)) == ends(root)[30]
    (root / "abort").touch()
    assert committed_end(find_store_files(root)) == ends(root)[59]


def test_noise_in_a_queue_after_a_crash_is_not_an_end(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root)
    commit(root, 30)
    (root / "abort").touch()
    for path in (root / "consumequeue").glob("T/*/*"):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 20):
            data[at + 7] ^= 1
        path.write_bytes(data)
    assert committed_end(find_store_files(root)) == ends(root)[30]


def test_torn_entry_after_the_committed_end_is_named(root: Path) -> None:
    expected = ends(root)
    commit(root, 56)
    path = max((root / "dledger-n0/data").iterdir())
    data = bytearray(path.read_bytes())
    data[expected[58] % SEGMENT_BYTES + 60 :] = bytes(SEGMENT_BYTES - expected[58] % SEGMENT_BYTES - 60)
    path.write_bytes(data)
    store = find_store_files(root)
    tail = uncommitted_tail(store, committed_end(store))
    assert tail is not None
    assert (tail.path, tail.physical_offset, tail.entry_count, tail.torn_at) == (path, expected[56], 2, expected[58])
    assert "2 entries after the committed end" in str(tail)


def test_converted_store_has_both_parts_in_order(tmp_path: Path) -> None:
    make_store(tmp_path)
    KINDS["converted to DLedger"](tmp_path)
    store = find_store_files(tmp_path)
    formats = [segment.log_format for segment in store.segments]
    assert formats == sorted(formats, reverse=True)
    assert len(store.plain_segments) == formats.count(LogFormat.ORDINARY) > 0
    assert [segment.base for segment in store.segments] == list(range(0, len(formats) * SEGMENT_BYTES, SEGMENT_BYTES))


def test_logs_of_several_members_are_not_joined(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    KINDS["several DLedger members"](tmp_path / "store")
    store = find_store_files(tmp_path / "store")
    assert (store.segments, store.dledger_member) == ((), None)
    assert committed_end(store) is None


@pytest.mark.parametrize("distance", [1, 60, 900])
def test_byte_after_the_last_entry_is_named(root: Path, distance: int) -> None:
    expected = ends(root)[-1]
    path = max((root / "dledger-n0/data").iterdir())
    data = bytearray(path.read_bytes())
    data[expected % SEGMENT_BYTES + distance] ^= 1
    path.write_bytes(data)
    store = find_store_files(root)
    tail = uncommitted_tail(store, committed_end(store))
    assert tail is not None
    assert (tail.path, tail.entry_count) == (path, 0)
    assert tail.torn_at is not None and 0 <= expected + distance - tail.torn_at <= distance
    assert "bytes that are not an entry" in str(tail)
