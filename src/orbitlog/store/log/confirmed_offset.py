"""Confirmed offset: the small mapped file up to whose offset other processes may read the log of a running broker."""

from __future__ import annotations

from pathlib import Path

from orbitlog.formats.derived.store_state import CONFIRMED
from orbitlog.store.log.segments import new_file
from orbitlog.storefiles.disk import Disk, MappedFile


def read_confirmed(disk: Disk, path: Path) -> int:
    """Return the offset that was published last; 0 without a file, or with one of another size."""
    raw = disk.read_file(path)
    return CONFIRMED.struct.unpack(raw)[0] if raw is not None and len(raw) == CONFIRMED.size_bytes else 0


def open_confirmed(disk: Disk, path: Path) -> MappedFile:
    """Map the file for writing; create it if it is missing, and replace it if it has another size."""
    raw = disk.read_file(path)
    if raw is not None and len(raw) == CONFIRMED.size_bytes:
        mapped = disk.open_file(path, writable=True)
    else:
        # A crash while it was created leaves it empty, and an empty file cannot be mapped.
        if raw is not None:
            disk.remove_file(path)
        mapped = new_file(disk, path, CONFIRMED.size_bytes)
    mapped.allocate(0, CONFIRMED.size_bytes)
    return mapped
