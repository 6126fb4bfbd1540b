"""RocksDB databases, opened without a trace in their directory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.storefiles.rocksdb.databases import has_binding, has_entries, open_database
from orbitlog.storefiles.store_files import is_database
from tests.support.repaired_stores import fingerprint
from tests.support.rocksdb_archives import ONE_PER_TABLE, unpack_rocksdb_store

pytest.importorskip("rocksdict")


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    return unpack_rocksdb_store(ONE_PER_TABLE, tmp_path) / "config" / "topics"


def test_database_that_is_read_keeps_every_byte_name_and_time(topics: Path) -> None:
    before, times = fingerprint(topics), {path: path.stat().st_mtime_ns for path in (topics, *topics.iterdir())}
    with open_database(topics) as database:
        assert len(list(database.items())) == 16
    assert fingerprint(topics) == before
    assert {path: path.stat().st_mtime_ns for path in (topics, *topics.iterdir())} == times


def test_directory_without_write_permission_is_read(topics: Path) -> None:
    for path in (*topics.iterdir(), topics):
        path.chmod(path.stat().st_mode & ~0o222)
    with open_database(topics) as database:
        assert len(list(database.items())) == 16
    topics.chmod(0o755)


def test_items_from_a_key_on_are_in_order_and_a_missing_family_is_empty(topics: Path) -> None:
    with open_database(topics) as database:
        keys = [key for key, _ in database.items()]
        assert keys == sorted(keys)
        assert [key for key, _ in database.items(start=keys[5])] == keys[5:]
        assert list(database.items("unheard of")) == []


def test_missing_binding_is_named_with_its_extra(topics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_binding()
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert not has_binding()
    with pytest.raises(StoreLayoutError, match=r"pip install 'orbitlog\[rocksdb\]'"), open_database(topics):
        pass


def test_damaged_manifest_is_refused(topics: Path) -> None:
    for path in topics.glob("MANIFEST-*"):
        path.write_bytes(b"damaged")
    with pytest.raises(StoreLayoutError, match="cannot be opened as a RocksDB database"), open_database(topics):
        pass


def test_database_that_java_created_and_never_used_has_no_entries(topics: Path, tmp_path: Path) -> None:
    assert is_database(topics) and has_entries(topics)
    for path in topics.iterdir():
        if path.suffix == ".sst":
            path.unlink()
        elif path.suffix == ".log":
            path.write_bytes(b"")
    assert is_database(topics) and not has_entries(topics)
    assert not is_database(tmp_path) and not has_entries(tmp_path / "missing")
