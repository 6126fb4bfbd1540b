"""Regular files: opens files of a store without following links and without waiting for a pipe.

A store may come from a stranger, and its directories may contain anything: a link to a private file, a pipe that blocks
its reader, a device that acts when it is opened. `open_regular` refuses all of these in the last component of a path,
`open_below` in every component below the store's root.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitlog.errors import StoreLayoutError, StoreLinkError

FILE_MODE, DIRECTORY_MODE = 0o640, 0o750
"""Permissions of new files and directories of a store, less the umask: messages are not for every user of a machine."""

# Without O_NONBLOCK, opening a pipe waits for its other end; regular files ignore the flag.
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
WHOLE_FILE_BYTES_MAX = 256 * 1024 * 1024
"""Largest table, journal or checkpoint."""
_WALK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_regular(path: Path, flags: int, *, mode: int = FILE_MODE, dir_fd: int | None = None) -> int:
    """Return a descriptor of a regular file; `path` is relative to `dir_fd` if that is given.

    Raise `StoreLinkError` for a link or special file, `IsADirectoryError` for a directory, otherwise `OSError`.
    """
    name = path.name if dir_fd is not None else path
    try:
        # Looked at before it is opened: opening a device may already have an effect.
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    else:
        _check_regular(path, found)
    try:
        descriptor = os.open(name, flags | _SAFE, mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _refusal(path) from error
        raise
    try:
        # It may have been replaced in between.
        _check_regular(path, os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    except StoreLinkError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path, bytes_max: int | None = None) -> bytes:
    """Return the bytes of a regular file, at most `bytes_max`; raise as `open_regular` does.

    Without `bytes_max`, raise `StoreLayoutError` for a file that no table, journal or checkpoint is as large as.
    """
    return _read_all(path, open_regular(path, os.O_RDONLY), bytes_max)


def read_regular_or_none(path: Path) -> bytes | None:
    """Return the bytes of a regular file as `read_regular` does; None if it does not exist."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None


def open_below(root: Path, path: Path, flags: int) -> int:
    """Return a descriptor of a regular file below `root` without following a link in any component below it."""
    with open_parent(root, path) as parent:
        return open_regular(path, flags, dir_fd=parent)


def read_below(root: Path, path: Path, bytes_max: int | None = None) -> bytes | None:
    """Return the bytes of a file below `root`; None if it, or a directory above it, does not exist.

    Raise `StoreLinkError` if a component below `root` is a link, or the file is not a regular one; a large file as in
    `read_regular`.
    """
    try:
        return _read_all(path, open_below(root, path, os.O_RDONLY), bytes_max)
    except FileNotFoundError:
        return None


@contextmanager
def open_parent(root: Path, path: Path) -> Iterator[int]:
    """Yield a descriptor of the directory of `path`, reached from `root` one component at a time without links.

    `root` itself may be a link: the operator has named it.
    """
    names = parts_below(root, path)[:-1]
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    walked = root
    try:
        for name in names:
            walked /= name
            descriptor = _step(walked, name, descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _step(walked: Path, name: str, parent: int) -> int:
    """Open a directory in `parent`; closes `parent` only if that succeeds."""
    try:
        descriptor = os.open(name, _WALK, dir_fd=parent)
    except OSError as error:
        # Linux answers ENOTDIR for a link if both flags are given, other systems ELOOP.
        if error.errno == errno.ELOOP or _is_link(name, parent):
            raise _refusal(walked) from error
        raise
    os.close(parent)
    return descriptor


def _is_link(name: str, parent: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False


def parts_below(root: Path, path: Path) -> tuple[str, ...]:
    """Return the components of `path` below `root`; raise `StoreLayoutError` if it is not below it."""
    for above, below in ((root, path), (root.absolute(), path.absolute())):
        if below.is_relative_to(above):
            parts = below.relative_to(above).parts
            if parts and ".." not in parts:
                return parts
    raise StoreLayoutError(f"{path} is not below {root}, and nothing else is opened there")


def _read_all(path: Path, descriptor: int, bytes_max: int | None) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        if bytes_max is not None:
            return file.read(bytes_max)
        # The length first: a sparse file of a terabyte takes no room in an archive.
        check_size(path, os.fstat(descriptor).st_size)
        return file.read(WHOLE_FILE_BYTES_MAX)


def check_size(path: Path, size_bytes: int) -> None:
    """Raise `StoreLayoutError` for a file that no table, journal or checkpoint is as large as."""
    if size_bytes > WHOLE_FILE_BYTES_MAX:
        raise StoreLayoutError(
            f"{path} has {size_bytes} bytes, and at most {WHOLE_FILE_BYTES_MAX} are read at once: no broker writes"
            " such a file; move it out of the store"
        )


def _check_regular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise _refusal(path)


def _refusal(path: Path) -> StoreLinkError:
    try:
        target = f"a link to {path.readlink()}"
    except OSError:
        target = "not a regular file"
    return StoreLinkError(
        f"{path} is {target}, and nothing but files and directories is opened in a store: put the file itself there,"
        " or remove the entry"
    )
