"""Replicated log: records of a real DLedger store, and what damage before and after the committed entry means."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.storefiles.replicated_log import DamagedEntry, ReplicatedLog, SourceRecord
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from tests.support.store_kinds import make_dledger_store

Copy = Callable[[GoldenStore], GoldenStore]
LAST_INDEX = 404


@pytest.fixture
def root(golden_497_dledger: GoldenStore, golden_copy: Copy) -> Path:
    return golden_copy(golden_497_dledger).store


def read(root: Path, **options: bool) -> tuple[list[SourceRecord], ReplicatedLog]:
    with ReplicatedLog.of(find_store_files(root), **options) as log:
        return list(log.records()), log


def data_files(root: Path) -> list[Path]:
    return sorted((root / "dledger-n0" / "data").iterdir())


def commit(root: Path, index: int) -> None:
    for name in ("checkpoint", "checkpoint.bak"):
        (root / "dledger-n0" / name).write_text(f"committedIndex={index}\nendIndex={LAST_INDEX}\n")


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_records_of_a_real_store_are_those_of_the_manifest(golden_497_dledger: GoldenStore) -> None:
    records, log = read(golden_497_dledger.store)
    facts = golden_497_dledger.manifest
    assert [record.index for record in records] == [entry["index"] for entry in facts["dledgerEntries"]]
    assert [
        (one.message.topic, one.message.queue_id, one.message.queue_offset, one.message.physical_offset, len(one.raw))
        for one in records
    ] == [
        (one["topic"], one["queueId"], one["queueOffset"], one["commitLogOffset"], one["storeSize"])
        for one in facts["messages"]
    ]
    assert (log.uncommitted_count, log.torn_at) == (0, None)


@pytest.mark.parametrize("committed", [0, 171, 172, 391, 403])
def test_entries_after_the_committed_one_are_counted_and_left_out(root: Path, committed: int) -> None:
    commit(root, committed)
    records, log = read(root)
    assert [record.index for record in records] == list(range(committed + 1))
    assert log.uncommitted_count == LAST_INDEX - committed
    assert len(read(root, accepts_uncommitted=True)[0]) == LAST_INDEX + 1


def test_torn_last_entry_after_the_committed_one_ends_the_log(root: Path) -> None:
    records, _ = read(root)
    last = records[-1]
    commit(root, LAST_INDEX - 1)
    overwrite(data_files(root)[-1], last.message.physical_offset - last.file.file.base + 20, bytes(len(last.raw) - 20))
    records, log = read(root)
    assert (len(records), log.torn_at) == (LAST_INDEX, last.message.physical_offset - 48)


def test_log_that_ends_before_the_committed_entry_is_damaged(root: Path) -> None:
    records, _ = read(root)
    last = records[-1]
    overwrite(data_files(root)[-1], last.message.physical_offset - 48 - last.file.file.base, bytes(48 + len(last.raw)))
    with pytest.raises(DamagedEntry, match="ends before the committed entry 404"):
        read(root)


@pytest.mark.parametrize("number", [0, 3, 6])
@pytest.mark.parametrize(
    ("position", "data"),
    [
        pytest.param(0, b"\7", id="entry magic"),
        pytest.param(7, b"\1", id="entry size"),
        pytest.param(15, b"\xff", id="entry index"),
        pytest.param(31, b"\xff", id="entry offset"),
        pytest.param(57, b"\xee\xee", id="body CRC"),
        pytest.param(0, bytes(4096), id="page of zeros"),
    ],
)
def test_damaged_data_is_refused_with_its_position(root: Path, number: int, position: int, data: bytes) -> None:
    path = data_files(root)[number]
    overwrite(path, position, data)
    is_first_index = number == 0 and position == 15  # nothing before it contradicts a wrong number, the next entry does
    with pytest.raises(DamagedEntry, match=f"{path.name} is damaged at position {'' if is_first_index else '0'}"):
        read(root)


def test_missing_and_cut_data_files_are_refused(root: Path) -> None:
    files = data_files(root)
    os.truncate(files[2], 4096)
    with pytest.raises(DamagedEntry, match=files[2].name):
        read(root)
    files[2].unlink()
    with pytest.raises(DamagedEntry, match="restore the files between them"):
        read(root)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_missing_last_data_files_are_refused(root: Path, count: int) -> None:
    *_, before = data_files(root)[:-count]
    for path in data_files(root)[-count:]:
        path.unlink()
    with pytest.raises(DamagedEntry, match=rf"{before.name} is damaged .* before the committed entry 404"):
        read(root)


def test_store_with_data_of_two_members_or_none_is_refused(root: Path) -> None:
    other = root / "dledger-n1" / "data"
    other.mkdir(parents=True)
    (other / f"{0:020d}").write_bytes(bytes(100))
    with pytest.raises(StoreLayoutError, match="dledger-n0, dledger-n1"):
        read(root)


def test_checkpoint_that_cannot_be_read_is_replaced_by_its_backup(root: Path) -> None:
    commit(root, 100)
    (root / "dledger-n0" / "checkpoint").write_bytes(struct.pack(">q", 7) + b"committedIndex=many")
    assert len(read(root)[0]) == 101
    for name in ("checkpoint", "checkpoint.bak"):
        (root / "dledger-n0" / name).unlink()
    assert len(read(root)[0]) == LAST_INDEX + 1


def test_entries_with_queue_units_are_committed_after_a_crash(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root, 60)
    (root / "dledger-n0/checkpoint").write_text("committedIndex=30\n")
    for is_crashed, count in ((False, 31), (True, 60)):
        if is_crashed:
            (root / "abort").touch()
        with ReplicatedLog.of(find_store_files(root)) as log:
            assert len(list(log.records())) == count
            assert log.uncommitted_count == 60 - count
