"""ConsumeQueues in RocksDB, exported into queue files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, PRE_BLANK_RAW, QueueEntry, encode_entry
from orbitlog.storefiles.rocksdb.queue_export import export_queues, with_queue_files
from orbitlog.storefiles.store_files import find_store_files
from tests.support.rocksdb_archives import JOINT, ONE_PER_TABLE, unpack_rocksdb_store

rocksdict = pytest.importorskip("rocksdict")


def unit(number: int) -> bytes:
    return encode_entry(QueueEntry(1000 + 100 * number, 100, 7))


def test_units_are_at_their_positions_with_fillers_for_expired_ones(tmp_path: Path) -> None:
    database = rocksdict.Rdict(str(tmp_path / "queues"), rocksdict.Options(raw_mode=True))
    for number in (7, 8, 9, 10, 12):
        key = struct.pack(">iB1sBiBq", 1, 1, b"T", 1, 3, 1, number)
        database[key] = unit(number) + struct.pack(">q", 99)
    database.close()
    export_queues(tmp_path / "queues", tmp_path, 5 * ENTRY_BYTES)
    directory = tmp_path / tree.queue_directory("T", 3)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == {
        tree.offset_file_name(5 * ENTRY_BYTES): PRE_BLANK_RAW * 2 + unit(7) + unit(8) + unit(9),
        tree.offset_file_name(10 * ENTRY_BYTES): unit(10) + bytes(ENTRY_BYTES) + unit(12) + bytes(2 * ENTRY_BYTES),
    }


def test_files_of_a_store_last_as_long_as_the_block(tmp_path: Path) -> None:
    store = find_store_files(unpack_rocksdb_store(ONE_PER_TABLE, tmp_path))
    assert not store.queues
    with with_queue_files(store, 6_000_000) as (readable, directory):
        assert sorted(queue_id for _, queue_id in readable.queues) == [0, 1, 2, 3]
        assert directory != store.root
    assert not directory.exists()


def test_store_with_queue_files_is_left_as_it_is(tmp_path: Path) -> None:
    store = find_store_files(unpack_rocksdb_store(JOINT, tmp_path))
    with with_queue_files(store, 6_000_000) as (readable, directory):
        assert readable is store and directory == store.root
