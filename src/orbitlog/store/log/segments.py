"""Segments: a log in files of one size, each named after its first byte; CommitLog and every ConsumeQueue are one.

Positions count from the start of the log, even after its first files were deleted. Files are mapped when first used
and allocated in steps ahead of the writer.

The name of a file is durable before anything is written to it, with one exception: with `names_later` a log's first
file and its directories are synced together with its bytes. Otherwise thousands of queues would each wait for four
syncs at their first message.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.errors import StoreError, StoreLayoutError
from orbitlog.formats.store_tree import CONSUMEQUEUE, offset_file_name, parse_offset_file_name
from orbitlog.storefiles.disk import Disk, MappedFile, disk_errors

if TYPE_CHECKING:
    from orbitlog.storefiles.store_paths import StorePaths

_PAGE_BYTES = 4096
_ZEROS = bytes(64 * 1024)


def new_file(disk: Disk, path: Path, size_bytes: int) -> MappedFile:
    """Create a file; its size and name are durable when this returns.

    The size is synced first: after a crash only the last file created can have a name but no size.
    """
    mapped = disk.create_file(path, size_bytes)
    try:
        with disk_errors(f"making {path}"):
            mapped.sync()
            disk.sync_directory(path.parent)
    except StoreError:
        mapped.close()
        disk.remove_file(path)  # the next try needs the name
        raise
    return mapped


def open_log_segments(
    disk: Disk, paths: StorePaths, segment_bytes: int, *, allocate_bytes: int = 0, writable: bool = True
) -> Segments:
    """Return the segments of a CommitLog, in one directory or in several; not loaded yet."""
    if not paths.has_several:
        directory = paths.log_directories[0]
        return Segments(disk, directory, segment_bytes, allocate_bytes=allocate_bytes, writable=writable)
    from orbitlog.store.log.log_segments import SpreadSegments  # few logs are spread

    return SpreadSegments(disk, paths, segment_bytes, allocate_bytes=allocate_bytes, writable=writable)


class Segments:
    """The files of one log in one directory."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        file_bytes: int,
        *,
        allocate_bytes: int,
        writable: bool = True,
        scattered: bool = False,
        names_later: bool = False,
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.file_bytes = file_bytes
        self._allocate_bytes = max(_PAGE_BYTES, allocate_bytes)
        self._writable = writable
        self._scattered = scattered
        self._names_later = names_later
        self._unsynced_directories: list[Path] = []
        self._bases: list[int] = []
        self._files: dict[int, MappedFile] = {}
        self._allocated_to: dict[int, int] = {}
        self._in_use: list[MappedFile] = []
        self._forget_tail()

    def _forget_tail(self) -> None:
        """Forget the cached last file, to which almost every byte is written."""
        self.tail: MappedFile | None = None
        self.tail_base = self.tail_allocated_to = 0

    @property
    def _size_key(self) -> str:
        is_queue = self.directory.parent.parent.name == CONSUMEQUEUE
        return "mappedFileSizeConsumeQueue" if is_queue else "mappedFileSizeCommitLog"

    def load(self, empty_files: list[Path] | None = None) -> None:
        """List the files; raise `StoreLayoutError` if one has another size.

        A crash between creating a file and setting its size leaves an empty last file. It is removed, or added to
        `empty_files` for the caller to remove. A reader may see one that is just being created.
        """
        known = self._list_files()
        if known and known[-1][1] == 0:
            base, _ = known.pop()
            if empty_files is not None:
                empty_files.append(self._path(base))
            elif self._writable:
                self._remove(base)
        for base, size_bytes in known:
            if size_bytes != self.file_bytes:
                raise StoreLayoutError(
                    f"{self._path(base)} has {size_bytes} bytes, but this store's files have"
                    f" {self.file_bytes}; set {self._size_key} to the size it was created with, or inspect it with"
                    " `orbitlog dump`"
                )
            if base % self.file_bytes:
                raise StoreLayoutError(f"{self._path(base)} does not start at a multiple of {self.file_bytes}")
        self._bases = [base for base, _ in known]
        if known:
            self._distrust_names()

    def _list_files(self) -> list[tuple[int, int]]:
        """Return the first byte and the size of each file, in order."""
        return self._list_directory(self.directory)

    def _list_directory(self, directory: Path) -> list[tuple[int, int]]:
        entries = [entry for entry in self._disk.list_directory(directory) if not entry.is_directory]
        named = [(parse_offset_file_name(entry.name), entry.size_bytes) for entry in entries]
        return sorted((base, size_bytes) for base, size_bytes in named if base is not None)

    def _distrust_names(self) -> None:
        """Sync the names before relying on them: the process that created them may have died before it did."""
        if self._names_later:
            self._unsynced_directories = [self.directory.parent.parent, self.directory.parent, self.directory]

    @property
    def bases(self) -> list[int]:
        return list(self._bases)

    @property
    def directories(self) -> tuple[Path, ...]:
        """Directories whose disks are checked for free space."""
        return (self.directory,)

    def directory_of(self, base: int) -> Path:
        """Return the directory of the file that starts at `base`."""
        return self._path(base).parent

    def note_full(self, directories: Iterable[Path]) -> None:
        """Create no file in these directories until the next call; a log in one directory has no choice."""

    @property
    def is_empty(self) -> bool:
        return not self._bases

    @property
    def start(self) -> int:
        """Position of the first byte of the first file."""
        return self._bases[0] if self._bases else 0

    @property
    def end(self) -> int:
        """Position after the last file."""
        return self._bases[-1] + self.file_bytes if self._bases else 0

    def base_of(self, position: int) -> int:
        return position - position % self.file_bytes

    def has(self, base: int) -> bool:
        index = bisect_right(self._bases, base) - 1
        return index >= 0 and self._bases[index] == base

    def file(self, base: int) -> MappedFile:
        """Return the file that starts at `base`, mapped."""
        mapped = self._files.get(base)
        if mapped is None:
            mapped = self._disk.open_file(self._path(base), writable=self._writable)
            self._keep(base, mapped)
        return mapped

    def add(self, base: int) -> MappedFile:
        """Create the file that starts at `base`."""
        assert not self.has(base)
        if self._names_later and not self._bases:
            mapped = self._first_file(base)
        else:
            if not self._bases:
                self._make_directories()
            if self._unsynced_directories:
                self.sync(self.start, self.end)  # only the last file may lack its size after a crash
            mapped = new_file(self._disk, self._new_path(base), self.file_bytes)
        insort(self._bases, base)  # last, unless a queue lost a file
        self._keep(base, mapped)
        self._allocated_to[base] = 0
        return mapped

    def _make_directories(self) -> None:
        self._disk.make_directory(self.directory)

    def _first_file(self, base: int) -> MappedFile:
        """Create the first file; its name is synced with its first bytes, and if it is lost so are all later files."""
        unsynced = self._disk.make_directory(self.directory, durable=False)
        mapped = self._disk.create_file(self._path(base), self.file_bytes)
        self._unsynced_directories = [*unsynced, self.directory]
        return mapped

    def _sync_directories(self) -> None:
        waiting, self._unsynced_directories = self._unsynced_directories, []
        for directory in waiting:
            # A directory that was removed meanwhile has no names to sync.
            with suppress(FileNotFoundError):
                self._disk.sync_directory(directory)

    def _keep(self, base: int, mapped: MappedFile) -> None:
        if self._scattered:
            mapped.expect_scattered()
        self._files[base] = mapped

    def data_end(self) -> int:
        """Return a position after which nothing was ever written, according to the file system's hole map."""
        return self._bases[-1] + self.file(self._bases[-1]).data_end() if self._bases else 0

    def note(self, base: int) -> bool:
        """Add a file that another process created; return False if it is missing or incomplete."""
        if self.has(base):
            return True
        try:
            mapped = self._disk.open_file(self._path(base), writable=self._writable)
        except (StoreError, ValueError):  # an empty file cannot be mapped
            return False
        if mapped.size_bytes != self.file_bytes:
            mapped.close()
            return False
        if not self._bases:
            self._distrust_names()
        insort(self._bases, base)
        self._files[base] = mapped
        return True

    def forget_before(self, position: int) -> None:
        """Drop files that end at or before `position` from this object; another process deletes them."""
        gone = [base for base in self._bases if base + self.file_bytes <= position]
        self._bases = self._bases[len(gone) :]
        for base in gone:
            self._allocated_to.pop(base, None)
        self.close_before(position)

    def close_before(self, position: int) -> None:
        """Unmap files that end at or before `position`: their blocks are freed when they are deleted."""
        mapped = [base for base in self._files if base + self.file_bytes <= position]
        self._close([self._files.pop(base) for base in mapped])

    def allocated_to(self, base: int) -> int:
        """Return the position up to which the file's blocks are known to be allocated."""
        return self._allocated_to.get(base, 0)

    def ensure_allocated(self, base: int, stop: int) -> None:
        """Allocate the file's blocks up to `stop`."""
        allocated = self._allocated_to.get(base, 0)
        if stop <= allocated:
            return
        target = min(-(-stop // self._allocate_bytes) * self._allocate_bytes, self.file_bytes)
        self.file(base).allocate(allocated, target)
        self._allocated_to[base] = target

    def remember_tail(self, base: int) -> None:
        """Set `tail` to that file, which may be written up to `tail_allocated_to` without a check."""
        self.tail, self.tail_base, self.tail_allocated_to = self.file(base), base, self._allocated_to.get(base, 0)

    def drop_unused(self, end: int, *, keep_first: bool = False) -> None:
        """Remove files after `end`; with `keep_first` the first file is kept, as its name records the log's start."""
        base = self.base_of(end)
        is_kept = end > base or (keep_first and base == self.start)
        self.drop_from(base + self.file_bytes if is_kept else base)

    def cut(self, end: int, *, keep_first: bool = False) -> None:
        """End the log at `end`, durably: remove later files, overwrite stale bytes in the last one with zeros."""
        self.drop_unused(end, keep_first=keep_first)
        base = self.base_of(end)
        if self.has(base) and self._wipe(base, end - base):
            self.file(base).sync()

    def _wipe(self, base: int, start: int) -> bool:
        """Overwrite bytes after `start` with zeros; return whether there were any."""
        file, is_found = self.file(base), False
        data_end = file.data_end()
        file.fetch(start, data_end)  # a copied store has no holes; without this the map would be read page by page
        for chunk_start in range(start, data_end, len(_ZEROS)):
            chunk = file.read(chunk_start, min(len(_ZEROS), data_end - chunk_start))
            if chunk == _ZEROS[: len(chunk)]:
                continue
            is_found = True
            # Only pages with data: others may be holes without blocks, and stay so.
            position, stop = chunk_start, chunk_start + len(chunk)
            while position < stop:
                count = min(_PAGE_BYTES - position % _PAGE_BYTES, stop - position)
                if any(file.read(position, count)):
                    file.write(position, _ZEROS[:count])
                position += count
        return is_found

    def drop_from(self, position: int) -> None:
        """Remove every file that starts at or after `position`."""
        count = len(self._bases)
        while self._bases and self._bases[-1] >= position:
            self._remove(self._bases[-1])
            del self._bases[-1]
        if len(self._bases) < count:
            self._disk.sync_directory(self.directory)

    def drop_before(self, position: int) -> int:
        """Remove files that end at or before `position`, oldest first and never the last; return their number.

        Each removal is durable before the next: a crash leaves no gap.
        """
        count = 0
        while len(self._bases) > 1 and self._bases[0] + self.file_bytes <= position:
            directory = self.directory_of(self._bases[0])
            self._remove(self._bases[0])
            del self._bases[0]
            self._disk.sync_directory(directory)
            count += 1
        return count

    def sync(self, start: int, stop: int) -> None:
        """Sync the bytes of a range; may be called in any thread."""
        base = start - start % self.file_bytes
        if stop <= base + self.file_bytes and (mapped := self._files.get(base)) is not None:
            mapped.sync()  # one file, the usual case of group commit: as few steps as possible
        else:
            for base in self.bases:
                if base < stop and base + self.file_bytes > start:
                    self._sync(base)
        if self._unsynced_directories:
            self._sync_directories()

    def _sync(self, base: int) -> None:
        mapped = self._files.get(base)
        if mapped is not None:
            mapped.sync()
            return
        # Closed to save descriptors. Not kept open here: only the appending thread may change `_files`.
        mapped = self._disk.open_file(self._path(base), writable=self._writable)
        try:
            mapped.sync()
        finally:
            mapped.close()

    def modified_ms(self, base: int) -> int:
        return self._disk.modified_ms(self._path(base))

    def close(self) -> None:
        mapped, self._files = list(self._files.values()), {}
        self._close(mapped)

    def _close(self, mapped: list[MappedFile]) -> None:
        """Close files, and those whose close failed earlier because a view of them was in use."""
        self._forget_tail()
        waiting, self._in_use = [*self._in_use, *mapped], []
        for file in waiting:
            try:
                file.close()
            except BufferError:
                self._in_use.append(file)

    def _path(self, base: int) -> Path:
        """Return the path of a file that exists, or may exist."""
        return self.directory / offset_file_name(base)

    def _new_path(self, base: int) -> Path:
        """Return the path at which a new file is created."""
        return self.directory / offset_file_name(base)

    def _remove(self, base: int) -> None:
        # Unlink first: if that fails the file is unchanged, and views of the map do not need the name.
        self._disk.remove_file(self._path(base))
        self._allocated_to.pop(base, None)
        self._close([self._files.pop(base)] if base in self._files else [])
