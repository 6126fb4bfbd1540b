"""Confined disk: the machine's file system below one directory, without following a link in any component.

The doctor changes stores that strangers sent, at paths that a journal in the store names. Each operation therefore
walks from the root to its file with one descriptor a directory, at the time of the operation: neither a link that was
there nor one that is put there meanwhile directs it to another place.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from orbitlog.errors import StoreLinkError
from orbitlog.storefiles.confined.regular_files import (
    DIRECTORY_MODE,
    open_parent,
    open_regular,
    parts_below,
    read_below,
)
from orbitlog.storefiles.disk import PlainFile, RealDisk, RealPlainFile, disk_errors


class ConfinedDisk(RealDisk):
    """Changes files below `root` only; a link in the way raises `StoreLinkError`, another path `StoreLayoutError`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def make_directory(self, path: Path, *, durable: bool = True) -> list[Path]:
        if path.absolute() == self._root.absolute():
            return []
        made: list[Path] = []
        place = self._root
        with disk_errors(f"creating {path}"):
            for name in parts_below(self._root, path):
                with open_parent(self._root, place / name) as parent:
                    if _make(name, parent):
                        made.append(place)
                        if durable:
                            os.fsync(parent)
                place /= name
            with open_parent(self._root, path / "any"):
                pass  # the directory itself is not a link
        return [] if durable else made

    def create_plain(self, path: Path) -> PlainFile:
        with disk_errors(f"creating {path}"), open_parent(self._root, path) as parent:
            return RealPlainFile(open_regular(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, dir_fd=parent))

    def open_plain(self, path: Path) -> PlainFile:
        with disk_errors(f"opening {path}"), open_parent(self._root, path) as parent:
            return RealPlainFile(open_regular(path, os.O_WRONLY, dir_fd=parent))

    def read_file(self, path: Path) -> bytes | None:
        return read_below(self._root, path)

    def move(self, path: Path, target: Path) -> None:
        with (
            disk_errors(f"renaming {path} to {target}"),
            open_parent(self._root, path) as source,
            open_parent(self._root, target) as destination,
        ):
            os.replace(path.name, target.name, src_dir_fd=source, dst_dir_fd=destination)

    def rename_file(self, path: Path, name: str) -> None:
        self.move(path, path.with_name(name))

    def link_file(self, path: Path, target: Path) -> None:
        with (
            disk_errors(f"linking {path} as {target}"),
            open_parent(self._root, path) as source,
            open_parent(self._root, target) as destination,
        ):
            os.link(path.name, target.name, src_dir_fd=source, dst_dir_fd=destination, follow_symlinks=False)

    def remove_file(self, path: Path) -> None:
        with disk_errors(f"removing {path}"), suppress(FileNotFoundError), open_parent(self._root, path) as parent:
            os.unlink(path.name, dir_fd=parent)

    def remove_directory(self, path: Path) -> None:
        with disk_errors(f"removing {path}"), open_parent(self._root, path) as parent:
            os.rmdir(path.name, dir_fd=parent)

    def remove_tree(self, path: Path) -> None:
        with disk_errors(f"removing {path}"), suppress(FileNotFoundError), open_parent(self._root, path) as parent:
            # rmtree refuses a link as its argument, and walks by descriptors below it.
            if not _is_directory(path.name, parent):
                return
            shutil.rmtree(path.name, dir_fd=parent)

    def sync_directory(self, path: Path) -> None:
        if path.absolute() == self._root.absolute():
            super().sync_directory(path)
            return
        with open_parent(self._root, path / "any") as directory:
            os.fsync(directory)


def _make(name: str, parent: int) -> bool:
    """Create a directory in another; returns whether it did not exist."""
    try:
        os.mkdir(name, DIRECTORY_MODE, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def _is_directory(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def refuse_shared(root: Path, path: Path) -> None:
    """Raise `StoreLinkError` if a file below `root` has a second name, which a change would reach as well."""
    with open_parent(root, path) as parent:
        names = os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_nlink
    if names > 1:
        raise StoreLinkError(
            f"{path} has {names} names (hard links), and a repair would change the file under all of them: replace it"
            f" by a copy of its own (cp {path.name} copy; mv copy {path.name})"
        )
