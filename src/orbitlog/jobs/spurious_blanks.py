"""Spurious BLANKs: a segment end in the middle of a segment, with records of this log after it.

Readers skip everything after a BLANK, so a few bytes can hide most of a segment. But there may be stale records after a
valid one: a Java broker that recovers truncates its log without zeroing it, and may end the segment earlier.
Stale records have no unit in any queue, and the first message of the next segment did not fit before them.
"""

from __future__ import annotations

import os
from pathlib import Path

from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QUEUE_ENTRY
from orbitlog.formats.records.flags import enters_queue
from orbitlog.formats.records.log_format import read_log_at
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import fits
from orbitlog.jobs.log_splits import LogSplit
from orbitlog.storefiles.mapped_view import mapped_view


def hides_records(view: memoryview, split: LogSplit, position: int, following: int, *, queue_file_bytes: int) -> bool:
    """Return whether the BLANK at `position` is spurious; `following` is the position of the next record or BLANK."""
    opening = _first_of_next(split)
    if opening is not None and fits(split.log_format.header_bytes + opening.size_bytes, len(view) - position):
        return True
    found = read_log_at(view, following, split.log_format, base_physical_offset=split.base)
    if not isinstance(found, Message):
        return False
    return opening is None or _has_unit(split.store_paths.root, found, queue_file_bytes)


def _first_of_next(split: LogSplit) -> Message | None:
    """Return the message that opens the next segment: it had no room in this one."""
    base = split.base + split.segment_bytes
    path = split.store_paths.find_segment(base)
    if not path.is_file():
        return None
    # The first file of DLedger follows an ordinary one that was closed early.
    if split.store_paths.format_of(path.parent) is not split.log_format:
        return None
    with mapped_view(path) as view:
        found = read_log_at(view, 0, split.log_format, base_physical_offset=base)
    return found if isinstance(found, Message) else None


def _has_unit(root: Path, message: Message, queue_file_bytes: int) -> bool:
    """Return whether the queue of a message has a unit that points to it."""
    byte = message.queue_offset * ENTRY_BYTES
    base = byte // queue_file_bytes * queue_file_bytes
    try:
        path = root / tree.queue_directory(message.topic, message.queue_id) / tree.offset_file_name(base)
    except FormatError:
        return False
    if not enters_queue(message.sys_flag) or message.queue_offset < 0 or not path.is_file():
        return False
    with path.open("rb") as file:
        raw = os.pread(file.fileno(), ENTRY_BYTES, byte - base)
    wanted = (message.physical_offset, message.size_bytes)
    return len(raw) == ENTRY_BYTES and QUEUE_ENTRY.struct.unpack(raw)[:2] == wanted
