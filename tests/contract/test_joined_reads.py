"""Joined reads: the kernel and the plain loop return the same records, counts and offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from orbitlog.formats.java import LONG_MAX, string_hash
from orbitlog.formats.records.message import make_message
from orbitlog.kernels.reading.joined_reads import JoinedReader
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.queue_reader import ReadLimits, ReadRequest
from orbitlog.storefiles.store_config import StoreConfig

CONFIG = StoreConfig(StoreGeometry(segment_bytes=32768, queue_file_bytes=1200))
COUNT = 200
NOW_MS = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    opened = MessageStore.open(tmp_path / "store", CONFIG, lambda: NOW_MS)
    chance = Random(1)
    for number in range(COUNT):
        queue_id = chance.choice([0, 1, 2, number // 20 % 3])  # alone, and many in a row
        opened.append(
            make_message("T", bytes(number * 7 % 300), properties={"TAGS": "ab"[number % 2]}, queue_id=queue_id)
        )
    opened.dispatch_once()
    yield opened
    opened.close()


class CountedReader(JoinedReader):
    """Counts the records that the kernel took."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[int] = []

    def read(
        self, units: bytes, log: memoryview, base: int, first: int, end: int, count_max: int, bytes_max: int
    ) -> tuple[int, bytes]:
        count, records = super().read(units, log, base, first, end, count_max, bytes_max)
        self.taken.append(count)
        return count, records


def any_request(chance: Random, young_bytes: int) -> ReadRequest:
    limits = ReadLimits(
        count_in_memory=chance.choice([1, 5, 32]),
        bytes_in_memory=chance.choice([1, 500, 3000, 1 << 20]),
        count_on_disk=chance.choice([1, 3]),
        bytes_on_disk=chance.choice([1, 700]),
        memory_bytes=chance.choice([0, young_bytes // 2, young_bytes, 1 << 40]),
    )
    wanted = chance.choice([None, None, None, string_hash("a")])
    tags_filter = None if wanted is None else lambda code: code == wanted
    return ReadRequest(chance.randrange(70), chance.choice([1, 2, 32, 100]), tags_filter, None, limits)


def compare(store: MessageStore, seeds: range) -> list[int]:
    """Read with and without the kernel; return the numbers of records that it took."""
    reader = CountedReader()
    for seed in seeds:
        request = any_request(Random(seed), store._log.written_to)
        plain = store.get("T", seed % 3, request)
        store._joined_reads = reader
        calls = len(reader.taken)
        assert store.get("T", seed % 3, request) == plain, "only a request that allows it gets joined records"
        assert len(reader.taken) == calls
        joined = store.get("T", seed % 3, replace(request, may_join=True))
        store._joined_reads = None
        assert b"".join(joined.records) == b"".join(plain.records)
        assert joined.count == plain.count == len(plain.records)
        assert replace(joined, records=[]) == replace(plain, records=[])
    return reader.taken


def test_kernel_and_loop_read_the_same(store: MessageStore) -> None:
    taken = compare(store, range(600))
    assert {0, 1, 5, 32} <= set(taken)

    store._log.own_from = store._log.written_to // 2  # the first half is from an earlier process
    compare(store, range(600))
    store._log.own_from = LONG_MAX
    assert set(compare(store, range(100))) == {0}


@pytest.mark.parametrize("position", [0, 3, 4, 7, 28, 35])
def test_kernel_takes_no_record_that_differs_from_its_unit(store: MessageStore, position: int) -> None:
    segments = store._log.segments
    for queue_id in range(3):
        queue = store.queue("T", queue_id)
        assert queue is not None
        for queue_offset in range(1, queue.max_offset, 7):
            entry = queue.entry(queue_offset)
            assert entry is not None
            base = segments.base_of(entry.physical_offset)
            at = entry.physical_offset - base + position
            segments.file(base).write(at, bytes([segments.file(base).read(at, 1)[0] ^ 0x10]))
    assert 32 not in compare(store, range(300))


@pytest.mark.parametrize("size_bytes", [0, 1, 90, 2**31 - 1, -1])
@pytest.mark.parametrize("physical_offset", [-(2**63), -1, 0, 8100, 8192, 2**62, 2**63 - 1])
def test_unit_with_any_numbers_reads_nothing_outside_the_file(physical_offset: int, size_bytes: int) -> None:
    unit = physical_offset.to_bytes(8, signed=True) + size_bytes.to_bytes(4, signed=True) + bytes(8)
    for base, end in ((0, 8192), (8192, 16384), (8192, 2**63 - 1)):
        log = memoryview(bytes(8192))
        assert JoinedReader().read(unit * 2, log, base, 0, end, 32, 1 << 20) == (0, b"")


def test_file_can_be_closed_after_a_read(store: MessageStore) -> None:
    store._joined_reads = JoinedReader()
    result = store.get("T", 0, ReadRequest(0, 32, may_join=True))
    assert result.count > len(result.records)
    store.close()  # raises a BufferError if a view of a mapped file is left
