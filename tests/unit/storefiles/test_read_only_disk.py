"""A disk that reads and refuses every change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.errors import StoreError, StoreLocked
from orbitlog.storefiles.disk import Disk, RealDisk
from orbitlog.storefiles.read_only_disk import ReadOnlyDisk
from tests.support.store_kinds import fingerprint, put

CHANGES: dict[str, Callable[[Disk, Path], object]] = {
    "create": lambda disk, root: disk.create_file(root / "new", 10),
    "replace": lambda disk, root: disk.replace_file(root / "file", b"new"),
    "remove": lambda disk, root: disk.remove_file(root / "file"),
    "rename": lambda disk, root: disk.rename_file(root / "file", "other"),
    "sync": lambda disk, root: disk.sync_directory(root),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_refused(change: str, tmp_path: Path) -> None:
    put(tmp_path / "file", b"content")
    before = fingerprint(tmp_path)
    with pytest.raises(StoreError, match="only read"):
        CHANGES[change](ReadOnlyDisk(), tmp_path)
    assert fingerprint(tmp_path) == before


def test_file_opened_for_writing_is_mapped_read_only(tmp_path: Path) -> None:
    put(tmp_path / "file", b"content")
    file = ReadOnlyDisk().open_file(tmp_path / "file", writable=True)
    try:
        assert file.read(0, 7) == b"content"
        with pytest.raises(TypeError):
            file.write(0, b"C")
    finally:
        file.close()


def test_lock_creates_no_file_and_sees_one_that_is_held(tmp_path: Path) -> None:
    disk = ReadOnlyDisk()
    disk.lock_file(tmp_path / "lock", b"x").release()
    disk.lock_directory(tmp_path / "missing").release()
    disk.make_directory(tmp_path / "made")
    assert list(tmp_path.iterdir()) == []
    held = RealDisk().lock_file(tmp_path / "lock", b"x")
    try:
        with pytest.raises(StoreLocked):
            disk.lock_file(tmp_path / "lock", b"x")
    finally:
        held.release()
