"""What a store holds that Orbitlog does not keep up: said to whoever opens it for writing, and left as it is."""

from __future__ import annotations

from pathlib import Path

from orbitlog.formats import store_tree as tree
from orbitlog.storefiles.disk import Disk


def notices_of(disk: Disk, root: Path) -> list[str]:
    """Return a sentence for each such thing."""
    directory = root / tree.CONSUMEQUEUE_EXT
    topics = _directories(disk, directory)
    queue_count = sum(_has_data(disk, queue) for topic in topics for queue in _directories(disk, topic))
    if not queue_count:
        return []
    return [
        f"{directory} has filter bit maps of {queue_count} queues (enableConsumeQueueExt), which are not kept up:"
        " queues get the plain hash of the tags instead, also where they point there now. Every message can still be"
        " read and filtered, here and by a Java broker; only the bit maps are of no use any more"
    ]


def _directories(disk: Disk, path: Path) -> list[Path]:
    return [path / entry.name for entry in disk.list_directory(path) if entry.is_directory]


def _has_data(disk: Disk, path: Path) -> bool:
    return any(entry.size_bytes > 0 for entry in disk.list_directory(path) if not entry.is_directory)
