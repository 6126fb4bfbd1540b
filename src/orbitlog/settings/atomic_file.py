"""Atomic file: replaces a small file, so that readers and crashes find the old one or the new one."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def replace_file(
    path: Path,
    data: bytes,
    *,
    suffix: str | None = None,
    mode: int = 0o640,
    keeps_mode: bool = False,
    keeps_owner: bool = False,
    is_durable: bool = True,
) -> None:
    """Write a file under a temporary name, and rename it to `path`; raises `OSError`, and then leaves the old file.

    If it `is_durable`, the new file has survived a power cut when this returns. Else a power cut may leave it empty:
    for caches, and for files that are written often. With `keeps_mode`, a file that exists keeps its permissions. With
    `keeps_owner`, root leaves it to its owner, and a new one to that of the directory.
    """
    # Hidden, for readers of whole directories; with the process id, because two processes may replace the same file.
    temporary = path.with_name(path.name + suffix if suffix else f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        # Created with its mode: a file with credentials must never be readable by others.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            if keeps_mode and (old := _permissions(path)) is not None:
                os.fchmod(descriptor, old)
            if keeps_owner:
                _give_to_owner_of(path if path.exists() else path.parent, descriptor)
            written = 0
            while written < len(data):
                written += os.write(descriptor, data[written:])
            if is_durable:
                os.fsync(descriptor)  # before the rename, or a power cut may leave the name without the bytes
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # if the disk is full, a partial file takes room
        raise
    if is_durable:
        sync_directory(path.parent)


def open_for_append(path: Path, mode: int = 0o640) -> int:
    """Return a descriptor at the end of a file, which is created if it does not exist.

    Raise `OSError` for a link, a pipe or a device in its place, and never wait for one.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def open_for_reading(path: Path) -> BinaryIO:
    """Return a file to read; raise `OSError` for a pipe or a device in its place, and never wait for one."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def _permissions(path: Path) -> int | None:
    """Return the permissions of an existing file, without write access for every user; None if there is no file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    return stat.S_IMODE(mode) & 0o664 if stat.S_ISREG(mode) else None


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_socket(path: Path) -> None:
    """Remove a Unix socket, if it exists."""
    if path.is_socket():
        path.unlink(missing_ok=True)


def create_directory(path: Path, mode: int = 0o750, *, keeps_owner: bool = False) -> None:
    """Create a directory and its parents, if they do not exist; `replace_file` makes the names in it durable.

    With `keeps_owner`, root leaves each of them to the owner of the directory that contains it.
    """
    if not keeps_owner:
        path.mkdir(mode, parents=True, exist_ok=True)
    elif not path.is_dir():
        create_directory(path.parent, mode, keeps_owner=True)
        path.mkdir(mode, exist_ok=True)
        # By descriptor: the owner of the parent could replace the name by a link to a directory of root.
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _give_to_owner_of(path.parent, descriptor)
        finally:
            os.close(descriptor)


def _give_to_owner_of(path: Path, descriptor: int) -> None:
    if os.geteuid() == 0:
        owner = path.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
