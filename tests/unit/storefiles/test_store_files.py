"""Listing a store directory: its files, and entries that are not part of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.storefiles.store_files import (
    find_config_files,
    find_index_files,
    find_queues,
    find_segments,
    find_store_files,
    find_topic_queues,
)
from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]


@pytest.fixture(params=["golden_497", "golden_550_crash"])
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    store: GoldenStore = request.getfixturevalue(request.param)
    return store


def test_every_file_of_a_golden_store_is_found_once(golden: GoldenStore) -> None:
    store = find_store_files(golden.store)
    assert store.foreign == ()
    assert not store.is_empty
    singles = (store.timer_wheel, store.checkpoint, store.abort, store.lock)
    found = [
        *(file.path for file in store.segments),
        *(file.path for files in store.queues.values() for file in files),
        *(file.path for file in store.index_files),
        *(file.path for file in store.config_files),
        *(file.path for file in store.timer_log),
        *(file.path for file in singles if file is not None),
        *store.unread,
    ]
    recorded = [golden.store / file["path"] for file in golden.manifest["files"]]
    assert sorted(found) == sorted(recorded)


def test_files_are_in_order_and_know_their_sizes(golden: GoldenStore) -> None:
    store = find_store_files(golden.store)
    bases = [segment.base for segment in store.segments]
    assert bases == sorted(bases)
    assert [file.path.name for file in store.index_files] == sorted(file.path.name for file in store.index_files)
    sizes = {golden.store / file["path"]: file["size"] for file in golden.manifest["files"]}
    for segment in store.segments:
        assert segment.size_bytes == sizes[segment.path]
        assert segment.path.name == f"{segment.base:020d}"
    queues = {(queue["topic"], queue["queueId"]) for queue in golden.manifest["queues"]}
    assert set(store.queues) == queues


def test_the_parts_alone(golden_497: GoldenStore) -> None:
    store = find_store_files(golden_497.store)
    root = golden_497.store
    assert find_segments(root / "commitlog") == store.segments
    assert find_queues(root / "consumequeue") == store.queues
    assert find_index_files(root / "index") == store.index_files
    assert find_config_files(root / "config") == store.config_files
    topic = find_topic_queues(root / "consumequeue" / "Telemetry-8q")
    assert [queue_id for _, queue_id in topic] == list(range(8))


def test_an_empty_log_is_a_store(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert find_store_files(tmp_path).is_empty


@pytest.mark.parametrize("make", ["missing", "empty", "file", "other"])
def test_what_is_no_store_is_refused_with_a_way_out(tmp_path: Path, make: str) -> None:
    path = tmp_path / "there"
    match make:
        case "empty":
            path.mkdir()
        case "file":
            path.write_bytes(b"x")
        case "other":
            (path / "index").mkdir(parents=True)
            (path / "index" / "index.html").touch()
            for number in range(9):
                (path / f"file{number}").touch()
    with pytest.raises(StoreLayoutError, match=r"give the ") as caught:
        find_store_files(path)
    assert str(path) in str(caught.value)


def test_foreign_entries_are_reported_and_left_alone(golden_497: GoldenStore, golden_copy: Copy) -> None:
    root = golden_copy(golden_497).store
    expected = find_store_files(root)
    foreign = [
        root / "notes.txt",
        root / "commitlog" / "00000000000000000000.bak",
        root / "commitlog" / "1",
        root / "consumequeue" / "stray",
        root / "index" / "readme",
        root / "consumequeue" / "TxOrders" / "first",
    ]
    for path in foreign:
        path.write_bytes(b"?")
    (root / "commitlog" / "lost+found").mkdir()
    (root / "consumequeue" / "TxOrders" / "00").mkdir()
    os.mkfifo(root / "index" / "20260101000000000")
    (root / "commitlog" / "99999999999999999999").write_bytes(b"no long in Java")
    store = find_store_files(root)
    assert store.segments == expected.segments
    assert store.queues == expected.queues
    assert store.index_files == expected.index_files
    noted = {entry.path for entry in store.foreign}
    assert noted >= set(foreign)
    assert len(noted) == len(foreign) + 4
    assert all(entry.reason for entry in store.foreign)


def test_links_are_followed_inside_the_store_only(golden_497: GoldenStore, golden_copy: Copy, tmp_path: Path) -> None:
    root = golden_copy(golden_497).store
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / f"{0:020d}").write_bytes(b"secret")
    (root / "commitlog" / f"{7 * 65536:020d}").symlink_to(outside / f"{0:020d}")
    (root / "consumequeue" / "Linked").symlink_to(outside)
    (root / "config" / "dangling.json").symlink_to(root / "nowhere")
    (root / "config" / "loop.json").symlink_to(root / "config" / "loop.json")
    (root / "config" / "same.json").symlink_to(root / "config" / "topics.json")
    store = find_store_files(root)
    assert len(store.segments) == 7
    assert not any(topic == "Linked" for topic, _ in store.queues)
    assert {entry.path.name for entry in store.foreign} == {
        f"{7 * 65536:020d}",
        "Linked",
        "dangling.json",
        "loop.json",
    }
    assert "same.json" in {file.path.name for file in store.config_files}


def test_a_linked_store_is_the_store_itself(golden_497: GoldenStore, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(golden_497.store)
    store = find_store_files(link)
    assert len(store.segments) == 7
    assert store.foreign == ()


def test_members_of_dledger(tmp_path: Path) -> None:
    for member in ("dledger-n0", "dledger-n1"):
        data = tmp_path / member / "data"
        data.mkdir(parents=True)
        (data / f"{0:020d}").write_bytes(bytes(1024))
        (tmp_path / member / "checkpoint").write_text("committedIndex=1\n")
    store = find_store_files(tmp_path)
    assert list(store.dledger_segments) == ["dledger-n0", "dledger-n1"]
    assert store.foreign == ()
