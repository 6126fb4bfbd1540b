"""CommitLog segments in several directories, placed as Java's `MultiPathMappedFileQueue` places them.

A log in a single directory is a plain `Segments`; only one that is spread needs to know which directory each segment
is in. A new segment goes to the directory with the index `number of the segment % number of directories`, of those
that are neither read-only nor too full.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from orbitlog.errors import StoreLayoutError
from orbitlog.formats.store_tree import offset_file_name
from orbitlog.store.log.segments import Segments
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.store_paths import StorePaths

# A reader lists directory after directory while a broker deletes; a look that is consistent comes soon.
_LISTINGS_MAX = 10


class SpreadSegments(Segments):
    """Segments of one log in several directories."""

    def __init__(
        self, disk: Disk, paths: StorePaths, segment_bytes: int, *, allocate_bytes: int, writable: bool
    ) -> None:
        super().__init__(disk, paths.writable[0], segment_bytes, allocate_bytes=allocate_bytes, writable=writable)
        self._paths = paths
        self._homes: dict[int, Path] = {}
        self._full: tuple[Path, ...] = ()

    @property
    def directories(self) -> tuple[Path, ...]:
        return self._paths.commitlog

    def note_full(self, directories: Iterable[Path]) -> None:
        """Create no segment in these directories until the next call, unless all are full."""
        self._full = tuple(directories)

    def _list_files(self) -> list[tuple[int, int]]:
        for _ in range(_LISTINGS_MAX - 1):
            known = self._list_directories()
            if self._missing(known) is None:
                return known
        known = self._list_directories()
        missing = self._missing(known)
        if missing is not None:
            raise StoreLayoutError(
                f"segment {offset_file_name(missing)} is in none of {self._paths.shown}, but later ones are; mount or"
                " name the directory that has it (storePathCommitLog, readOnlyCommitLogStorePaths)"
            )
        return known

    def _list_directories(self) -> list[tuple[int, int]]:
        self._homes = {}
        known: list[tuple[int, int]] = []
        for directory in self._paths.log_directories:
            for base, size_bytes in self._list_directory(directory):
                other = self._homes.setdefault(base, directory)
                if other != directory:
                    name = offset_file_name(base)
                    raise StoreLayoutError(
                        f"{other / name} and {directory / name} are the same segment of one log; find out which one"
                        " belongs to it and move the other away"
                    )
                known.append((base, size_bytes))
        return sorted(known)

    def _missing(self, known: list[tuple[int, int]]) -> int | None:
        """Return the first byte of a segment that is missing between two others."""
        for (base, _), (following, _) in pairwise(known):
            if following != base + self.file_bytes and base % self.file_bytes == following % self.file_bytes == 0:
                return base + self.file_bytes
        return None

    def _make_directories(self) -> None:
        for directory in self._paths.writable:
            self._disk.make_directory(directory)

    def _path(self, base: int) -> Path:
        directory = self._homes.get(base)
        if directory is None:  # created by another process since the last listing
            name = offset_file_name(base)
            for directory in self._paths.log_directories:
                if any(entry.name == name for entry in self._disk.list_directory(directory)):
                    self._homes[base] = directory
                    break
            else:
                directory = self.directory
        return directory / offset_file_name(base)

    def _new_path(self, base: int) -> Path:
        directory = self._paths.directory_of(base // self.file_bytes, self._full)
        self._homes[base] = directory
        return directory / offset_file_name(base)

    def drop_from(self, position: int) -> None:
        """Remove every file that starts at or after `position`, each durably before the next.

        Without a sync in between a crash could keep a removal in one directory and lose a later one in another, which
        would leave a hole in the log.
        """
        while self._bases and self._bases[-1] >= position:
            base = self._bases[-1]
            directory = self.directory_of(base)
            self._remove(base)
            del self._bases[-1]
            self._disk.sync_directory(directory)

    def _remove(self, base: int) -> None:
        super()._remove(base)
        self._homes.pop(base, None)
