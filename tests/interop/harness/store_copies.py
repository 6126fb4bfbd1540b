"""Stores that must be equal: those of a master and of its slave."""

from __future__ import annotations

from pathlib import Path

SEGMENT_BYTES = 1024 * 1024
FILES = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}
CATCH_UP_SECONDS = 120
RESTARTS = 5


def has_same_log(master: Path, slave: Path) -> bool:
    """Compare the segments that have data; either side may have prepared one more."""
    for segment in sorted((master / "commitlog").iterdir()):
        content = segment.read_bytes()
        copy = slave / "commitlog" / segment.name
        if content.strip(b"\0") and (not copy.exists() or copy.read_bytes() != content):
            return False
    return True


def queue_files(store: Path, topic: str) -> dict[str, bytes]:
    root = store / "consumequeue" / topic
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
