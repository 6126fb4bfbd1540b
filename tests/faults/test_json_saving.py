"""Tables of a broker in config/*.json: crashes inside each step of saving, full and failing disks, flipped bits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from orbitlog.broker.tables.config_directory import ConfigDirectory
from orbitlog.errors import DiskFull, StoreError
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.store_tree import BACKUP_SUFFIX, CONFIG
from orbitlog.formats.tables.group_config import SUBSCRIPTION_GROUP
from orbitlog.formats.tables.json_records import JsonFile
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, DELAY_OFFSET, DelayOffsets
from orbitlog.formats.tables.topic_config import TOPICS
from orbitlog.testing.crash_disk import CrashDisk
from orbitlog.testing.golden import GoldenStore

ROOT = Path("store")
SAVES = 12
IMAGES = "images of a disk while JSON is saved"
FILES: tuple[JsonFile[Any], ...] = (TOPICS, SUBSCRIPTION_GROUP, CONSUMER_OFFSET, DELAY_OFFSET)


def directory_on(disk: CrashDisk) -> ConfigDirectory:
    return ConfigDirectory(disk, ROOT, COMPAT_5_5)


def save(directory: ConfigDirectory, number: int) -> None:
    # A table that grows and shrinks: some saves take more blocks than the one before.
    table = DelayOffsets(offsets={level: number for level in range(1, 2 + number * 37 % 300)})
    directory.write(DELAY_OFFSET.name, directory.encode(DELAY_OFFSET, table))


def saved(disk: CrashDisk) -> int | None:
    table = directory_on(disk).load(DELAY_OFFSET)
    if table is None:
        return None
    assert len(set(table.offsets.values())) == 1, "a table of two"
    return table.offsets[1]


def test_a_crash_at_any_step_leaves_one_table_or_the_next(scale: int, checked: Counter[str]) -> None:
    disk, chance = CrashDisk(), Random(8000)
    directory, expected = directory_on(disk), {None}

    def look() -> None:
        for _ in range(2 * scale):
            seed = chance.randrange(1 << 30)
            assert saved(disk.crash(seed)) in expected, f"image {seed} before step {disk.steps}"
            checked.update([IMAGES])

    disk.on_step = look
    before: int | None = None
    for number in range(1, SAVES):
        expected = {before, number}
        save(directory, number)
        expected = {number}  # saved is saved
        look()
        before = number


@pytest.mark.parametrize("damage", [b"", b"{", b"{\xff}"], ids=["empty", "cut", "no text"])
def test_a_crash_while_saving_over_a_damaged_table_does_not_take_its_backup(
    damage: bytes, scale: int, checked: Counter[str]
) -> None:
    disk, chance = CrashDisk(), Random(8001)
    directory = directory_on(disk)
    save(directory, 1)
    save(directory, 2)
    files = disk.files() | {ROOT / CONFIG / DELAY_OFFSET.name: damage}
    disk = CrashDisk.of_files(files)
    directory = directory_on(disk)
    assert saved(disk) == 1, "the backup is not used"
    assert directory.load(DELAY_OFFSET) is not None

    def look() -> None:
        for _ in range(3 * scale):
            seed = chance.randrange(1 << 30)
            assert saved(disk.crash(seed)) in (1, 3), f"image {seed} before step {disk.steps}"
            checked.update([IMAGES])

    disk.on_step = look
    save(directory, 3)
    disk.on_step = None
    assert saved(disk) == 3


def test_a_disk_that_fills_up_while_saving_keeps_the_table(checked: Counter[str]) -> None:
    for step in range(40):
        disk = CrashDisk()
        directory = directory_on(disk)
        save(directory, 1)
        save(directory, 2)
        disk.full_from = disk.steps + step
        try:
            save(directory, 3)
        except DiskFull:
            assert saved(disk) in (2, 3)
            assert saved(disk.crash(step)) in (2, 3)
            checked.update(["full disks"])
            disk.full_from = None
            save(directory, 3)
        assert saved(disk) == 3


def test_failed_sync_while_saving_is_reported_and_keeps_the_table(checked: Counter[str]) -> None:
    for step in range(40):
        disk = CrashDisk()
        directory = directory_on(disk)
        save(directory, 1)
        save(directory, 2)
        disk.sync_fails_at = disk.steps + step
        try:
            save(directory, 3)
        except StoreError:
            checked.update(["failed syncs"])
            assert saved(disk.crash(step)) in (2, 3)
        assert saved(disk.kill()) in (2, 3)


def test_flipped_bits_in_json_give_a_table_or_a_sentence(
    golden_550_crash: GoldenStore, scale: int, checked: Counter[str]
) -> None:
    """No checksum covers JSON: a digit that became another is believed. The backup stands in for what is unreadable."""
    chance = Random(8002)
    for file in FILES:
        good = (golden_550_crash.store / CONFIG / file.name).read_bytes()
        for _ in range(20 * scale):
            bit = chance.randrange(8 * len(good))
            damaged = bytearray(good)
            damaged[bit // 8] ^= 1 << bit % 8
            path = ROOT / CONFIG / file.name
            try:
                directory_on(CrashDisk.of_files({path: bytes(damaged)})).load(file)
            except StoreError as error:
                assert file.name in str(error)
            backed_up = {path: bytes(damaged), path.with_name(file.name + BACKUP_SUFFIX): good}
            assert directory_on(CrashDisk.of_files(backed_up)).load(file) is not None, f"bit {bit} of {file.name}"
            checked.update(["flipped bits"])
