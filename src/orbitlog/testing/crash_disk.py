"""A disk in memory whose power can be cut between any two steps, or that fails or fills up at one of them.

It is a `storefiles.disk.Disk`; give it to `MessageStore.open`. Everything that changes it is a step with a number:

    disk = CrashDisk()
    disk.cut_at = 57                 # the next step with that number raises PowerCut, as does every later one
    ...
    found = disk.crash(seed=1)       # one of the possible disks after the power cut

`crash` may be called at any time, also without a power cut; `on_step` is called before each step, which is the cheapest
way to examine every state of a run. `crash_images` describes the possible images.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from random import Random

from orbitlog.errors import StoreLocked
from orbitlog.storefiles.disk import Bytes, DirectoryEntry, DiskUsage, FileLock, MappedFile, PlainFile, disk_errors
from orbitlog.testing.crash_images import PAGE_BYTES, Directory, Entry, Gone, Inode, Survival, kept_changes

_TOTAL_BYTES = 1 << 40
_TEMPORARY = ".orbitlog-new"


class PowerCut(BaseException):
    """The power is cut: nothing more happens to this disk, and no error handler may catch it."""


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
        self._disk.views.append((view, self._inode, start, stop))
        return view

    def _check_writable(self, start: int, stop: int) -> None:
        assert self._is_open and self._writable, f"{self._path} is not open for writing"
        assert 0 <= start <= stop <= self.size_bytes, f"{self._path} has no bytes {start} to {stop}"
        missing = set(self._inode.pages(start, stop)) - self._inode.allocated
        # With a real map the process would be killed for it (SIGBUS) when the disk is full.
        assert not missing, f"{self._path}: bytes {start} to {stop} are written before they are allocated"

    def allocate(self, start: int, stop: int) -> None:
        with self._disk.step(f"allocate {self._path} {start}-{stop}"), disk_errors(f"growing {self._path}"):
            self._disk.take_space()
            self._inode.allocated.update(self._inode.pages(start, stop))

    def fetch(self, start: int, stop: int) -> None:
        """Does nothing: everything is in memory."""

    def expect_scattered(self) -> None:
        """Does nothing: everything is in memory."""

    def data_end(self) -> int:
        return min(max(self._inode.allocated, default=-1) * PAGE_BYTES + PAGE_BYTES, self.size_bytes)

    def sync(self) -> None:
        with self._disk.step(f"sync {self._path}"):
            # Also if it was closed by another thread just now: its descriptor may be another file's already.
            assert self._is_open, f"{self._path} is closed"
            self._disk.sync_inode(self._inode)

    def close(self) -> None:
        assert self._is_open, f"{self._path} is closed twice"
        self._is_open = False
        self._disk.open_files -= 1


class CrashPlainFile:
    """A file on a `CrashDisk` that is open for writes by position."""

    def __init__(self, disk: CrashDisk, path: Path, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def write(self, position: int, data: Bytes) -> None:
        raw = memoryview(data).cast("B")
        stop = position + len(raw)
        with self._disk.step(f"write {self._path} {position}-{stop}"):
            self._disk.take_space()
            if stop > len(self._inode.content):
                self._inode.resize(stop)
            self._inode.content[position:stop] = raw
            self._inode.allocated.update(self._inode.pages(position, stop))
            self._inode.note_written(position, stop)

    def resize(self, size_bytes: int) -> None:
        with self._disk.step(f"resize {self._path} to {size_bytes}"):
            self._inode.resize(size_bytes)

    def start_writeback(self, position: int, size_bytes: int) -> None:
        """Does nothing: pages may reach the disk at any time."""

    def set_modified(self, modified_ns: int) -> None:
        self._inode.modified_ms = modified_ns // 1_000_000

    def sync(self) -> None:
        with self._disk.step(f"sync {self._path}"):
            self._disk.sync_inode(self._inode)

    def close(self) -> None:
        """Does nothing: no descriptor is open."""


class CrashLock:
    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


class CrashDisk:
    """See the module. `cut_at`, `sync_fails_at` and `full_from` are step numbers, None for never."""

    def __init__(self) -> None:
        self.steps = 0
        self.cut_at: int | None = None
        self.sync_fails_at: int | None = None
        self.full_from: int | None = None
        self.on_step: Callable[[], None] | None = None
        self.last_step = ""
        self.open_files = self.open_files_most = 0
        self.views: list[tuple[memoryview, Inode, int, int]] = []
        self._roots = {Path("/"): Directory(), Path(): Directory()}
        self._known: dict[Path, Directory] = {}  # paths that were looked up, until a directory is moved or removed
        self._locked: set[Path] = set()

    @classmethod
    def of_files(cls, files: Mapping[Path, bytes]) -> CrashDisk:
        """Create a disk with these files, all of them durable."""
        disk = cls()
        for path, content in sorted(files.items()):
            disk.make_directory(path.parent)
            disk._parent(path).change({path.name: Inode.of_durable(content)})
            disk._parent(path).sync()
        disk.steps = 0
        return disk

    def files(self) -> dict[Path, bytes]:
        """Return the current content of every file."""
        self._settle()
        return {
            directory / name: bytes(entry.content)
            for directory, names in sorted(self.directories().items())
            for name, entry in sorted(names.items())
            if isinstance(entry, Inode)
        }

    def directories(self) -> dict[Path, Mapping[str, Entry]]:
        """Return every directory with its entries."""
        found: dict[Path, Mapping[str, Entry]] = {}
        todo = list(self._roots.items())
        while todo:
            path, directory = todo.pop()
            found[path] = directory.entries
            todo += [(path / name, entry) for name, entry in directory.entries.items() if isinstance(entry, Directory)]
        return found

    # Steps and faults

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Wrap every change of the disk."""
        self._settle()
        if self.on_step is not None:
            self.on_step()
        if self.cut_at is not None and self.steps >= self.cut_at:
            raise PowerCut(f"before step {self.steps}: {what}")
        self.steps += 1
        self.last_step = what
        yield

    def _settle(self) -> None:
        """Note bytes written through views from `edit`; forget views that were released."""
        for _, inode, start, stop in self.views:
            inode.note_written(start, stop)
        if self.views:
            self.views = [entry for entry in self.views if not _is_released(entry[0])]

    def take_space(self) -> None:
        if self.full_from is not None and self.steps > self.full_from:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync_inode(self, inode: Inode) -> None:
        """Sync the content of a file; raise `OSError` if this sync is to fail."""
        if self.sync_fails():
            inode.fail_sync()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        inode.sync()

    def sync_fails(self) -> bool:
        """Return whether this sync fails."""
        if self.sync_fails_at is None or self.steps <= self.sync_fails_at:
            return False
        self.sync_fails_at = None
        return True

    def crash(self, seed: int) -> CrashDisk:
        """Return a disk as it may be after a power cut now; the same for the same seed."""
        chance = Random(seed)  # noqa: S311 (crash images, not secrets)
        survival = chance.choice([Survival.NOTHING, Survival.EVERYTHING, *[Survival.ANY] * 6])
        self._settle()
        kept = kept_changes(self._roots.values(), chance, survival)
        images: dict[int, Inode] = {}

        def crashed(directory: Directory) -> Directory:
            names: dict[str, Entry] = {}
            for name, entry in sorted(directory.crashed(kept[id(directory)]).items()):
                if isinstance(entry, Directory):
                    names[name] = crashed(entry)
                else:
                    if id(entry) not in images:
                        images[id(entry)] = entry.crashed(chance, survival)
                    names[name] = images[id(entry)]
            return Directory(dict(names), names)

        found = CrashDisk()
        found._roots = {path: crashed(directory) for path, directory in self._roots.items()}
        return found

    def kill(self) -> CrashDisk:
        """Return the disk after the process alone was killed: all writes are kept, as durable as they were."""
        self._settle()
        found = CrashDisk()
        found._roots = deepcopy(self._roots)
        return found

    # The file system

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        return [
            DirectoryEntry(name, len(entry.content), False)
            if isinstance(entry, Inode)
            else DirectoryEntry(name, 0, True)
            for name, entry in sorted(self._names(path).items())
        ]

    def make_directory(self, path: Path, *, durable: bool = True) -> list[Path]:
        if self._directory(path) is not None:
            return []
        unsynced = self.make_directory(path.parent, durable=durable)
        with self.step(f"make {path}"), disk_errors(f"making {path}"):
            self.take_space()
            self._parent(path).change({path.name: Directory()})
        if not durable:
            return [*unsynced, path.parent]
        with disk_errors(f"making {path}"):
            self.sync_directory(path.parent)
        return []

    def create_file(self, path: Path, size_bytes: int) -> MappedFile:
        with disk_errors(f"making {path}"):
            self._refuse_existing(path)
            inode = self._create(path, size_bytes)
        return CrashFile(self, path, inode, writable=True)

    def _refuse_existing(self, path: Path) -> None:
        if path.name in self._parent(path).entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

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

    def create_plain(self, path: Path) -> PlainFile:
        with disk_errors(f"creating {path}"):
            self._refuse_existing(path)
            return CrashPlainFile(self, path, self._create(path, 0))

    def open_plain(self, path: Path) -> PlainFile:
        with disk_errors(f"opening {path}"):
            return CrashPlainFile(self, path, self._inode(path))

    def move(self, path: Path, target: Path) -> None:
        with disk_errors(f"renaming {path} to {target}"):
            source, parent = self._parent(path), self._parent(target)
            entry = source.entries.get(path.name)
            if entry is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            with self.step(f"move {path} to {target}"):
                if source is parent:
                    source.change({path.name: Gone.GONE, target.name: entry})
                else:
                    taken, given = source.change({path.name: Gone.GONE}), parent.change({target.name: entry})
                    taken.partner, given.partner = (parent, given), (source, taken)
                self._known.clear()

    def link_file(self, path: Path, target: Path) -> None:
        with disk_errors(f"linking {path} as {target}"), self.step(f"link {path} as {target}"):
            self._parent(target).change({target.name: self._inode(path)})

    def remove_directory(self, path: Path) -> None:
        with disk_errors(f"removing {path}"):
            if self._names(path):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            with self.step(f"remove {path}"):
                self._parent(path).change({path.name: Gone.GONE})
                self._known.clear()

    def remove_tree(self, path: Path) -> None:
        if self._directory(path) is None:
            return
        for name, entry in sorted(self._names(path).items()):
            if isinstance(entry, Directory):
                self.remove_tree(path / name)
            else:
                self.remove_file(path / name)
        self.remove_directory(path)

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

    def _directory(self, path: Path) -> Directory | None:
        known = self._roots.get(path) or self._known.get(path)
        if known is None and path != path.parent:
            parent = self._directory(path.parent)
            entry = None if parent is None else parent.entries.get(path.name)
            if isinstance(entry, Directory):
                known = self._known[path] = entry
        return known

    def _names(self, path: Path) -> Mapping[str, Entry]:
        directory = self._directory(path)
        return {} if directory is None else directory.entries

    def _parent(self, path: Path) -> Directory:
        directory = self._directory(path.parent)
        if directory is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return directory

    def _inode(self, path: Path) -> Inode:
        entry = self._parent(path).entries.get(path.name)
        if not isinstance(entry, Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return entry


def _is_released(lent: memoryview) -> bool:
    try:
        return lent.nbytes < 0
    except ValueError:
        return True
