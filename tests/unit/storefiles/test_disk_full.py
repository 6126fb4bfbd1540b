"""A disk that is full at any one call: it is reported, nothing is half done, and the store continues afterwards."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from orbitlog.errors import DiskFull
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import Message, make_message
from orbitlog.formats.records.message_scan import scan_messages
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.appending.put_result import PutStatus
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.disk import MappedFile, RealDisk, disk_errors
from orbitlog.storefiles.store_config import StoreConfig

GEOMETRY = StoreGeometry(segment_bytes=8192, queue_file_bytes=200, index_layout=IndexLayout(10, 16))
CONFIG = StoreConfig(GEOMETRY, segment_allocate_bytes=4096)


class ShortFile:
    """A mapped file whose blocks come from a `ShortDisk`."""

    def __init__(self, disk: ShortDisk, file: MappedFile) -> None:
        self._disk = disk
        self._file = file

    def allocate(self, start: int, stop: int) -> None:
        self._disk.take("growing a file")
        self._file.allocate(start, stop)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class ShortDisk(RealDisk):
    """A disk that has room for a number of demands, and then for none."""

    def __init__(self) -> None:
        self.demands = 0
        self.room: int | None = None

    def take(self, what: str) -> None:
        self.demands += 1
        if self.room is not None and self.demands > self.room:
            with disk_errors(what):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def create_file(self, path: Path, size_bytes: int) -> MappedFile:
        self.take(f"making {path}")
        return ShortFile(self, super().create_file(path, size_bytes))

    def open_file(self, path: Path, *, writable: bool) -> MappedFile:
        return ShortFile(self, super().open_file(path, writable=writable))

    def make_directory(self, path: Path, *, durable: bool = True) -> list[Path]:
        if not path.is_dir():
            self.take(f"making {path}")
        return super().make_directory(path, durable=durable)

    def replace_file(self, path: Path, data: bytes) -> None:
        self.take(f"writing {path}")
        super().replace_file(path, data)


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        self.now_ms += 7
        return self.now_ms


class Sender:
    """Sends numbered messages until each was taken, and notes what arrives."""

    def __init__(self, store: MessageStore, count: int) -> None:
        self._store = store
        self._waiting = list(range(count))
        self.arrived: list[tuple[str, int]] = []
        self.complaints: set[str] = set()

    @property
    def is_done(self) -> bool:
        return not self._waiting and self._store.dispatched_to == self._store.written_to

    def step(self) -> None:
        if self._waiting:
            number = self._waiting[0]
            properties = {"KEYS": f"a{number} b{number} c{number}", "UNIQ_KEY": f"U{number}"}
            result = self._store.append(make_message(f"T{number % 3}", b"x" * 200, properties=properties))
            if result.is_stored:
                del self._waiting[0]
            else:
                assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
                self.complaints.add(result.reason)
        try:
            self.arrived += [(arrival.topic, arrival.queue_offset) for arrival in self._store.dispatch_once()]
            if len(self._waiting) % 7 == 1:
                self._store.flush_derived()
        except DiskFull as error:
            self.complaints.add(str(error))


def run(root: Path, room: int | None, count: int = 40) -> ShortDisk:
    """Send everything over a disk that is full after `room` demands, until it has been full for a while."""
    disk = ShortDisk()
    store = MessageStore.open(root, CONFIG, Clock(), disk)
    sender = Sender(store, count)
    disk.room = room
    for _ in range(3 * count):
        sender.step()
    assert sender.is_done or sender.complaints
    assert all("no space left" in complaint for complaint in sender.complaints)
    disk.room = None
    for _ in range(3 * count):
        sender.step()
    assert sender.is_done
    for number in range(3):
        queue_offsets = [queue_offset for topic, queue_offset in sender.arrived if topic == f"T{number}"]
        assert queue_offsets == list(range(len(range(number, count, 3)))), "each once, and in order"
    store.close()
    return disk


def check_derived(root: Path) -> None:
    """Queues and index are those of the log, byte for byte: no key twice, none missing."""
    expected = DerivedFiles(CONFIG.rules, queue_file_bytes=200, index_layout=GEOMETRY.index_layout)
    for path in sorted((root / "commitlog").iterdir()):
        found = scan_messages(path.read_bytes(), base_physical_offset=int(path.name))
        expected.add(message for message in found if isinstance(message, Message))
    made = {
        (path.parent.parent.name, int(path.parent.name), int(path.name)): path.read_bytes()
        for path in (root / "consumequeue").glob("*/*/*")
    }
    wanted = {(*queue, base): bytes(file) for queue, files in expected.queues.items() for base, file in files.items()}
    assert made == wanted
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == expected.index_files
    assert not list(root.rglob("*.orbitlog-new"))


def test_a_disk_that_is_full_for_a_while_at_any_moment(tmp_path: Path) -> None:
    demands = run(tmp_path / "all", None).demands
    check_derived(tmp_path / "all")
    assert demands > 50
    for room in range(5, demands):
        root = tmp_path / str(room)
        run(root, room)
        check_derived(root)
        MessageStore.open(root, CONFIG, Clock()).close()
        check_derived(root)


def test_opening_on_a_full_disk_is_reported_and_possible_later(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, Clock()) as store:
        for number in range(20):
            store.append(make_message("T", b"x" * 100, properties={"KEYS": f"k{number}"}))
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    disk = ShortDisk()
    refused = 0
    while True:
        disk.demands, disk.room = 0, refused
        try:
            MessageStore.open(tmp_path, CONFIG, Clock(), disk).close()
            break
        except DiskFull:
            refused += 1
    assert refused > 3
    check_derived(tmp_path)


def test_a_small_file_that_cannot_be_written_leaves_the_old_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = RealDisk(), tmp_path / "checkpoint"
    disk.replace_file(path, b"old")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskFull, match="no space left"):
        disk.replace_file(path, b"new")
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("checkpoint", b"old")]


def test_a_lock_that_cannot_be_written_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(DiskFull, match="locking"):
            MessageStore.open(tmp_path, CONFIG, Clock())
    MessageStore.open(tmp_path, CONFIG, Clock()).close()
