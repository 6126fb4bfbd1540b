"""A reader beside a writer that appends, rolls, deletes and flushes at any moment of what the reader does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from orbitlog.formats.records.message import decode_message
from orbitlog.formats.records.properties import KEYS, UNIQ_KEY
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.reads.queue_reader import GetStatus, ReadRequest
from orbitlog.store.reads.store_reader import StoreReader
from orbitlog.storefiles.disk import DirectoryEntry, DiskUsage, FileLock, MappedFile
from orbitlog.testing.crash_disk import CrashDisk
from tests.support.workloads import ROOT, TOPICS, Workload

LOOKS = "looks of a reader beside a writer"
AT_ONCE = RetentionPolicy(reserved_hours=0, delete_hours=tuple(range(24)), files_per_step=2)


class BesideDisk:
    """The writer's disk as a reader sees it: before each read the writer may have continued."""

    def __init__(self, disk: CrashDisk, go_on: Callable[[], None]) -> None:
        self._disk = disk
        self._go_on = go_on

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        self._go_on()
        return self._disk.list_directory(path)

    def open_file(self, path: Path, *, writable: bool) -> MappedFile:
        assert not writable
        self._go_on()
        return self._disk.open_file(path, writable=False)

    def read_file(self, path: Path) -> bytes | None:
        self._go_on()
        return self._disk.read_file(path)

    def open_files_max(self) -> int:
        return 1 << 16

    def usage(self, path: Path) -> DiskUsage:
        raise AssertionError("a reader has no use for it")

    def modified_ms(self, path: Path) -> int:
        raise AssertionError("a reader has no use for it")

    def lock_file(self, path: Path, content: bytes) -> FileLock:
        raise AssertionError("a reader takes no lock")

    def make_directory(self, path: Path, *, durable: bool = True) -> list[Path]:
        raise AssertionError(f"a reader makes {path}")

    def create_file(self, path: Path, size_bytes: int) -> MappedFile:
        raise AssertionError(f"a reader makes {path}")

    def replace_file(self, path: Path, data: bytes) -> None:
        raise AssertionError(f"a reader writes {path}")

    def remove_file(self, path: Path) -> None:
        raise AssertionError(f"a reader removes {path}")

    def rename_file(self, path: Path, name: str) -> None:
        raise AssertionError(f"a reader renames {path}")

    def sync_directory(self, path: Path) -> None:
        raise AssertionError(f"a reader syncs {path}")


class DeletingWorkload(Workload):
    """Appends, dispatches and flushes as ever, and deletes whatever it may."""

    def __init__(self, seed: int, *, sync_flush: bool) -> None:
        super().__init__(seed, sync_flush=sync_flush)
        self.config = replace(self.config, retention=AT_ONCE)

    def one_step(self) -> None:
        super().one_step()
        if self.chance.random() < 0.05:
            assert self.store is not None
            self.store.flush_derived()
            self.store.retain_once()


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("part", range(2))
def test_a_reader_beside_a_writer_is_never_wrong(
    sync_flush: bool, part: int, scale: int, checked: Counter[str], use_kernels: Callable[[bool], None]
) -> None:
    use_kernels(part % 2 == 1)
    for run in range(4 * scale):
        seed = 7000 + part + 2 * run
        print(f"workload seed {seed}")
        look_beside(DeletingWorkload(seed, sync_flush=sync_flush), Random(seed), checked)


def look_beside(workload: Workload, chance: Random, checked: Counter[str]) -> None:
    disk = CrashDisk()
    store = workload.open(disk)
    workload.run(40)
    is_writing = False

    def go_on() -> None:
        nonlocal is_writing
        if not is_writing and chance.random() < 0.3:
            is_writing = True
            workload.run(chance.randint(1, 6))
            is_writing = False

    reader = StoreReader.open(ROOT, workload.config, BesideDisk(disk, go_on))
    for _ in range(12):
        for _ in range(6):
            look(reader, workload, chance)
            checked.update([LOOKS])
        assert not reader.damage, reader.damage
        workload.run(chance.randrange(15))
        if chance.random() < 0.5:
            reader.refresh()
    reader.close()
    store.close()


def look(reader: StoreReader, workload: Workload, chance: Random) -> None:
    """Read something; whatever comes must be what was taken."""
    topic, queue_id = chance.choice(TOPICS), chance.randrange(3)
    kind = chance.choice(["get", "get", "query", "time", "place"])
    if kind == "get":
        queue = reader.queue(topic, queue_id)
        start = chance.randrange(queue.max_offset + 2) if queue else 0
        check_get(reader, workload, topic, queue_id, start)
    elif kind == "query":
        record = chance.choice(list(workload.ledger.records.values()))
        message = decode_message(record)
        key = message.properties[chance.choice([KEYS, UNIQ_KEY]) if KEYS in message.properties else UNIQ_KEY].split()[0]
        for found in reader.query(KeyQuery(message.topic, key)).messages:
            assert found == decode_message(workload.ledger.records[found.physical_offset])
            assert key in (found.properties.get(KEYS, "") + " " + found.properties[UNIQ_KEY]).split()
    elif kind == "time":
        assert reader.offset_by_time(topic, queue_id, workload.clock.now_ms - chance.randrange(5_000)) >= 0
    else:
        place = chance.choice(list(workload.ledger.records))
        found_at = reader.read_at(place)
        assert found_at is None or found_at == decode_message(workload.ledger.records[place])


def check_get(reader: StoreReader, workload: Workload, topic: str, queue_id: int, start: int) -> None:
    result = reader.get(topic, queue_id, ReadRequest(start, 8))
    assert (result.status is GetStatus.FOUND) == bool(result.records)
    for record in result.records:
        message = decode_message(record)
        assert bytes(record) == workload.ledger.records[message.physical_offset], "other bytes than were taken"
        assert (message.topic, message.queue_id) == (topic, queue_id)
