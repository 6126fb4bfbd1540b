"""Read-only disk: the machine's file system for code that may look at a store, but must not change it."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from orbitlog.errors import StoreError, StoreLocked
from orbitlog.storefiles.disk import FileLock, MappedFile, PlainFile, RealDisk


class _NoLock:
    def release(self) -> None:
        """Release nothing: no lock was taken."""


class ReadOnlyDisk(RealDisk):
    """Reads as `RealDisk` does; files are mapped read-only, and every change raises `StoreError`.

    Directories are not created. Locks are not taken, because that creates a file; a lock that another process holds
    raises `StoreLocked` as ever.
    """

    def make_directory(self, path: Path, *, durable: bool = True) -> list[Path]:
        return []

    def create_file(self, path: Path, size_bytes: int) -> MappedFile:
        _refuse(f"creating {path} ({size_bytes} bytes)")

    def open_file(self, path: Path, *, writable: bool) -> MappedFile:
        return super().open_file(path, writable=False)

    def replace_file(self, path: Path, data: bytes) -> None:
        _refuse(f"writing {path} ({len(data)} bytes)")

    def remove_file(self, path: Path) -> None:
        _refuse(f"removing {path}")

    def rename_file(self, path: Path, name: str) -> None:
        _refuse(f"renaming {path} to {name}")

    def create_plain(self, path: Path) -> PlainFile:
        _refuse(f"creating {path}")

    def open_plain(self, path: Path) -> PlainFile:
        _refuse(f"opening {path} for writing")

    def move(self, path: Path, target: Path) -> None:
        _refuse(f"renaming {path} to {target}")

    def link_file(self, path: Path, target: Path) -> None:
        _refuse(f"linking {path} as {target}")

    def remove_directory(self, path: Path) -> None:
        _refuse(f"removing {path}")

    def remove_tree(self, path: Path) -> None:
        _refuse(f"removing {path}")

    def sync_directory(self, path: Path) -> None:
        _refuse(f"syncing {path}")

    def lock_file(self, path: Path, content: bytes) -> FileLock:
        if self.lock_holder(path) is not None:
            raise StoreLocked(f"{path.parent} is in use by another broker; stop it first, or open read-only")
        return _NoLock()

    def lock_directory(self, path: Path) -> FileLock:
        return super().lock_directory(path) if path.is_dir() else _NoLock()


def _refuse(what: str) -> NoReturn:
    raise StoreError(f"{what}: the store is only read")
