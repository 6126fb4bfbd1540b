"""Disk: the file system operations with which stores are changed.

`RealDisk` uses the operating system; `testing.crash_disk` keeps files in memory and can cut the power between any two
steps. Nothing else may change a file of a store. Two promises hold everywhere: a byte written through a map has blocks
that were allocated before (`allocate`), so a full disk is an `OSError` in a call that expects one and never a signal;
and a small file is replaced completely or not at all (`replace_file`).
"""

from __future__ import annotations

import errno
import functools
import mmap
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from orbitlog.errors import DiskFull, StoreError, StoreFileGone, StoreLocked
from orbitlog.settings.atomic_file import replace_file, sync_directory
from orbitlog.storefiles.confined.regular_files import DIRECTORY_MODE, FILE_MODE, open_regular, read_regular
from orbitlog.storefiles.mapped_view import end_of_data

Bytes = bytes | bytearray | memoryview
_IS_LINUX = sys.platform == "linux"
_HAS_FDATASYNC = hasattr(os, "fdatasync")
_OPEN_FILES_ENOUGH = 1 << 20
_FETCH_BYTES = 256 * 1024
_SYNC_FILE_RANGE_WRITE = 2


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    name: str
    size_bytes: int
    is_directory: bool
    is_link: bool = False


@dataclass(frozen=True, slots=True)
class DiskUsage:
    total_bytes: int
    free_bytes: int

    @property
    def used_ratio(self) -> float:
        return 1 - self.free_bytes / self.total_bytes if self.total_bytes else 0.0


class MappedFile(Protocol):
    """A file of fixed size whose bytes can be read and written in place."""

    @property
    def size_bytes(self) -> int: ...

    def read(self, position: int, count: int) -> bytes:
        """Copy bytes out; fewer at the end of the file."""
        ...

    def view(self) -> memoryview:
        """Return the bytes for reading; release the view soon, it keeps the file from being closed."""
        ...

    def write(self, position: int, data: Bytes) -> None:
        """Copy bytes in; they must be allocated."""
        ...

    def write_many(self, position: int, data: bytes) -> None:
        """The same for dozens of kilobytes, for which a system call costs less than page faults."""
        ...

    def edit(self, start: int, stop: int) -> memoryview:
        """Return a range for writing; release it before anything else is done to the file."""
        ...

    def allocate(self, start: int, stop: int) -> None:
        """Allocate blocks for a range, or raise `DiskFull`; existing bytes stay."""
        ...

    def expect_scattered(self) -> None:
        """Advise the kernel that reads are scattered: no read-ahead."""
        ...

    def fetch(self, start: int, stop: int) -> None:
        """Read a range into the page cache; may be called in any thread, even after `close`."""
        ...

    def data_end(self) -> int:
        """Return a position past which nothing was ever written, according to the file system."""
        ...

    def sync(self) -> None:
        """Return when all written bytes are durable; may be called in any thread."""
        ...

    def close(self) -> None: ...


class PlainFile(Protocol):
    """A file that is written by position and not through a map: a staged file, or one that is repaired in place."""

    def write(self, position: int, data: Bytes) -> None:
        """Write bytes; the file grows if it ends before them."""
        ...

    def resize(self, size_bytes: int) -> None:
        """Cut the file, or extend it with a hole."""
        ...

    def start_writeback(self, position: int, size_bytes: int) -> None:
        """Start to write a range to the device without waiting; makes nothing durable."""
        ...

    def set_modified(self, modified_ns: int) -> None:
        """Set the modification time, by which retention and Java's search by timestamp choose files."""
        ...

    def sync(self) -> None:
        """Make contents, size and modification time durable; may be called in any thread."""
        ...

    def close(self) -> None: ...


class FileLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """The file system as the store sees it."""

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        """List a directory by name; empty if it does not exist."""
        ...

    def make_directory(self, path: Path, *, durable: bool = True) -> list[Path]:
        """Create a directory and its parents; if not `durable`, returns the directories to sync."""
        ...

    def create_file(self, path: Path, size_bytes: int) -> MappedFile:
        """Create a file of that size, full of zeros, and map it; its name is durable after `sync_directory`."""
        ...

    def open_file(self, path: Path, *, writable: bool) -> MappedFile: ...

    def read_file(self, path: Path) -> bytes | None:
        """Return the bytes of a small file; None if it does not exist."""
        ...

    def replace_file(self, path: Path, data: bytes) -> None:
        """Replace a small file durably: readers and crashes find the old one or the new one."""
        ...

    def remove_file(self, path: Path) -> None:
        """Remove a file if it exists; durable after `sync_directory`."""
        ...

    def rename_file(self, path: Path, name: str) -> None:
        """Give a file another name in its directory; durable after `sync_directory`."""
        ...

    def create_plain(self, path: Path) -> PlainFile:
        """Create a new, empty file for writes by position; its name is durable after `sync_directory`."""
        ...

    def open_plain(self, path: Path) -> PlainFile:
        """Open an existing file for writes by position."""
        ...

    def move(self, path: Path, target: Path) -> None:
        """Rename a file, directory or link, also into another directory; replaces a file that has the name.

        A crash leaves it under one of both names. Durable after `sync_directory` of both parents.
        """
        ...

    def link_file(self, path: Path, target: Path) -> None:
        """Give a file a second name; durable after `sync_directory`."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; durable after `sync_directory` of its parent."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and everything in it, if it exists and is not a link."""
        ...

    def sync_directory(self, path: Path) -> None: ...

    def lock_file(self, path: Path, content: bytes) -> FileLock:
        """Take the store's lock or raise `StoreLocked`."""
        ...

    def lock_directory(self, path: Path) -> FileLock:
        """Keep other Orbitlog processes from writing to a directory, or raise `StoreLocked`; creates no file in it."""
        ...

    def lock_holder(self, path: Path) -> int | None:
        """Return the id of the process that has that lock, 0 if it is unknown; None if it is free."""
        ...

    def modified_ms(self, path: Path) -> int: ...

    def file_system(self, path: Path) -> int:
        """Return a number that two paths share if they are on one file system."""
        ...

    def usage(self, path: Path) -> DiskUsage: ...

    def open_files_max(self) -> int:
        """Return how many files may be open at a time; a mapped one counts for two."""
        ...


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Turn an `OSError` into the store's errors."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"{what}: no space left; free some: a broker then continues, a command is run again"
            ) from error
        if error.errno == errno.ENOENT:
            raise StoreFileGone(f"{what}: {error.strerror}") from error
        raise StoreError(f"{what}: {error.strerror or error}") from error


class RealMappedFile:
    """A memory map of a whole file."""

    __slots__ = ("_descriptor", "_map", "_path", "_writable", "size_bytes")

    def __init__(self, path: Path, descriptor: int, size_bytes: int, *, writable: bool) -> None:
        self._path = path
        self._descriptor = descriptor
        self._writable = writable
        self.size_bytes = size_bytes
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self._map = mmap.mmap(descriptor, size_bytes, access=access)

    def read(self, position: int, count: int) -> bytes:
        return self._map[position : position + count]

    def view(self) -> memoryview:
        return memoryview(self._map).toreadonly()

    def write(self, position: int, data: Bytes) -> None:
        self._map[position : position + len(data)] = bytes(data) if isinstance(data, memoryview) else data

    def write_many(self, position: int, data: bytes) -> None:
        # On Linux a call and the map use the same pages. If the call fails, the write through the map works or raises.
        if _IS_LINUX and position + len(data) <= self.size_bytes:
            with suppress(OSError):
                if os.pwrite(self._descriptor, data, position) == len(data):
                    return
        self.write(position, data)

    def edit(self, start: int, stop: int) -> memoryview:
        return memoryview(self._map)[start:stop]

    def allocate(self, start: int, stop: int) -> None:
        with disk_errors(f"growing {self._path}"):
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._descriptor, start, stop - start)
            else:
                _write_back(self._descriptor, start, stop)

    def expect_scattered(self) -> None:
        if hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)

    def fetch(self, start: int, stop: int) -> None:
        # Reads into a buffer that is dropped: touching the map would hold the interpreter's lock during the I/O.
        if not hasattr(os, "preadv"):
            return
        room = [bytearray(_FETCH_BYTES)]
        with suppress(OSError):
            while start < stop and (count := os.preadv(self._descriptor, room, start)) > 0:
                start += count

    def data_end(self) -> int:
        return end_of_data(self._descriptor, self.size_bytes)

    def sync(self) -> None:
        # fdatasync and not msync: the latter holds the interpreter's lock while the disk works.
        if _HAS_FDATASYNC:
            os.fdatasync(self._descriptor)
        else:
            os.fsync(self._descriptor)

    def close(self) -> None:
        self._map.close()
        # Cleared first: the number may soon be another file's, which must not be written to.
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


