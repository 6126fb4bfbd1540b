"""Deletion evidence: reads from a store's files what shows that a missing queue belongs to a deleted topic."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.records.log_format import LogFormat, read_log_at
from orbitlog.formats.records.message import Message
from orbitlog.formats.tables.config_files import choose_config
from orbitlog.formats.tables.topic_config import TOPICS, TopicTable
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.storefiles.disk import DirectoryEntry, Disk


def known_topics(disk: Disk, root: Path) -> TopicTable | None:
    """Return topics.json or its backup; None if neither can be read or there is no topic."""
    path = root / tree.CONFIG / TOPICS.name
    backup = path.with_name(path.name + tree.BACKUP_SUFFIX)
    try:
        chosen = choose_config(disk.read_file(path), disk.read_file(backup), TOPICS.decode)
    except (FormatError, OSError):
        return None
    return chosen.value if chosen is not None and chosen.value.topics else None


def were_removed_by_broker(disk: Disk, root: Path, topics: Iterable[str]) -> bool:
    """Return whether queues of these topics that have no files were removed before the broker closed the store.

    A broker writes its tables and the checkpoint when it stops. A directory that changed later lost files since.
    """
    config = root / tree.CONFIG
    written = [root / tree.CHECKPOINT, *(config / entry.name for entry in _entries(disk, config))]
    directories = [root / tree.CONSUMEQUEUE]
    for topic in topics:
        directory = root / tree.CONSUMEQUEUE / topic
        queues = [directory / entry.name for entry in _entries(disk, directory) if entry.is_directory]
        directories += [directory, *queues]
    closed_ms = max((_modified_ms(disk, path) or 0 for path in written), default=0)
    return max((_modified_ms(disk, path) or 0 for path in directories), default=0) <= closed_ms


def _entries(disk: Disk, directory: Path) -> list[DirectoryEntry]:
    try:
        return disk.list_directory(directory)
    except OSError:  # a file in the place of a directory
        return []


def _modified_ms(disk: Disk, path: Path) -> int | None:
    try:
        return disk.modified_ms(path)
    except OSError:
        return None


def has_queue_directory(disk: Disk, root: Path) -> bool:
    return any(entry.name == tree.CONSUMEQUEUE and entry.is_directory for entry in disk.list_directory(root))


def stored_after(log: CommitLog, timestamp_ms: int, limit: int) -> int:
    """Return the physical offset of the first record that was stored after a time, or `limit`."""
    for base in reversed(log.segments.bases):
        view = log.segments.file(base).view()
        try:
            position = first_stored_after(view, base, timestamp_ms, limit)
        finally:
            view.release()
        if position > 0:
            return base + position
    return log.min_physical_offset


def first_stored_after(
    view: memoryview, base: int, safe_ms: int, limit: int, log_format: LogFormat = LogFormat.ORDINARY
) -> int:
    """Return the position of the first record of a segment that was stored after a time; 0 if the first one was."""
    position = 0
    while base + position < limit:
        found = read_log_at(view, position, log_format, base_physical_offset=base, check_crc=False)
        if not isinstance(found, Message):
            return min(len(view), limit - base) if position else 0
        if found.store_timestamp_ms > safe_ms:
            return position
        position += log_format.header_bytes + found.size_bytes
    return position
