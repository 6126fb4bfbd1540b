"""Stores that must be equal: those of a master and of its slave."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SEGMENT_BYTES = 1024 * 1024
FILES = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}
CATCH_UP_SECONDS = 120
# Restarts of a slave amid sends; each brings at least 500 messages.
RESTARTS = int(os.environ.get("ORBITLOG_INTEROP_RESTARTS", "20"))
TABLES = (
    ("topics.json", "topicConfigTable"),
    ("subscriptionGroup.json", "subscriptionGroupTable"),
    ("consumerOffset.json", "offsetTable"),
    ("delayOffset.json", "offsetTable"),
)


def tables(version: str) -> tuple[tuple[str, str], ...]:
    """Return file and key of each table that slaves of a version copy."""
    return (*TABLES, ("messageRequestMode.json", "messageRequestModeMap")) if version.startswith("5") else TABLES


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


def all_queue_files(store: Path) -> dict[str, bytes]:
    """Return the queue files of all topics that have a unit."""
    root = store / "consumequeue"
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {name: content for name, content in files.items() if content.strip(b"\0")}


def index_files(store: Path) -> list[bytes]:
    """Return the index files that have keys, in their order; their names are times of their creation."""
    found = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    return [content for content in found if content[:40].strip(b"\0")]


def kinds(version: str) -> list[str]:
    """Return the words that make `SendSome` send messages of all kinds of a version, and consume some of them."""
    timers = ["timer"] if version.startswith("5") else []
    return ["plain", "keys", "unicode", "batch", "ordered", "large", "delayed", "transactions", *timers, "consume"]


def assert_sound_files(store: Path) -> None:
    """Check a store with `doctor check`; log, queues and index must be sound.

    About tables it may complain: one of the kinds changes a topic to fewer queues than have messages.
    """
    program = Path(sys.executable).parent / "orbitlog"
    checked = subprocess.run([program, "doctor", "check", str(store)], capture_output=True, text=True, timeout=300)
    assert "messages up to physical offset" in checked.stdout, checked.stdout + checked.stderr
    names = [f"{store}/{name}" for name in ("commitlog", "consumequeue", "index")]
    assert not any(name in checked.stdout for name in names), checked.stdout
