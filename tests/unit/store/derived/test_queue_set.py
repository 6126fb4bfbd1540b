"""Many queues, few open files; and every unit reaches the disk all the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.queue_entry import QueueEntry
from orbitlog.formats.records.message import make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.derived import queue_set
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.derived.queue_set import QueueSet
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.store_reader import StoreReader
from orbitlog.storefiles.disk import Bytes, MappedFile, RealDisk, RealMappedFile
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.crash_disk import CrashDisk

CONFIG = StoreConfig(StoreGeometry(1 << 16, 200, index_layout=IndexLayout(10, 300)))
ROOT = Path("store")
QUEUES, OPEN_QUEUES_MAX, OTHERS_MAX = 60, 3, 8


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("is_vouched_for", [False, True], ids=["gone through", "trusted"])
def test_opening_a_store_opens_few_files_at_a_time(
    is_killed: bool, is_vouched_for: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_set, "_OPEN_QUEUES_MAX", OPEN_QUEUES_MAX)
    disk = CrashDisk()
    store = MessageStore.open(ROOT, CONFIG, lambda: 1_000, disk)
    for number in range(QUEUES):
        assert store.append(make_message(f"T{number}", b"x", queue_id=0)).is_stored
    store.dispatch_once()
    if is_vouched_for:
        store.flush_derived()
    if not is_killed:
        store.close()
    disk = disk.kill()
    store = MessageStore.open(ROOT, CONFIG, lambda: 1_000, disk)
    assert sum(1 for _ in store._queues) == QUEUES
    with StoreReader.open(ROOT, CONFIG, disk) as reader:
        assert sum(queue.max_offset for queue in reader._queues) == QUEUES
    store.close()
    assert disk.open_files == 0
    assert disk.open_files_most <= 2 * (OPEN_QUEUES_MAX + OTHERS_MAX)


class CountingDisk(RealDisk):
    """Knows which files are open, and which were synced after they were last written to."""

    def __init__(self) -> None:
        self.open: list[Path] = []
        self.unsynced: set[Path] = set()

    def create_file(self, path: Path, size_bytes: int) -> MappedFile:
        super().create_file(path, size_bytes).close()
        return self.open_file(path, writable=True)

    def open_file(self, path: Path, *, writable: bool) -> MappedFile:
        disk = self

        class CountedFile(RealMappedFile):
            def write(self, position: int, data: Bytes) -> None:
                super().write(position, data)
                disk.unsynced.add(path)

            def sync(self) -> None:
                super().sync()
                disk.unsynced.discard(path)

            def close(self) -> None:
                super().close()
                disk.open.remove(path)

        descriptor = os.open(path, os.O_RDWR)
        self.open.append(path)
        return CountedFile(path, descriptor, os.fstat(descriptor).st_size, writable=writable)


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
def queues(tmp_path: Path, disk: CountingDisk, monkeypatch: pytest.MonkeyPatch) -> QueueSet:
    monkeypatch.setattr(queue_set, "_OPEN_QUEUES_MAX", 2)
    return QueueSet(disk, tmp_path, 200)


def put(queues: QueueSet, queue_id: int, queue_offset: int = 0) -> ConsumeQueue:
    queue = queues.find_or_make("T", queue_id)
    queue.put(queue_offset, QueueEntry(1000 * queue_offset, 100, 0))
    queues.used(queue)
    return queue


def test_files_of_the_queues_unused_for_longest_are_closed(queues: QueueSet, disk: CountingDisk) -> None:
    for queue_id in range(5):
        put(queues, queue_id)
    assert [path.parent.name for path in disk.open] == ["3", "4"]
    put(queues, 0, 1)
    assert [path.parent.name for path in disk.open] == ["4", "0"]
    queues.close()
    assert disk.open == []


def test_units_in_closed_files_reach_the_disk_and_no_file_stays_open(queues: QueueSet, disk: CountingDisk) -> None:
    for queue_id in range(5):
        put(queues, queue_id)
    assert len(disk.unsynced) == 5
    queues.sync()
    assert disk.unsynced == set()
    assert len(disk.open) == 2
    put(queues, 1, 1)
    queues.sync()
    assert disk.unsynced == set()
    queues.close()


def test_nothing_is_closed_while_a_queue_is_taken_to_the_disk(
    queues: QueueSet, disk: CountingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = put(queues, 0)
    sync = first.sync
    seen: list[int] = []

    def sync_slowly() -> None:
        for queue_id in range(1, 5):  # what another thread does meanwhile
            put(queues, queue_id)
        seen.append(len(disk.open))
        sync()

    monkeypatch.setattr(first, "sync", sync_slowly)
    queues.sync()
    assert seen == [5]
    put(queues, 4, 1)
    assert len(disk.open) == 2
    queues.sync()
    assert disk.unsynced == set()
    queues.close()


def test_a_queue_whose_directory_was_removed_by_hand_stops_nothing(tmp_path: Path) -> None:
    """As `rm -r` of a topic beside a running broker does, before the names of its files were synced."""
    import shutil

    with MessageStore.open(tmp_path, CONFIG, lambda: 1_700_000_000_000) as store:
        store.append(make_message("Removed", b"x"))
        store.dispatch_once()
        shutil.rmtree(tmp_path / "consumequeue" / "Removed")
        store.flush_derived()
        assert store.append(make_message("Other", b"x")).is_stored
