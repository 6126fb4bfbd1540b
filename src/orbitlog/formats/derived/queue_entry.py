"""ConsumeQueue unit: physical offset, size and tags code of one message of a queue.

Fixed 20 bytes, so unit n of a queue starts at byte n * ENTRY_BYTES of its logical stream, and a file of the
queue is named after the first byte it holds. Mirrors Java `ConsumeQueue.putMessagePositionInfo`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orbitlog.errors import BadField, Truncated
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import Bytes

QUEUE_ENTRY = Layout(
    "ConsumeQueue unit",
    Field("physical_offset", "i64", "start of the record in the CommitLog"),
    Field("size_bytes", "i32", "length of the record"),
    Field("tags_code", "i64", "hash of the tags; delivery time in the schedule topic; address of an extension unit"),
)
ENTRY_BYTES = QUEUE_ENTRY.size_bytes
assert ENTRY_BYTES == 20
QUEUE_FILE_BYTES_DEFAULT = 300_000 * ENTRY_BYTES

_PACK = QUEUE_ENTRY.struct.pack
_UNPACK_FROM = QUEUE_ENTRY.struct.unpack_from


@dataclass(frozen=True, slots=True)
class QueueEntry:
    physical_offset: int
    size_bytes: int
    tags_code: int

    @property
    def is_pre_blank(self) -> bool:
        """Whether this is a filler before a queue's first unit; no record has the maximum size."""
        return self.size_bytes == INT_MAX and self.physical_offset == 0


# Java fills the units before a queue's first one with this (`ConsumeQueue.fillPreBlank`).
PRE_BLANK = QueueEntry(physical_offset=0, size_bytes=INT_MAX, tags_code=0)
PRE_BLANK_RAW = _PACK(0, INT_MAX, 0)


def encode_entry(entry: QueueEntry) -> bytes:
    assert entry.physical_offset >= 0
    assert entry.size_bytes > 0
    return _PACK(entry.physical_offset, entry.size_bytes, entry.tags_code)


def decode_entry(buffer: Bytes, position: int = 0) -> QueueEntry | None:
    """Return the unit at `position`, or None if the file is still blank (all zero)."""
    if len(buffer) - position < ENTRY_BYTES:
        raise Truncated(field="queue entry", needed=ENTRY_BYTES, got=len(buffer) - position, position=position)
    physical_offset, size_bytes, tags_code = _UNPACK_FROM(buffer, position)
    if physical_offset == size_bytes == tags_code == 0:
        return None
    if physical_offset < 0 or size_bytes <= 0:
        raise BadField(
            f"physical offset {physical_offset}, size {size_bytes} invalid", field="queue entry", position=position
        )
    return QueueEntry(physical_offset, size_bytes, tags_code)


def scan_entries(buffer: Bytes, start: int = 0) -> Iterator[QueueEntry]:
    """Yield units (pre-blank ones too) up to the first that was never written."""
    for position in range(start, len(buffer), ENTRY_BYTES):
        entry = decode_entry(buffer, position)
        if entry is None:
            return
        yield entry


def first_after_fillers(units: bytes, first: int) -> tuple[int, int] | None:
    """Return queue offset and physical offset of the first unit after fillers; None without fillers or without a unit.

    `first` is the queue offset of the first of `units`.
    """
    position = 0
    while units.startswith(PRE_BLANK_RAW, position):
        position += ENTRY_BYTES
    if position == 0 or len(units) - position < ENTRY_BYTES:
        return None
    physical_offset, size_bytes, _ = _UNPACK_FROM(units, position)
    return (first + position // ENTRY_BYTES, physical_offset) if size_bytes > 0 else None


def locate_entry(queue_offset: int, file_bytes: int) -> tuple[int, int]:
    """Return the base of the file that holds a unit, and the unit's position in it."""
    byte = queue_offset * ENTRY_BYTES
    position = byte % file_bytes
    return byte - position, position


def check_queue_file_bytes(file_bytes: int) -> int:
    """Return `file_bytes` if a queue file can have that size."""
    if file_bytes <= 0 or file_bytes % ENTRY_BYTES:
        raise BadField(f"{file_bytes} is not a multiple of {ENTRY_BYTES}", field="mappedFileSizeConsumeQueue")
    return file_bytes
