"""Deletion evidence: reads from a store's files what shows that a missing queue belongs to a deleted topic."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.checkpoint import Checkpoint
from orbitlog.formats.config_files import choose_config
from orbitlog.formats.message import Message
from orbitlog.formats.message_scan import BLANK, read_at
from orbitlog.formats.topic_config import TOPICS
from orbitlog.store.commitlog import CommitLog
from orbitlog.store.disk import Disk


def known_topics(disk: Disk, root: Path) -> Collection[str] | None:
    """Return the topics of topics.json or its backup; None if neither can be read or there is no topic."""
    path = root / tree.CONFIG / TOPICS.name
    backup = path.with_name(path.name + tree.BACKUP_SUFFIX)
    try:
        chosen = choose_config(disk.read_file(path), disk.read_file(backup), TOPICS.decode)
    except (FormatError, OSError):
        return None
    return set(chosen.value.topics) or None if chosen is not None else None


def has_queue_directory(disk: Disk, root: Path) -> bool:
    return any(entry.name == tree.CONSUMEQUEUE and entry.is_directory for entry in disk.list_directory(root))


def durable_before(log: CommitLog, checkpoint: Checkpoint, limit: int) -> int:
    """Return the physical offset of the first record stored after the checkpoint's times, with their margin.

    The units of records before it were on the disk when the broker crashed.
    """
    safe_ms = checkpoint.min_timestamp_ms
    for base in reversed(log.segments.bases):
        view = log.segments.file(base).view()
        try:
            position = first_stored_after(view, base, safe_ms, limit)
        finally:
            view.release()
        if position > 0:
            return base + position
    return log.min_physical_offset


def first_stored_after(view: memoryview, base: int, safe_ms: int, limit: int) -> int:
    """Return the position of the first record of a segment that was stored after a time; 0 if the first one was."""
    position = 0
    while base + position < limit:
        found = read_at(view, position, base_physical_offset=base, check_crc=False)
        if not isinstance(found, Message):
            return min(len(view), limit - base) if position else 0
        if found.store_timestamp_ms > safe_ms:
            return position
        position += int(BLANK.struct.unpack_from(view, position)[0])
    return position
