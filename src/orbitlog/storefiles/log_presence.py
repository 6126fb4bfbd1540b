"""Refuses a store whose CommitLog is missing, or lacks a directory, while its queues refer to messages.

An unmounted disk looks like an empty directory. A broker that opened such a store would cut or delete the queues, and
start a log at 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from orbitlog.errors import StoreLayoutError
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QUEUE_ENTRY
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.store_tree import offset_file_name
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.log_references import refuse_missing_log
from orbitlog.storefiles.mapped_view import written_until
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles
from orbitlog.storefiles.store_paths import where_else

_UNITS_READ = 4096


def check_log_is_there(store: StoreFiles) -> None:
    """Raise `StoreLayoutError` if a directory of the log is missing or empty and other files refer to its messages."""
    if not store.segments and not any(store.dledger_segments.values()):
        refuse_missing_log(store.paths, RealDisk())
    elif store.paths.has_several and store.paths.dledger is None:
        _check_directories(store)


def _check_directories(store: StoreFiles) -> None:
    segment_bytes = max(segment.size_bytes for segment in store.segments)
    for segment, following in pairwise(store.segments):
        if following.base > segment.base + segment_bytes:
            raise StoreLayoutError(
                f"segment {offset_file_name(segment.base + segment_bytes)} is missing between {segment.path} and"
                f" {following.path}; {where_else(store.paths)}"
            )
    used = {segment.path.parent for segment in store.segments}
    unused = [directory for directory in store.paths.log_directories if directory not in used]
    if not unused:
        return
    log_end = store.segments[-1].base + segment_bytes
    for (topic, queue_id), files in store.queues.items():
        if _last_end(files) > log_end:
            raise StoreLayoutError(
                f"{', '.join(map(str, unused))} has no segment, and queue {queue_id} of topic {topic} refers to"
                f" messages after {store.segments[-1].path}, the last one found; {where_else(store.paths)}"
            )


def last_referenced_ends(store: StoreFiles) -> Iterator[tuple[int, int]]:
    """Yield for each queue physical offset and size of the last message that it refers to."""
    for files in store.queues.values():
        found = next(filter(None, (_last_unit_in(file.path) for file in reversed(files))), None)
        if found is not None:
            yield found


def _last_end(files: tuple[OffsetFile, ...]) -> int:
    """Return the physical offset after the last message that a queue refers to; 0 if it refers to none."""
    for file in reversed(files):
        unit = _last_unit_in(file.path)
        if unit is not None:
            return sum(unit)
    return 0


def _last_unit_in(path: Path) -> tuple[int, int] | None:
    """Return the last unit of one queue file: its units are followed by zeros, which may have blocks of their own."""
    stop = written_until(path) // ENTRY_BYTES
    with path.open("rb") as file:
        while stop > 0:
            start = max(stop - _UNITS_READ, 0)
            raw = os.pread(file.fileno(), (stop - start) * ENTRY_BYTES, start * ENTRY_BYTES)
            for position in range(len(raw) - ENTRY_BYTES, -1, -ENTRY_BYTES):
                physical_offset, size_bytes, _ = QUEUE_ENTRY.struct.unpack_from(raw, position)
                if 0 < size_bytes < INT_MAX and physical_offset >= 0:  # else a filler before the first message
                    return int(physical_offset), int(size_bytes)
            stop = start
    return None
