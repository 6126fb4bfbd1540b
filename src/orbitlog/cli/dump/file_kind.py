"""File kind detection: infers the kind of a store file from its name and first bytes, to suggest the right command."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import CHECKPOINT
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, decode_entry
from orbitlog.formats.derived.timer_log import TimerLogUnit, read_timer_unit_at
from orbitlog.formats.records.dledger import DLedgerEntry, read_entry_at
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, decode_message
from orbitlog.formats.records.message_scan import MAGIC_BLANK, find_record

_MAGIC_POSITION = 4
_MAGIC = struct.Struct(">I")
_LOG_MAGICS = frozenset((MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
_RECORD = re.compile(b"|".join(re.escape(_MAGIC.pack(magic)) for magic in (MAGIC_V1, MAGIC_V2)))

DESCRIPTIONS = {
    "commitlog": "a segment of the commit log",
    "consumequeue": "a file of a consume queue",
    "index": "an index file",
    "checkpoint": "a checkpoint",
    "config": "a config file",
    "timerwheel": "a timer wheel",
    "timerlog": "a file of the timer log",
}


def guess_kind(path: Path, view: memoryview) -> str | None:
    """Return the name of the dump command for a file, or None if its kind is uncertain."""
    name = path.name
    if bytes(view[:64]).lstrip()[:1] == b"{":
        return "config"
    if _has_log_magic(view, 0) or isinstance(read_entry_at(view, 0), DLedgerEntry):
        return "commitlog"
    if name == tree.TIMER_WHEEL:
        return "timerwheel"
    if tree.parse_index_file_name(name) is not None:
        return "index"
    if name.startswith(tree.CHECKPOINT) and len(view) >= CHECKPOINT.size_bytes:
        return "checkpoint"
    if isinstance(read_timer_unit_at(view, 0), TimerLogUnit):
        return "timerlog"
    if tree.parse_offset_file_name(name) is not None and _starts_with_unit(view):
        return "consumequeue"
    return None


def _has_log_magic(view: memoryview, position: int) -> bool:
    start = position + _MAGIC_POSITION
    return len(view) >= start + _MAGIC.size and _MAGIC.unpack_from(view, start)[0] in _LOG_MAGICS


def _starts_with_unit(view: memoryview) -> bool:
    if len(view) < ENTRY_BYTES or len(view) % ENTRY_BYTES:
        return False
    try:
        unit = decode_entry(view)
    except FormatError:
        return False
    return unit is not None and unit.size_bytes >= RECORD_BYTES_MIN


def other_kind(wanted: str, path: Path, view: memoryview) -> str | None:
    """Return the kind of a file if it is not the wanted one, else None."""
    guess = guess_kind(path, view)
    if guess is None or guess == wanted:
        return None
    base = tree.parse_offset_file_name(path.name)
    if wanted == "commitlog" and base is not None and find_record(view, 0, base_physical_offset=base) is not None:
        return None  # a segment whose start is damaged
    return guess


def first_byte_number(view: memoryview) -> int | None:
    """Return the physical offset of a segment's first byte, computed from its first readable record."""
    for match in _RECORD.finditer(view):
        position = match.start() - _MAGIC_POSITION
        if position < 0:
            continue
        try:
            base = decode_message(view, position).physical_offset - position
        except FormatError:
            continue
        if base >= 0:
            return base
    return None
