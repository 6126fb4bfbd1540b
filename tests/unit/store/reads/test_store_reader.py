"""Reading a store beside its writer, and without one, changing nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.formats.compat import COMPAT_4_9
from orbitlog.formats.derived.derive import DeriveRules
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


DLEDGER_CONFIG = StoreConfig(
    StoreGeometry(49152, 800, index_layout=IndexLayout(128, 240)), rules=DeriveRules(COMPAT_4_9)
)


def test_dledger_store_answers_offset_id_and_time_queries_as_java(golden_497_dledger: GoldenStore) -> None:
    manifest = golden_497_dledger.manifest
    with StoreReader.open(golden_497_dledger.store, DLEDGER_CONFIG) as reader:
        assert reader.confirmed_to == manifest["afterOpen"]["maxPhyOffset"]
        for row in manifest["messages"]:
            message = reader.read_by_id(row["offsetMsgId"])
            assert message is not None
            assert (message.queue_offset, message.properties) == (row["queueOffset"], row["properties"])
        compared = 0
        for queue in manifest["queues"]:
            found = reader.queue(queue["topic"], queue["queueId"])
            assert (found.min_offset, found.max_offset) == (queue["minOffset"], queue["maxOffset"])
            for sample in queue["searchOffset"]:
                place = queue["topic"], queue["queueId"], sample["timestamp"]
                assert reader.offset_by_time(*place) == sample["offset"], place
                compared += 1
        assert compared > 200


def test_dledger_store_answers_key_queries_as_java(golden_497_dledger: GoldenStore) -> None:
    rows = {row["commitLogOffset"]: row for row in golden_497_dledger.manifest["messages"]}
    with StoreReader.open(golden_497_dledger.store, DLEDGER_CONFIG) as reader:
        for query in golden_497_dledger.manifest["queries"]:
            topic, key = query["topic"], query["key"]
            # Messages of a colliding key are not returned, and do not use up the limit.
            expected = [
                place
                for place in query["brokerReturns"]
                if rows[place]["topic"] == topic
                and key in (rows[place]["uniqKey"], *(rows[place]["keys"] or "").split(" "))
            ]
            window = query["begin"], query["end"], query["maxNum"]
            found = {
                one.physical_offset for one in reader.query(KeyQuery(topic, key, *window, by_index_time=True)).messages
            }
            is_exact = len(expected) == len(query["brokerReturns"]) < query["maxNum"]
            assert found == set(expected) if is_exact else found >= set(expected), query


def test_dledger_store_is_read_up_to_its_committed_entry(golden_497_dledger, golden_copy) -> None:  # type: ignore[no-untyped-def]
    golden = golden_copy(golden_497_dledger)
    entries = golden.manifest["dledgerEntries"]
    (golden.store / "dledger-n0/checkpoint").write_text("committedIndex=400\n")
    with StoreReader.open(golden.store, DLEDGER_CONFIG) as reader:
        assert reader.confirmed_to == entries[400]["pos"] + entries[400]["size"]
        assert reader.read_at(entries[400]["pos"] + 48) is not None
        assert reader.read_at(entries[401]["pos"] + 48) is None
    (golden.store / "dledger-n0/checkpoint").write_text("endIndex=404\n")
    (golden.store / "dledger-n0/checkpoint.bak").unlink()
    with StoreReader.open(golden.store, DLEDGER_CONFIG) as reader:
        assert reader.confirmed_to == golden.manifest["endOfLastRecord"]


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
