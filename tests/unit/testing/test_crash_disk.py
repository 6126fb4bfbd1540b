"""The disk that crashes: it forgets what a real one may forget, and nothing else."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from orbitlog.errors import DiskFull, StoreError, StoreLocked
from orbitlog.storefiles.disk import MappedFile
from orbitlog.testing.crash_disk import CrashDisk, PowerCut
from orbitlog.testing.crash_images import PAGE_BYTES, SECTOR_BYTES

ROOT = Path("store")
A = ROOT / "a"
SEEDS = range(60)


@pytest.fixture
def disk() -> CrashDisk:
    made = CrashDisk()
    made.make_directory(ROOT)
    return made


def make_file(disk: CrashDisk, path: Path = A, pages: int = 2) -> MappedFile:
    """Make a file that is on the disk, name and all."""
    file = disk.create_file(path, pages * PAGE_BYTES)
    file.allocate(0, pages * PAGE_BYTES)
    file.sync()
    disk.sync_directory(path.parent)
    return file


def found(disk: CrashDisk, path: Path = A) -> set[bytes | None]:
    """Everything that a file may be found as."""
    return {disk.crash(seed).read_file(path) for seed in SEEDS}


def test_what_was_synced_is_found(disk: CrashDisk) -> None:
    file = make_file(disk)
    file.write(10, b"abc")
    file.sync()
    assert found(disk) == {bytes(10) + b"abc" + bytes(2 * PAGE_BYTES - 13)}


def test_each_page_is_found_as_it_was_at_any_moment(disk: CrashDisk) -> None:
    file = make_file(disk)
    for letter in (b"1", b"2"):
        file.write(0, letter)
        file.write(PAGE_BYTES, letter)
    pairs = {(image[:1], image[PAGE_BYTES : PAGE_BYTES + 1]) for image in found(disk) if image}
    assert pairs == {(first, second) for first in (b"\0", b"1", b"2") for second in (b"\0", b"1", b"2")}


def test_a_page_is_torn_between_sectors_only(disk: CrashDisk) -> None:
    file = make_file(disk, pages=1)
    file.write(0, b"x" * PAGE_BYTES)
    images = {image for image in found(disk) if image}
    sectors = {image[at : at + SECTOR_BYTES] for image in images for at in range(0, PAGE_BYTES, SECTOR_BYTES)}
    assert sectors == {bytes(SECTOR_BYTES), b"x" * SECTOR_BYTES}
    assert len(images) > 2


def test_writes_through_a_view_count_when_it_is_released(disk: CrashDisk) -> None:
    file = make_file(disk, pages=1)
    with file.edit(0, 4) as lent:
        lent[:] = b"edit"
    assert {image[:4] for image in found(disk) if image} == {bytes(4), b"edit"}
    file.sync()
    assert {image[:4] for image in found(disk) if image} == {b"edit"}


def test_a_new_file_may_be_missing_or_empty_or_zero_until_it_is_synced(disk: CrashDisk) -> None:
    file = disk.create_file(A, PAGE_BYTES)
    assert found(disk) == {None, b"", bytes(PAGE_BYTES)}
    disk.sync_directory(ROOT)
    assert found(disk) == {b"", bytes(PAGE_BYTES)}
    file.sync()
    assert found(disk) == {bytes(PAGE_BYTES)}


def test_names_change_in_their_order(disk: CrashDisk) -> None:
    for name in ("a", "b"):
        make_file(disk, ROOT / name, pages=1)
    disk.remove_file(ROOT / "b")
    disk.rename_file(A, "c")
    names = {tuple(entry.name for entry in disk.crash(seed).list_directory(ROOT)) for seed in SEEDS}
    assert names == {("a", "b"), ("a",), ("c",)}
    disk.sync_directory(ROOT)
    assert {tuple(entry.name for entry in disk.crash(seed).list_directory(ROOT)) for seed in SEEDS} == {("c",)}


def test_a_small_file_is_replaced_whole_or_not_at_all_at_every_step(disk: CrashDisk) -> None:
    disk.replace_file(A, b"old")
    images: set[bytes | None] = set()
    disk.on_step = lambda: images.update(found(disk))
    disk.replace_file(A, b"new!")
    assert images == {b"old", b"new!"}
    assert found(disk) == {b"new!"}


def test_the_power_is_cut_before_a_step_and_stays_away(disk: CrashDisk) -> None:
    file = make_file(disk)
    disk.cut_at = disk.steps + 1
    file.write(0, b"a")
    for _ in range(2):
        with pytest.raises(PowerCut):
            file.write(0, b"b")
    assert file.read(0, 1) == b"a"


def test_a_crash_is_the_same_for_the_same_seed(disk: CrashDisk) -> None:
    file = make_file(disk)
    for number in range(9):
        file.write(number * 700, b"x")
    assert [disk.crash(seed).files() for seed in SEEDS] == [disk.crash(seed).files() for seed in SEEDS]


def test_a_killed_process_loses_nothing_but_syncs_nothing_either(disk: CrashDisk) -> None:
    file = make_file(disk, pages=1)
    file.write(0, b"x")
    after = disk.kill()
    assert after.files() == disk.files()
    assert {image[:1] for image in found(after) if image} == {b"\0", b"x"}


def test_after_a_failed_sync_the_next_one_promises_nothing(disk: CrashDisk) -> None:
    file = make_file(disk, pages=1)
    file.write(0, b"x")
    disk.sync_fails_at = disk.steps
    with pytest.raises(OSError) as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.sync()
    assert {image[:1] for image in found(disk) if image} == {b"\0", b"x"}


def test_a_full_disk_refuses_what_needs_room_and_nothing_else(disk: CrashDisk) -> None:
    file = make_file(disk)
    disk.full_from = disk.steps
    file.write(0, b"x")
    for step in (
        lambda: file.allocate(0, 1),
        lambda: disk.create_file(ROOT / "b", 10),
        lambda: disk.replace_file(A, b"new"),
        lambda: disk.make_directory(ROOT / "c"),
    ):
        with pytest.raises(DiskFull):
            step()
    disk.full_from = None
    disk.replace_file(ROOT / "b", b"new")


def test_writing_where_nothing_is_allocated_is_a_mistake(disk: CrashDisk) -> None:
    file = disk.create_file(A, 2 * PAGE_BYTES)
    file.allocate(0, 10)
    file.write(0, b"x" * PAGE_BYTES)
    with pytest.raises(AssertionError, match="before they are allocated"):
        file.write(PAGE_BYTES, b"x")


def test_a_lock_ends_with_the_power(disk: CrashDisk) -> None:
    lock = disk.lock_file(ROOT / "lock", b"lock")
    with pytest.raises(StoreLocked):
        disk.lock_file(ROOT / "lock", b"lock")
    disk.crash(1).lock_file(ROOT / "lock", b"lock")
    lock.release()
    disk.lock_file(ROOT / "lock", b"lock")


def test_a_file_is_made_once(disk: CrashDisk) -> None:
    make_file(disk)
    with pytest.raises(StoreError, match="File exists"):
        disk.create_file(A, 1)


def test_directory_that_cannot_be_synced_raises_what_the_real_disk_raises(disk: CrashDisk) -> None:
    disk.sync_fails_at = disk.steps
    with pytest.raises(StoreError, match="making store/sub"):
        disk.make_directory(ROOT / "sub")


def test_a_move_between_directories_is_done_or_not_done(disk: CrashDisk) -> None:
    disk.make_directory(ROOT / "to")
    make_file(disk)
    disk.move(A, ROOT / "to" / "b")
    places = {tuple(sorted(map(str, disk.crash(seed).files()))) for seed in SEEDS}
    assert places == {("store/a",), ("store/to/b",)}
    disk.sync_directory(ROOT)
    assert {tuple(map(str, disk.crash(seed).files())) for seed in SEEDS} == {("store/to/b",)}


def test_a_moved_directory_keeps_its_files(disk: CrashDisk) -> None:
    disk.make_directory(ROOT / "old")
    make_file(disk, ROOT / "old" / "a")
    disk.move(ROOT / "old", ROOT / "new")
    assert disk.kill().files().keys() == {ROOT / "new" / "a"}
    assert {tuple(map(str, disk.crash(seed).files())) for seed in SEEDS} == {("store/old/a",), ("store/new/a",)}


def test_a_new_size_is_found_or_the_old_one_until_the_sync(disk: CrashDisk) -> None:
    file = disk.create_plain(A)
    file.write(0, b"x" * 100)
    file.sync()
    disk.sync_directory(ROOT)
    file.resize(10)
    assert found(disk) == {b"x" * 100, b"x" * 10}
    file.sync()
    assert found(disk) == {b"x" * 10}
    file.resize(20)
    assert found(disk) == {b"x" * 10, b"x" * 10 + bytes(10)}
