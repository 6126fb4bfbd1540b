"""The real disk and the one that crashes do the same for the store as long as nothing goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbitlog.errors import StoreError, StoreLocked
from orbitlog.storefiles.disk import Disk, RealDisk
from orbitlog.testing.crash_disk import CrashDisk


@pytest.fixture(params=["real", "crash"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return RealDisk() if request.param == "real" else CrashDisk()


@pytest.fixture
def root(disk: Disk, tmp_path: Path) -> Path:
    disk.make_directory(tmp_path / "store")
    return tmp_path / "store"


def names(disk: Disk, path: Path) -> list[tuple[str, int, bool]]:
    return [(entry.name, entry.size_bytes, entry.is_directory) for entry in disk.list_directory(path)]


def test_a_file_is_made_written_and_opened_again(disk: Disk, root: Path) -> None:
    file = disk.create_file(root / "a", 10_000)
    assert file.size_bytes == 10_000
    assert file.read(9_998, 10) == b"\0\0"
    file.allocate(0, 10_000)
    file.write(5, b"hello")
    file.write(10, memoryview(b" you"))
    with file.edit(5, 6) as lent:
        lent[0] = ord("H")
    assert file.data_end() >= 14
    file.sync()
    disk.sync_directory(root)
    file.close()
    again = disk.open_file(root / "a", writable=False)
    view = again.view()
    assert bytes(view[5:14]) == b"Hello you"
    assert view.readonly
    view.release()
    again.close()
    assert disk.read_file(root / "a") == bytes(5) + b"Hello you" + bytes(10_000 - 14)
    assert disk.modified_ms(root / "a") > 0


def test_fetching_changes_nothing(disk: Disk, root: Path) -> None:
    file = disk.create_file(root / "a", 1_000_000)
    file.allocate(0, 10_000)
    file.write(5, b"hello")
    file.fetch(0, 1_000_000)
    file.fetch(999_999, 2_000_000)
    assert file.read(0, 12) == bytes(5) + b"hello" + bytes(2)
    file.close()
    file.fetch(0, 10_000)


def test_names(disk: Disk, root: Path) -> None:
    disk.make_directory(root / "sub" / "deeper")
    disk.create_file(root / "b", 3).close()
    disk.replace_file(root / "a", b"12345")
    disk.replace_file(root / "a", b"123456")
    assert names(disk, root) == [("a", 6, False), ("b", 3, False), ("sub", 0, True)]
    disk.rename_file(root / "b", "c")
    disk.remove_file(root / "a")
    disk.remove_file(root / "a")
    assert names(disk, root) == [("c", 3, False), ("sub", 0, True)]
    assert names(disk, root / "sub") == [("deeper", 0, True)]
    assert names(disk, root / "nowhere") == []


def test_what_is_not_there(disk: Disk, root: Path) -> None:
    assert disk.read_file(root / "a") is None
    with pytest.raises(StoreError, match="No such file"):
        disk.open_file(root / "a", writable=True)
    with pytest.raises(StoreError, match="No such file"):
        disk.rename_file(root / "a", "b")
    with pytest.raises(StoreError, match="No such file"):
        disk.create_file(root / "nowhere" / "a", 1)
    disk.create_file(root / "a", 1).close()
    with pytest.raises(StoreError, match="File exists"):
        disk.create_file(root / "a", 1)


def test_usage(disk: Disk, root: Path) -> None:
    assert 0 <= disk.usage(root).used_ratio < 1


def test_a_lock_is_taken_once(disk: Disk, root: Path) -> None:
    lock = disk.lock_file(root / "lock", b"lock")
    assert disk.read_file(root / "lock") == b"lock"
    with pytest.raises(StoreLocked):
        disk.lock_file(root / "lock", b"lock")
    lock.release()
    disk.lock_file(root / "lock", b"lock").release()


def test_who_holds_a_lock(disk: Disk, root: Path) -> None:
    assert disk.lock_holder(root / "lock") is None
    lock = disk.lock_file(root / "lock", b"lock")
    assert disk.lock_holder(root / "lock") == os.getpid()
    with pytest.raises(StoreLocked):
        disk.lock_file(root / "lock", b"lock")
    lock.release()
    assert disk.lock_holder(root / "lock") is None


def test_a_lock_of_another_process_is_seen_and_ends_with_it(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from orbitlog.storefiles.disk import RealDisk\n"
    program += "lock = RealDisk().lock_file(Path(sys.argv[1]), b'lock'); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert RealDisk().lock_holder(tmp_path / "lock") == other.pid
        other.kill()
    assert RealDisk().lock_holder(tmp_path / "lock") is None


def test_a_plain_file_is_written_by_position_and_resized(disk: Disk, root: Path) -> None:
    file = disk.create_plain(root / "a")
    file.write(5, b"hello")
    file.write(0, memoryview(b"oh"))
    file.set_modified(1_790_000_000_000_000_000)
    file.sync()
    file.close()
    assert disk.read_file(root / "a") == b"oh\0\0\0hello"
    assert disk.modified_ms(root / "a") == 1_790_000_000_000
    file = disk.open_plain(root / "a")
    file.resize(7)
    file.resize(9)
    file.start_writeback(0, 9)
    file.close()
    assert disk.read_file(root / "a") == b"oh\0\0\0he\0\0"
    with pytest.raises(StoreError, match="creating"):
        disk.create_plain(root / "a")
    with pytest.raises(StoreError, match="opening"):
        disk.open_plain(root / "b")


def test_files_and_directories_move_between_directories(disk: Disk, root: Path) -> None:
    disk.make_directory(root / "from" / "inner")
    disk.make_directory(root / "to")
    disk.replace_file(root / "from" / "inner" / "a", b"bytes")
    disk.move(root / "from" / "inner", root / "to" / "moved")
    assert names(disk, root / "from") == []
    assert disk.read_file(root / "to" / "moved" / "a") == b"bytes"
    disk.replace_file(root / "to" / "b", b"other")
    disk.move(root / "to" / "moved" / "a", root / "to" / "b")
    assert disk.read_file(root / "to" / "b") == b"bytes"
    with pytest.raises(StoreError, match="renaming"):
        disk.move(root / "to" / "nothing", root / "to" / "c")


def test_links_and_trees_are_removed(disk: Disk, root: Path) -> None:
    disk.make_directory(root / "tree" / "inner")
    disk.replace_file(root / "tree" / "inner" / "a", b"bytes")
    disk.link_file(root / "tree" / "inner" / "a", root / "b")
    with pytest.raises(StoreError, match="removing"):
        disk.remove_directory(root / "tree")
    disk.remove_tree(root / "tree")
    disk.remove_tree(root / "tree")
    assert names(disk, root) == [("b", 5, False)]
    disk.make_directory(root / "empty")
    disk.remove_directory(root / "empty")
    assert names(disk, root) == [("b", 5, False)]
