"""Offset files: which file of config/ has the committed offsets of a store, according to the files.

A broker with `enableLmq` keeps all of them in `lmqConsumerOffset.json` and does not touch `consumerOffset.json`. What
looks at a store from outside takes the one that was written last.
"""

from __future__ import annotations

from pathlib import Path

from orbitlog.formats import store_tree as tree
from orbitlog.formats.tables.json_records import JsonFile
from orbitlog.formats.tables.offset_tables import (
    CONSUMER_OFFSET,
    LMQ_CONSUMER_OFFSET,
    ConsumerOffsets,
    LmqConsumerOffsets,
)

OffsetsFile = JsonFile[ConsumerOffsets] | JsonFile[LmqConsumerOffsets]


def offsets_file(root: Path) -> OffsetsFile:
    """Return the file of the store's committed offsets, whether it is there or not."""
    config = root / tree.CONFIG
    is_light = _written_ns(config / LMQ_CONSUMER_OFFSET.name) > _written_ns(config / CONSUMER_OFFSET.name)
    return LMQ_CONSUMER_OFFSET if is_light else CONSUMER_OFFSET


def _written_ns(path: Path) -> int:
    """Return when a file or its backup was written last; 0 if there is neither."""
    times = [0]
    for each in (path, path.with_name(path.name + tree.BACKUP_SUFFIX)):
        if each.exists():
            times.append(each.stat().st_mtime_ns)
    return max(times)
