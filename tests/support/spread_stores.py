"""Stores whose CommitLog is moved to several directories outside the root, as Apache's broker would have placed it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from orbitlog.storefiles.store_paths import StorePaths


def spread(root: Path, segment_bytes: int, *directories: Path) -> str:
    """Move the segments of a store to `directories`; returns the value of storePathCommitLog."""
    paths = StorePaths(root, tuple(sorted(directories)), is_configured=True)
    for directory in directories:
        directory.mkdir(parents=True)
    for segment in sorted((root / "commitlog").iterdir()):
        segment.rename(paths.directory_of(int(segment.name) // segment_bytes) / segment.name)
    (root / "commitlog").rmdir()
    return ",".join(map(str, directories))


def digests(*directories: Path) -> dict[str, str]:
    """Return every path below the directories, with a digest of each file."""
    found: dict[str, str] = {}
    for directory in directories:
        for path in sorted(directory.rglob("*")):
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
    return found
