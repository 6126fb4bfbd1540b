"""ConsumeQueues in RocksDB."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.formats.derived.queue_entry import decode_entry
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import scan_messages
from orbitlog.storefiles.rocksdb.databases import open_database
from orbitlog.storefiles.rocksdb.rocksdb_queues import (
    iterate_units,
    queue_database,
    read_last_units,
    units_of_queue,
)
from tests.support.rocksdb_archives import JOINT, ONE_PER_TABLE, unpack_rocksdb_store

rocksdict = pytest.importorskip("rocksdict")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack_rocksdb_store(ONE_PER_TABLE, tmp_path)


def messages(store: Path) -> list[Message]:
    view = (store / "commitlog" / "00000000000000000000").read_bytes()
    return [one for one in scan_messages(view, base_physical_offset=0) if isinstance(one, Message)]


def test_units_point_to_the_records_of_the_log(store: Path) -> None:
    database = queue_database(store)
    assert database is not None
    with open_database(database) as opened:
        found = {}
        for unit in iterate_units(opened):
            entry = decode_entry(unit.raw)
            assert entry is not None
            found[unit.topic, unit.queue_id, unit.queue_offset] = entry.physical_offset, entry.size_bytes
    assert found == {
        (one.topic, one.queue_id, one.queue_offset): (one.physical_offset, one.size_bytes) for one in messages(store)
    }


def test_last_units_are_those_of_the_log_and_of_no_other_queue(store: Path) -> None:
    last = {(one.topic, one.queue_id): (one.physical_offset, one.queue_offset) for one in messages(store)}
    database = queue_database(store)
    assert database is not None
    assert {
        queue: (unit.physical_offset, unit.queue_offset) for queue, unit in read_last_units(database).items()
    } == last


def test_units_of_a_queue_begin_at_the_offset_and_end_with_the_queue(store: Path) -> None:
    topic = messages(store)[0].topic
    database = queue_database(store)
    assert database is not None
    with open_database(database) as opened:
        assert [unit.queue_offset for unit in units_of_queue(opened, topic, 1, 2)] == [2, 3, 4, 5]
        assert list(units_of_queue(opened, topic, 9)) == []


def test_store_with_queue_files_has_no_queue_database(tmp_path: Path) -> None:
    assert queue_database(unpack_rocksdb_store(JOINT, tmp_path)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0", b""),
        (b"\0\0\0\5\1ab", b""),
        (b"\0\0\0\1\1a\2" + bytes(13), bytes(28)),
        (b"\0\0\0\1\1a\1" + bytes(12), bytes(28)),
        (b"\0\0\0\1\1a\1" + struct.pack(">iBq", 0, 1, 0), bytes(19)),
        (b"\0\0\0\1\1\xff\1" + struct.pack(">iBq", 0, 1, 0), bytes(28)),
    ],
    ids=["short", "cut topic", "no separator", "cut offset", "cut value", "topic that is not UTF-8"],
)
def test_entry_of_an_unknown_form_is_refused(tmp_path: Path, key: bytes, value: bytes) -> None:
    database = rocksdict.Rdict(str(tmp_path / "queues"), rocksdict.Options(raw_mode=True))
    database[key] = value
    database.close()
    with open_database(tmp_path / "queues") as opened, pytest.raises(StoreLayoutError, match="unknown form"):
        list(iterate_units(opened))
