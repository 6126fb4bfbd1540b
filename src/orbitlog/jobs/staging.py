"""Staging: files that are written under a temporary name, synced, and renamed to their own.

A file that has its name is complete, after a kill and after a power cut. Several attempts at the same file may run at
the same time: each writes its own temporary file, the last rename wins, and all have the same bytes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from orbitlog.storefiles.disk import Disk, PlainFile, disk_errors

TEMPORARY = "tmp"
_SYNCS_AT_ONCE = 4
_WAITING_MAX = 200  # open files at a time


def _temporary_name(directory: Path) -> Path:
    """Return a name that no other attempt uses: workers of one job share the directory."""
    return directory / f"tmp{secrets.token_hex(8)}"


@contextmanager
def whole_file(
    disk: Disk, target: Path, temporary: Path, *, modified_ms: int | None = None, sync: bool = True
) -> Iterator[PlainFile]:
    """Yield a new file that becomes `target` when the block ends without an error."""
    with shared_file(disk, target, temporary, modified_ms=modified_ms, sync=sync) as (file, _):
        yield file


@contextmanager
def shared_file(
    disk: Disk, target: Path, temporary: Path, *, modified_ms: int | None = None, sync: bool = True
) -> Iterator[tuple[PlainFile, str]]:
    """Yield the same with the temporary path, for other processes to open."""
    with disk_errors(f"writing {target}"):
        disk.make_directory(temporary, durable=False)
        path = _temporary_name(temporary)
        file = disk.create_plain(path)
        is_moved = False
        try:
            yield file, str(path)
            if modified_ms is not None:
                file.set_modified(modified_ms * 1_000_000)
            if sync:
                # Before the rename: after a power cut the name must not stand for a file without its bytes.
                file.sync()
            disk.make_directory(target.parent, durable=False)
            disk.move(path, target)
            is_moved = True
        finally:
            file.close()
            if not is_moved:
                disk.remove_file(path)


def put_bytes(disk: Disk, target: Path, data: bytes, temporary: Path, *, modified_ms: int | None = None) -> None:
    """Write a small file; its name is durable after a sync of its directory."""
    with whole_file(disk, target, temporary, modified_ms=modified_ms) as file:
        file.write(0, data)


class WholeFiles:
    """Many files that are staged and synced together when the block ends without an error.

    A journalling file system commits its journal for each sync, or once for all that wait at the same time.
    """

    def __init__(self, disk: Disk, temporary: Path) -> None:
        self._disk = disk
        self._temporary = temporary
        self._waiting: list[tuple[PlainFile, Path, Path, int]] = []

    def __enter__(self) -> WholeFiles:
        self._disk.make_directory(self._temporary, durable=False)
        return self

    def begin(self, target: Path, *, modified_ms: int) -> PlainFile:
        """Return a new file; it gets its name after the block, or earlier if many files wait."""
        if len(self._waiting) >= _WAITING_MAX:
            self._finish()
        path = _temporary_name(self._temporary)
        file = self._disk.create_plain(path)
        self._waiting.append((file, path, target, modified_ms))
        return file

    def _finish(self) -> None:
        for file, _, _, modified_ms in self._waiting:
            file.set_modified(modified_ms * 1_000_000)
        with ThreadPoolExecutor(_SYNCS_AT_ONCE) as threads:
            list(threads.map(lambda waiting: waiting[0].sync(), self._waiting))
        for directory in sorted({target.parent for _, _, target, _ in self._waiting}):
            self._disk.make_directory(directory, durable=False)
        while self._waiting:
            file, path, target, _ = self._waiting.pop()
            file.close()
            self._disk.move(path, target)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            while self._waiting:
                file, path, _, _ = self._waiting.pop()
                file.close()
                self._disk.remove_file(path)


def sync_tree(disk: Disk, directory: Path) -> None:
    """Make the names below a directory durable, and its own."""
    sync_directories(disk, [directory, *(path for path in directory.rglob("*") if path.is_dir()), directory.parent])


def sync_directories(disk: Disk, paths: Iterable[Path]) -> None:
    """Make the names in directories durable."""
    with ThreadPoolExecutor(_SYNCS_AT_ONCE) as threads:
        list(threads.map(disk.sync_directory, paths))
