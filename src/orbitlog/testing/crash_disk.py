"""Crash disk: an in-memory disk that can lose power, fail a sync or fill up at any step.

It implements `storefiles.disk.Disk`; pass it to `MessageStore.open`. Every change is a numbered step:

    disk = CrashDisk()
    disk.cut_at = 57                 # step 57 and all later ones raise PowerCut
    ...
    image = disk.crash(seed=1)       # one of the possible disks after the power cut

`crash` can be called at any time, also without a power cut. `on_step` is called before each step, which is the cheapest
way to examine every state of a run. `crash_images` defines the possible states.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

from orbitlog.errors import StoreLocked
from orbitlog.storefiles.disk import Bytes, DirectoryEntry, DiskUsage, FileLock, MappedFile, disk_errors
from orbitlog.testing.crash_images import PAGE_BYTES, Directory, Folder, Gone, Inode, Survival

_TOTAL_BYTES = 1 << 40
_TEMPORARY = ".orbitlog-new"


class PowerCut(BaseException):
    """The power was cut: the disk no longer changes. A BaseException, so that no error handler catches it."""


class CrashFile:
    """A mapped file on a `CrashDisk`."""

    def __init__(self, disk: CrashDisk, path: Path, inode: Inode, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._writable = writable
        self._is_open = True
        disk.open_files += 1
        disk.open_files_most = max(disk.open_files_most, disk.open_files)

    @property
    def size_bytes(self) -> int:
        return len(self._inode.content)

    def read(self, position: int, count: int) -> bytes:
        assert self._is_open, f"{self._path} is closed"
        return bytes(self._inode.content[position : position + count])

    def view(self) -> memoryview:
        assert self._is_open, f"{self._path} is closed"
        return memoryview(self._inode.content).toreadonly()

    def write(self, position: int, data: Bytes) -> None:
        stop = position + len(data)
        self._check_writable(position, stop)
        with self._disk.step(f"write {self._path} {position}-{stop}"):
            self._inode.content[position:stop] = data
            self._inode.note_written(position, stop)

    def write_many(self, position: int, data: bytes) -> None:
        self.write(position, data)

    def edit(self, start: int, stop: int) -> memoryview:
        self._check_writable(start, stop)
        with self._disk.step(f"edit {self._path} {start}-{stop}"):
            self._inode.note_written(start, stop)
        view = memoryview(self._inode.content)[start:stop]
        self._disk.open_edits.append((view, self._inode, start, stop))
        return view

    def _check_writable(self, start: int, stop: int) -> None:
        assert self._is_open and self._writable, f"{self._path} is not open for writing"
        assert 0 <= start <= stop <= self.size_bytes, f"{self._path} has no bytes {start} to {stop}"
        missing = set(self._inode.pages(start, stop)) - self._inode.allocated
        # With a real map, a full disk would kill the process with SIGBUS.
        assert not missing, f"{self._path}: bytes {start} to {stop} are written before they are allocated"

    def allocate(self, start: int, stop: int) -> None:
        with self._disk.step(f"allocate {self._path} {start}-{stop}"), disk_errors(f"growing {self._path}"):
            self._disk.take_space()
            self._inode.allocated.update(self._inode.pages(start, stop))

    def fetch(self, start: int, stop: int) -> None:
        """Do nothing: the content is in memory."""

    def expect_scattered(self) -> None:
        """Do nothing: the content is in memory."""

    def data_end(self) -> int:
        return min(max(self._inode.allocated, default=-1) * PAGE_BYTES + PAGE_BYTES, self.size_bytes)

    def sync(self) -> None:
        with self._disk.step(f"sync {self._path}"):
            # Must hold even if another thread closes it concurrently: its descriptor could already be another file's.
            assert self._is_open, f"{self._path} is closed"
            if self._disk.sync_fails():
                self._inode.fail_sync()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._inode.sync()

    def close(self) -> None:
        assert self._is_open, f"{self._path} is closed twice"
        self._is_open = False
        self._disk.open_files -= 1


class CrashLock:
    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


class CrashDisk:
    """An in-memory disk; `cut_at`, `sync_fails_at` and `full_from` are step numbers, None for never."""

    def __init__(self) -> None:
        self.steps = 0
        self.cut_at: int | None = None
        self.sync_fails_at: int | None = None
        self.full_from: int | None = None
        self.on_step: Callable[[], None] | None = None
        self.last_step = ""
        self.open_files = self.open_files_most = 0
        self.open_edits: list[tuple[memoryview, Inode, int, int]] = []
        self._directories = {Path("/"): Directory(), Path(): Directory()}
        self._locked: set[Path] = set()

    @classmethod
    def of_files(cls, files: Mapping[Path, bytes]) -> CrashDisk:
        """Return a disk with these files, all durable."""
        disk = cls()
        for path, content in sorted(files.items()):
            disk.make_directory(path.parent)
            disk._directories[path.parent].change({path.name: Inode.of_durable(content)})
            disk._directories[path.parent].sync()
        disk.steps = 0
        return disk

    def files(self) -> dict[Path, bytes]:
        """Return the current content of every file."""
        self._settle()
        return {
            directory / name: bytes(entry.content)
            for directory, names in sorted(self._directories.items())
            for name, entry in sorted(names.entries.items())
            if isinstance(entry, Inode)
        }

    # Steps and faults

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Count one change of the disk; raise `PowerCut` if the power is off."""
        self._settle()
        if self.on_step is not None:
            self.on_step()
        if self.cut_at is not None and self.steps >= self.cut_at:
            raise PowerCut(f"before step {self.steps}: {what}")
        self.steps += 1
        self.last_step = what
        yield

    def _settle(self) -> None:
        """Record writes through views of `edit`, and forget released views."""
        for _, inode, start, stop in self.open_edits:
            inode.note_written(start, stop)
        if self.open_edits:
            self.open_edits = [edit for edit in self.open_edits if not _is_released(edit[0])]

    def take_space(self) -> None:
        if self.full_from is not None and self.steps > self.full_from:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync_fails(self) -> bool:
        """Return whether this sync fails; only one does."""
        if self.sync_fails_at is None or self.steps <= self.sync_fails_at:
            return False
        self.sync_fails_at = None
        return True

    def crash(self, seed: int) -> CrashDisk:
        """Return a possible disk after a power cut now; the seed determines it."""
        chance = Random(seed)  # noqa: S311 (crash images, not secrets)
        survival = chance.choice([Survival.NOTHING, Survival.EVERYTHING, *[Survival.ANY] * 6])
        self._settle()
        image = CrashDisk()
        images: dict[int, Inode] = {}
        for path, directory in sorted(self._directories.items()):
            if path != path.parent and path.name not in image._names(path.parent):
                continue  # the directory itself did not survive
            names = directory.crashed(chance, survival)
            for name, entry in sorted(names.items()):
                if isinstance(entry, Inode):
                    names[name] = images.setdefault(id(entry), entry.crashed(chance, survival))
            image._directories[path] = Directory(dict(names), names)
        return image

    def kill(self) -> CrashDisk:
        """Return the disk after the process alone was killed: nothing is lost, and unsynced data stays unsynced."""
        self._settle()
        image = CrashDisk()
        copies: dict[int, Inode] = {}

        def copied(entries: Mapping[str, Inode | Folder | Gone]) -> dict[str, Inode | Folder | Gone]:
            return {
                name: copies.setdefault(id(entry), entry.copy()) if isinstance(entry, Inode) else entry
                for name, entry in entries.items()
            }

        for path, directory in self._directories.items():
            copy = Directory()
            copy.change(copied(directory.durable))
            copy.sync()
            for change in directory.pending:
                copy.change(copied(change))
            image._directories[path] = copy
        return image

    # The file system

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        return [
            DirectoryEntry(name, len(entry.content), False)
            if isinstance(entry, Inode)
            else DirectoryEntry(name, 0, True)
            for name, entry in sorted(self._names(path).items())
        ]

    def make_directory(self, path: Path, *, durable: bool = True) -> list[Path]:
        if path in self._directories:
            return []
        unsynced = self.make_directory(path.parent, durable=durable)
        with self.step(f"make {path}"), disk_errors(f"making {path}"):
            self.take_space()
            self._directories[path.parent].change({path.name: Folder.FOLDER})
            self._directories[path] = Directory()
        if not durable:
            return [*unsynced, path.parent]
        with disk_errors(f"making {path}"):
            self.sync_directory(path.parent)
        return []

    def create_file(self, path: Path, size_bytes: int) -> MappedFile:
        with disk_errors(f"making {path}"):
            if path.name in self._parent(path).entries:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            inode = self._create(path, size_bytes)
        return CrashFile(self, path, inode, writable=True)

    def _create(self, path: Path, size_bytes: int) -> Inode:
        with self.step(f"create {path}"):
            self.take_space()
            inode = Inode.of_zeros(size_bytes)
            inode.modified_ms = self.steps
            self._parent(path).change({path.name: inode})
        return inode

    def open_file(self, path: Path, *, writable: bool) -> MappedFile:
        with disk_errors(f"opening {path}"):
            return CrashFile(self, path, self._inode(path), writable=writable)

    def read_file(self, path: Path) -> bytes | None:
        entry = self._names(path.parent).get(path.name)
        return bytes(entry.content) if isinstance(entry, Inode) else None

    def replace_file(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + _TEMPORARY)
        with disk_errors(f"writing {path}"):
            inode = self._create(temporary, len(data))
            with self.step(f"write {temporary}"):
                self.take_space()
                inode.content[:] = data
                inode.note_written(0, len(data))
            mapped = CrashFile(self, temporary, inode, writable=True)
            mapped.sync()
            mapped.close()
            self.rename_file(temporary, path.name)
            self.sync_directory(path.parent)

    def remove_file(self, path: Path) -> None:
        if path.name in self._names(path.parent):
            with self.step(f"remove {path}"):
                self._parent(path).change({path.name: Gone.GONE})

    def rename_file(self, path: Path, name: str) -> None:
        with disk_errors(f"renaming {path}"):
            inode = self._inode(path)
            with self.step(f"rename {path} to {name}"):
                self._parent(path).change({path.name: Gone.GONE, name: inode})

    def sync_directory(self, path: Path) -> None:
        directory = self._parent(path / "any")
        with self.step(f"sync directory {path}"):
            if self.sync_fails():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            directory.sync()

    def lock_file(self, path: Path, content: bytes) -> FileLock:
        if path in self._locked:
            raise StoreLocked(f"{path.parent} is in use by another broker; stop it first, or open read-only")
        if path.name not in self._names(path.parent):
            with disk_errors(f"locking {path}"):
                inode = self._create(path, len(content))
            inode.content[:] = content
            inode.note_written(0, len(content))
        self._locked.add(path)
        return CrashLock(self._locked, path)

    def lock_directory(self, path: Path) -> FileLock:
        if path in self._locked:
            raise StoreLocked(f"CommitLog directory {path} is in use by another broker; stop it first")
        self._parent(path / "any")
        self._locked.add(path)
        return CrashLock(self._locked, path)

    def lock_holder(self, path: Path) -> int | None:
        return os.getpid() if path in self._locked else None

    def modified_ms(self, path: Path) -> int:
        return self._inode(path).modified_ms

    def file_system(self, path: Path) -> int:
        return 1

    def usage(self, path: Path) -> DiskUsage:
        is_full = self.full_from is not None and self.steps > self.full_from
        return DiskUsage(_TOTAL_BYTES, 0 if is_full else _TOTAL_BYTES // 2)

    def open_files_max(self) -> int:
        return 1 << 16

    def _names(self, path: Path) -> Mapping[str, Inode | Folder]:
        directory = self._directories.get(path)
        return {} if directory is None else directory.entries

    def _parent(self, path: Path) -> Directory:
        directory = self._directories.get(path.parent)
        if directory is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return directory

    def _inode(self, path: Path) -> Inode:
        entry = self._parent(path).entries.get(path.name)
        if not isinstance(entry, Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return entry


def _is_released(view: memoryview) -> bool:
    try:
        return view.nbytes < 0
    except ValueError:
        return True
