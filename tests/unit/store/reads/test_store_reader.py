"""Reading a store beside its writer, and without one, changing nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import decode_message, make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.reads.queue_reader import ReadRequest
from orbitlog.store.reads.store_reader import StoreReader
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.golden import GoldenStore

GEOMETRY = StoreGeometry(4096, 200, index_layout=IndexLayout(10, 30))
CONFIG = StoreConfig(GEOMETRY)


def fingerprint(root: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in root.rglob("*") if path.is_file()}


def bodies(reader: StoreReader | MessageStore) -> list[int]:
    found: list[int] = []
    while records := reader.get("T", 0, ReadRequest(len(found), 32)).records:
        found += [decode_message(record).body[0] for record in records]
    return found


def order(number: int) -> object:
    return make_message("T", bytes([number]) * 100, properties={"KEYS": f"k{number}"})


@pytest.mark.parametrize("sync_flush", [False, True])
def test_a_reader_follows_a_writer(tmp_path: Path, sync_flush: bool) -> None:
    with MessageStore.open(tmp_path, StoreConfig(GEOMETRY, sync_flush=sync_flush), lambda: 1_000) as store:
        for number in range(40):
            store.append(order(number))
        store.flush_log()
        store.dispatch_once()
        with StoreReader.open(tmp_path, CONFIG) as reader:
            assert bodies(reader) == list(range(40))
            assert reader.confirmed_to == store.confirmed_to
            assert [message.body[0] for message in reader.query(KeyQuery("T", "k7")).messages] == [7]
            store.append(order(40))
            reader.refresh()
            assert bodies(reader) == list(range(40)), "written, but not published"
            store.flush_log()
            store.dispatch_once()
            reader.refresh()
            assert bodies(reader) == list(range(41))


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, lambda: 1_000) as store:
        for number in range(40):
            store.append(order(number))
        store.dispatch_once()
        before = fingerprint(tmp_path)
        with StoreReader.open(tmp_path, CONFIG) as reader:
            assert len(bodies(reader)) == 40
        assert fingerprint(tmp_path) == before


def test_a_store_that_its_broker_left_in_a_crash(golden_550_crash: GoldenStore) -> None:
    config = StoreConfig(StoreGeometry(131072, 1000, index_layout=IndexLayout(100, 300)))
    manifest = golden_550_crash.manifest
    with StoreReader.open(golden_550_crash.store, config) as reader:
        assert reader.confirmed_to == manifest["afterOpen"]["maxPhyOffset"]
        for row in manifest["afterOpen"]["queues"]:
            queue = reader.queue(row["topic"], row["queueId"])
            assert (queue.max_offset if queue else 0) == row["maxOffset"]
        for row in manifest["messages"]:
            message = reader.read_by_id(row["offsetMsgId"])
            assert message is not None
            assert message.queue_offset == row["queueOffset"]


def test_directory_without_a_store_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreLayoutError, match="no commitlog"):
        StoreReader.open(tmp_path, CONFIG)


def test_a_segment_that_is_just_being_made_is_not_read_yet(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, lambda: 1_000) as store:
        for number in range(5):
            store.append(order(number))
        store.dispatch_once()
        (tmp_path / "commitlog" / f"{4096:020d}").touch()  # it has its name, and not yet its size
        with StoreReader.open(tmp_path, CONFIG) as reader:
            assert bodies(reader) == list(range(5))
        (tmp_path / "commitlog" / f"{4096:020d}").unlink()


def test_a_directory_is_not_empty_because_one_of_its_files_vanishes(tmp_path: Path) -> None:
    (tmp_path / "stays").write_bytes(b"12345")
    # Found by name, gone when it is looked at.
    (tmp_path / "vanishes").symlink_to(tmp_path / "nowhere")
    assert [(entry.name, entry.size_bytes) for entry in RealDisk().list_directory(tmp_path)] == [("stays", 5)]
