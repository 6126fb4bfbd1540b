"""Files without their pages in memory, as after a restart of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def files_below(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def drop_from_cache(paths: Iterable[Path]) -> None:
    """Drop the pages of unmapped files from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # a dirty page is not dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def bytes_read_from_disk() -> int:
    """Return what this process had fetched from the disk so far, through maps too; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes")), 0)