class RealPlainFile:
    """A file that is open for `pwrite`."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, position: int, data: Bytes) -> None:
        view = memoryview(data).cast("B")
        while len(view):  # a write may take only a part of the bytes
            written = os.pwrite(self._descriptor, view, position)
            if written == 0:
                raise DiskFull("a write was refused without an error")
            view = view[written:]
            position += written

    def resize(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def start_writeback(self, position: int, size_bytes: int) -> None:
        start_writeback(self._descriptor, position, size_bytes)

    def set_modified(self, modified_ns: int) -> None:
        os.utime(self._descriptor, ns=(modified_ns, modified_ns))

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def start_writeback(descriptor: int, position: int, size_bytes: int) -> None:
    """Start to write a range to the device without waiting; makes nothing durable.

    A sync at the end then finds most bytes written, while the device would have been idle meanwhile. Systems without
    such a call write when they like.
    """
    start = _sync_file_range()
    if start is not None:
        start(descriptor, position, size_bytes, _SYNC_FILE_RANGE_WRITE)


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    import ctypes

    try:
        found = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    found.restype = ctypes.c_int
    return cast("Callable[[int, int, int, int], int]", found)


def _write_back(descriptor: int, start: int, stop: int) -> None:
    """Allocate without a system call for it: write the existing bytes, and zeros after them."""
    while start < stop:
        chunk = os.pread(descriptor, min(1 << 20, stop - start), start) or bytes(min(1 << 20, stop - start))
        start += os.pwrite(descriptor, chunk, start)


# A record lock does not keep its own process out, and closing any other descriptor of the file gives it up.
_LOCKED_HERE: set[Path] = set()


# struct flock, for queries about a lock.
_FLOCK = struct.Struct("hhqqi4x" if _IS_LINUX else "qqihh")


def _asked(lock_type: int) -> bytes:
    return _FLOCK.pack(lock_type, os.SEEK_SET, 0, 1, 0) if _IS_LINUX else _FLOCK.pack(0, 1, 0, lock_type, os.SEEK_SET)


def _holder(answer: bytes, unlocked: int) -> int | None:
    fields = _FLOCK.unpack(answer)
    lock_type, process_id = (fields[0], fields[4]) if _IS_LINUX else (fields[3], fields[2])
    # One in another container has no id here, and shows as 0 or less.
    return None if lock_type == unlocked else max(int(process_id), 0)


class RealFileLock:
    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        _LOCKED_HERE.add(path)

    def release(self) -> None:
        _LOCKED_HERE.discard(self._path)
        os.close(self._descriptor)


class DirectoryLock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


def _describe(entry: os.DirEntry[str]) -> DirectoryEntry | None:
    """Return an entry; None if it was removed meanwhile, which must not end the listing.

    A link is an empty file, so that no directory outside the store is listed, and a reader that opens it is refused.
    """
    try:
        if entry.is_symlink():
            entry.stat()
            return DirectoryEntry(entry.name, 0, is_directory=False, is_link=True)
        return DirectoryEntry(entry.name, 0 if entry.is_dir() else entry.stat().st_size, entry.is_dir())
    except FileNotFoundError:
        return None


class RealDisk:
    """The operating system's file system."""

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        try:
            with os.scandir(path) as entries:
                found = [_describe(entry) for entry in entries]
        except FileNotFoundError:
            return []
        return sorted((entry for entry in found if entry is not None), key=lambda entry: entry.name)

    def make_directory(self, path: Path, *, durable: bool = True) -> list[Path]:
        if path.is_dir():
            return []
        unsynced = self.make_directory(path.parent, durable=durable)
        with disk_errors(f"creating {path}"):
            path.mkdir(DIRECTORY_MODE, exist_ok=True)
            if durable:
                self.sync_directory(path.parent)
        return [] if durable else [*unsynced, path.parent]

    def create_file(self, path: Path, size_bytes: int) -> MappedFile:
        with disk_errors(f"creating {path}"):
            descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try:
                os.ftruncate(descriptor, size_bytes)
                return RealMappedFile(path, descriptor, size_bytes, writable=True)
            except OSError:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise

    def open_file(self, path: Path, *, writable: bool) -> MappedFile:
        with disk_errors(f"opening {path}"):
            descriptor = open_regular(path, os.O_RDWR if writable else os.O_RDONLY)
            try:
                return RealMappedFile(path, descriptor, os.fstat(descriptor).st_size, writable=writable)
            except (OSError, ValueError):
                os.close(descriptor)
                raise

    def read_file(self, path: Path) -> bytes | None:
        try:
            return read_regular(path)
        except FileNotFoundError:
            return None

    def replace_file(self, path: Path, data: bytes) -> None:
        # The same name for every process: the lock keeps others out, and a killed one leaves no more than one file.
        with disk_errors(f"writing {path}"):
            replace_file(path, data, suffix=".orbitlog-new", mode=FILE_MODE, keeps_mode=True)

    def remove_file(self, path: Path) -> None:
        with disk_errors(f"removing {path}"):
            path.unlink(missing_ok=True)

    def rename_file(self, path: Path, name: str) -> None:
        with disk_errors(f"renaming {path}"):
            path.replace(path.with_name(name))

    def create_plain(self, path: Path) -> PlainFile:
        with disk_errors(f"creating {path}"):
            return RealPlainFile(open_regular(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))

    def open_plain(self, path: Path) -> PlainFile:
        with disk_errors(f"opening {path}"):
            return RealPlainFile(open_regular(path, os.O_WRONLY))

    def move(self, path: Path, target: Path) -> None:
        with disk_errors(f"renaming {path} to {target}"):
            path.replace(target)

    def link_file(self, path: Path, target: Path) -> None:
        with disk_errors(f"linking {path} as {target}"):
            target.hardlink_to(path)

    def remove_directory(self, path: Path) -> None:
        with disk_errors(f"removing {path}"):
            path.rmdir()

    def remove_tree(self, path: Path) -> None:
        import shutil

        if path.is_dir() and not path.is_symlink():
            with disk_errors(f"removing {path}"):
                shutil.rmtree(path)

    def sync_directory(self, path: Path) -> None:
        sync_directory(path)

    def lock_file(self, path: Path, content: bytes) -> FileLock:
        import fcntl

        in_use = f"{path.parent} is in use by another broker; stop it first, or open read-only"
        real_path = path.resolve()
        if real_path in _LOCKED_HERE:
            raise StoreLocked(in_use)
        with disk_errors(f"locking {path}"):
            descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            # A record lock, as Java takes it: flock and Java's lock do not see each other.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLocked(in_use) from None
            raise StoreError(f"locking {path}: {error.strerror}") from error
        try:
            with disk_errors(f"locking {path}"):
                os.pwrite(descriptor, content, 0)
        except StoreError:
            os.close(descriptor)
            raise
        return RealFileLock(real_path, descriptor)

    def lock_directory(self, path: Path) -> FileLock:
        import fcntl

        with disk_errors(f"locking {path}"):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # flock, because a record lock needs a file that can be written to, and 4.x refuses a CommitLog directory
            # with a file that is not a segment. Java takes no such lock: this excludes Orbitlog processes only.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreLocked(
                f"CommitLog directory {path} is in use by another broker, with another root; stop it first"
            ) from None
        except OSError as error:
            # A network file system may have no such locks; the lock of the root is the one that Java has as well.
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL):
                os.close(descriptor)
                raise StoreError(f"locking {path}: {error.strerror}") from error
        return DirectoryLock(descriptor)

    def lock_holder(self, path: Path) -> int | None:
        import fcntl

        # First: closing a descriptor of a file that this process has locked would release the lock.
        if path.resolve() in _LOCKED_HERE:
            return os.getpid()
        # A Java broker locks the file that a link points to: its lock is asked for, the file is not read. Nothing waits
        # for the other end of a pipe, and a device is not opened at all.
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                return None
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            with disk_errors(f"asking for the lock of {path}"):
                return _holder(fcntl.fcntl(descriptor, fcntl.F_GETLK, _asked(fcntl.F_WRLCK)), fcntl.F_UNLCK)
        finally:
            os.close(descriptor)

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def file_system(self, path: Path) -> int:
        return path.stat().st_dev

    def usage(self, path: Path) -> DiskUsage:
        found = os.statvfs(path)
        # As df and Java: blocks that are reserved for the administrator do not count.
        total_blocks = found.f_blocks - found.f_bfree + found.f_bavail
        return DiskUsage(total_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def open_files_max(self) -> int:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _OPEN_FILES_ENOUGH if soft == resource.RLIM_INFINITY else soft


def make_link(path: Path, target: Path) -> None:
    """Create `target` as a symbolic link to `path`: temporary directories have links to files that are too large."""
    with disk_errors(f"linking {path} as {target}"):
        target.symlink_to(path)
