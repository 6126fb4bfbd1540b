"""Store notices: sentences about files of a store that Orbitlog does not maintain."""

from __future__ import annotations

from pathlib import Path

from orbitlog.formats import store_tree as tree
from orbitlog.storefiles.disk import Disk


def notices_of(disk: Disk, root: Path) -> list[str]:
    """Return a sentence for each kind of unmaintained files."""
    directory = root / tree.CONSUMEQUEUE_EXT
    topics = _directories(disk, directory)
    queue_count = sum(_has_data(disk, queue) for topic in topics for queue in _directories(disk, topic))
    if not queue_count:
        return []
    return [
        f"{directory} has filter bit maps of {queue_count} queues (enableConsumeQueueExt), which are not maintained:"
        " queues get the plain hash of the tags instead, also if they point to a bit map now. Every message can be"
        " read and filtered, here and by a Java broker; only the bit maps become useless"
    ]


def _directories(disk: Disk, path: Path) -> list[Path]:
    return [path / entry.name for entry in disk.list_directory(path) if entry.is_directory]


def _has_data(disk: Disk, path: Path) -> bool:
    return any(entry.size_bytes > 0 for entry in disk.list_directory(path) if not entry.is_directory)
