"""An index file with anything behind the keys that count is taken back to those, byte for byte."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from orbitlog.formats.derived.index_layout import IndexHeader, IndexLayout
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.testing.crash_disk import CrashDisk

LAYOUT = IndexLayout(slot_count=11, entry_count=60)
ROOT = Path("store")


def put(index: IndexFiles, chance: Random, count: int) -> None:
    for number in range(count):
        index.put([chance.randrange(1 << 31)], 1000 + number, 1_700_000_000_000 + number * 700)
    index.settle()


@pytest.mark.parametrize("seed", range(20))
def test_keys_after_the_last_that_counts_leave_nothing(seed: int) -> None:
    chance, disk = Random(seed), CrashDisk()
    index = IndexFiles(disk, ROOT, LAYOUT)
    put(index, chance, chance.choice([1, 2, 30, 58, 59, 70]))
    before, tail = disk.files(), index.tail
    put(index, chance, chance.choice([0, 1, 10, 100]))
    tear(disk, index, chance)
    index.cut_to(tail)
    assert disk.files() == before
    assert index.tail == tail
    again = IndexFiles(disk, ROOT, LAYOUT)
    again.load()
    assert again.tail == tail


def tear(disk: CrashDisk, index: IndexFiles, chance: Random) -> None:
    """Leave entries half written, as a process does that is killed inside a kernel; the header is old or new."""
    last = list(index)[-1]
    number = last.header.index_count
    if number < LAYOUT.entry_count:
        position = LAYOUT.entry_position(number)
        last.file.write(position, chance.randbytes(chance.randrange(1, 20)))
        last.file.write(LAYOUT.slot_position(chance.randrange(11)), number.to_bytes(4, "big"))
    if chance.random() < 0.5:
        last.follow(IndexHeader())


def test_a_store_without_an_index_file_has_none_after_it() -> None:
    disk = CrashDisk()
    index = IndexFiles(disk, ROOT, LAYOUT)
    tail = index.tail
    put(index, Random(1), 3)
    index.cut_to(tail)
    assert index.tail == tail == (0, IndexHeader())
    assert disk.files() == {}
