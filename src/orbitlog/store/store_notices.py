"""Store notices: sentences for the operator about an opened store, each with its subject."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import NamedTuple

from orbitlog.formats import store_tree as tree
from orbitlog.storefiles.disk import Disk


class NoticeSubject(Enum):
    """The part of a store that a notice is about."""

    EXTENSION_QUEUES = "extension queues"
    PROPERTY_CRC = "property CRC"
    RECOVERY = "recovery"


class StoreNotice(NamedTuple):
    """One sentence for the operator, and the setting that it is about, if any."""

    subject: NoticeSubject
    sentence: str
    setting: str | None = None

    def __str__(self) -> str:
        return self.sentence


def notices_of(disk: Disk, root: Path) -> list[StoreNotice]:
    """Return a notice for each kind of files that Orbitlog does not maintain."""
    directory = root / tree.CONSUMEQUEUE_EXT
    topics = _directories(disk, directory)
    queue_count = sum(_has_data(disk, queue) for topic in topics for queue in _directories(disk, topic))
    if not queue_count:
        return []
    sentence = (
        f"{directory} has filter bit maps of {queue_count} queues (enableConsumeQueueExt), which are not maintained:"
        " queues get the plain hash of the tags instead, also if they point to a bit map now. Every message can be"
        " read and filtered, here and by a Java broker; only the bit maps become useless"
    )
    return [StoreNotice(NoticeSubject.EXTENSION_QUEUES, sentence)]


def _directories(disk: Disk, path: Path) -> list[Path]:
    return [path / entry.name for entry in disk.list_directory(path) if entry.is_directory]


def _has_data(disk: Disk, path: Path) -> bool:
    return any(entry.size_bytes > 0 for entry in disk.list_directory(path) if not entry.is_directory)
