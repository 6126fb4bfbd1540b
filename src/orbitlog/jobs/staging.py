"""Files that come into being whole: written under another name, synced, renamed.

Whoever finds a file under its name finds all of it, after a kill and after a power cut. Several attempts at the same
file may run at once: each writes its own, the last rename wins, and all have the same bytes.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from orbitlog.errors import DiskFull
from orbitlog.storefiles.disk import disk_errors

TEMPORARY = "tmp"
_SYNCS_AT_ONCE = 4
_WAITING_MAX = 200  # open files at a time
_SYNC_FILE_RANGE_WRITE = 2


@contextmanager
def whole_file(target: Path, temporary: Path, *, modified_ms: int | None = None, sync: bool = True) -> Iterator[int]:
    """Lend the descriptor of a new file that becomes `target` when the block ends well."""
    with shared_file(target, temporary, modified_ms=modified_ms, sync=sync) as (descriptor, _):
        yield descriptor


@contextmanager
def shared_file(
    target: Path, temporary: Path, *, modified_ms: int | None = None, sync: bool = True
) -> Iterator[tuple[int, str]]:
    """Lend a new file that becomes `target` when the block ends well, and its name until then, for others to open."""
    with disk_errors(f"writing {target}"):
        temporary.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=temporary)
        try:
            yield descriptor, name
            os.fchmod(descriptor, 0o644)
            if sync:
                os.fsync(descriptor)
            if modified_ms is not None:
                os.utime(descriptor, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
            target.parent.mkdir(parents=True, exist_ok=True)
            Path(name).replace(target)
        finally:
            os.close(descriptor)
            Path(name).unlink(missing_ok=True)  # there only if the block failed


def put_bytes(target: Path, data: bytes, temporary: Path, *, modified_ms: int | None = None) -> None:
    """Write a small file whole."""
    with whole_file(target, temporary, modified_ms=modified_ms) as descriptor:
        write_all(descriptor, data, 0)


def write_all(descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Write all bytes at a position; a write may take only a part of them."""
    view = memoryview(data).cast("B")
    while len(view):
        written = os.pwrite(descriptor, view, position)
        if written == 0:
            raise DiskFull("a write was refused without a reason")
        view = view[written:]
        position += written


def begin_writing(descriptor: int, position: int, size_bytes: int) -> None:
    """Let the disk begin with bytes that were just written, without waiting; makes nothing durable.

    A sync at the end then finds most of them there, where the disk would otherwise have stood idle while they were
    worked out. Systems that have no such call are left to their own time.
    """
    start = _sync_file_range()
    if start is not None:
        start(descriptor, position, size_bytes, _SYNC_FILE_RANGE_WRITE)


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        found = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    found.restype = ctypes.c_int
    return found


class WholeFiles:
    """Many files that come into being whole, synced together when the block ends well.

    A journalling file system writes its journal for each sync, or once for all that wait at the same moment.
    """

    def __init__(self, temporary: Path) -> None:
        self._temporary = temporary
        self._waiting: list[tuple[int, str, Path, int]] = []

    def __enter__(self) -> WholeFiles:
        self._temporary.mkdir(parents=True, exist_ok=True)
        return self

    def begin(self, target: Path, *, modified_ms: int) -> int:
        """Lend the descriptor of a new file; it is under its name after the block, or sooner where many wait."""
        if len(self._waiting) >= _WAITING_MAX:
            self._finish()
        descriptor, name = tempfile.mkstemp(dir=self._temporary)
        self._waiting.append((descriptor, name, target, modified_ms))
        return descriptor

    def _finish(self) -> None:
        with ThreadPoolExecutor(_SYNCS_AT_ONCE) as threads:
            list(threads.map(os.fsync, [descriptor for descriptor, *_ in self._waiting]))
        for directory in {target.parent for _, _, target, _ in self._waiting}:
            directory.mkdir(parents=True, exist_ok=True)
        for descriptor, name, target, modified_ms in self._waiting:
            os.fchmod(descriptor, 0o644)
            os.utime(descriptor, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
            Path(name).replace(target)
        self._forget()

    def _forget(self) -> None:
        while self._waiting:
            descriptor, name, _, _ = self._waiting.pop()
            os.close(descriptor)
            Path(name).unlink(missing_ok=True)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._forget()


def sync_tree(directory: Path) -> None:
    """Make the names below a directory durable, and its own."""
    sync_directories([directory, *(path for path in directory.rglob("*") if path.is_dir()), directory.parent])


def sync_directories(paths: Iterable[Path]) -> None:
    """Make the names in directories durable."""
    with ThreadPoolExecutor(_SYNCS_AT_ONCE) as threads:
        list(threads.map(sync_directory, paths))


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Remove a directory of ours, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
