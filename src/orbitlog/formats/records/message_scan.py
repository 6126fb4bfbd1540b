"""Message scan: reads consecutive records of a segment, and finds the next record after damage.

A segment has records back to back, then a BLANK record that refers to the next segment; bytes never written are zero.
`scan_messages` yields messages and then, by type, why it stopped: `SegmentEnd` (BLANK), `LogEnd` (zeros) or `Damage`;
nothing more if the bytes end with a record. `find_record` resynchronizes after damage. Java returns the same as pairs
of numbers (`DispatchRequest(size, success)`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orbitlog.errors import FormatError, LengthMismatch, Truncated
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, Bytes, Message, decode_message

MAGIC_BLANK = 0xCBD43194
BLANK = Layout(
    "CommitLog BLANK record (end of a segment)",
    Field("total_size", "i32", "bytes from here to the end of the segment"),
    Field("magic", "u32", f"0x{MAGIC_BLANK:08X}; the bytes after it have no meaning"),
)
BLANK_BYTES = BLANK.size_bytes
assert BLANK_BYTES == 8

_BLANK_OR_ZERO = frozenset((0, MAGIC_BLANK))


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """A BLANK record: the log continues in the next segment."""

    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Zeros: nothing was written here yet."""

    position: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are neither; `error` states what is invalid."""

    position: int
    error: FormatError


def encode_blank(room: int) -> bytes:
    """Return the 8 bytes that end a segment with `room` bytes left."""
    assert room >= BLANK_BYTES
    return BLANK.struct.pack(room, MAGIC_BLANK)


def fits(record_bytes: int, room: int) -> bool:
    """Return whether a record fits into `room`: a segment always keeps room for its BLANK."""
    return record_bytes + BLANK_BYTES <= room


def read_at(
    buffer: Bytes, position: int, *, base_physical_offset: int | None = None, check_crc: bool = True
) -> Message | SegmentEnd | LogEnd | Damage:
    """Return the message, BLANK, zeros or damage at `position` of a segment; `buffer` ends with the segment."""
    available = len(buffer) - position
    if available >= BLANK_BYTES:
        total_size, magic = BLANK.struct.unpack_from(buffer, position)
        if magic in _BLANK_OR_ZERO:
            if magic == MAGIC_BLANK and total_size == available:
                return SegmentEnd(position, total_size)
            if magic == total_size == 0:
                return LogEnd(position)
            if magic == MAGIC_BLANK:
                return Damage(position, _bad_blank(position, total_size, available))
    physical_offset = None if base_physical_offset is None else base_physical_offset + position
    try:
        return decode_message(buffer, position, physical_offset=physical_offset, check_crc=check_crc)
    except FormatError as error:
        # Without its traceback and that of its cause: their frames would keep a mapped file from being closed.
        error.__context__ = None
        return Damage(position, error.with_traceback(None))


def _bad_blank(position: int, total_size: int, available: int) -> FormatError:
    if total_size > available:
        return Truncated(field="segment end", needed=total_size, got=available, position=position)
    return LengthMismatch(field="segment end", stated=total_size, counted=available, position=position)


def scan_messages(
    buffer: Bytes, start: int = 0, *, base_physical_offset: int | None = None, check_crc: bool = True
) -> Iterator[Message | SegmentEnd | LogEnd | Damage]:
    """Yield messages from `start` on, then the reason for stopping; no reason if the bytes end with a record.

    With `base_physical_offset` (that of the buffer's first byte) each record must state its own offset.
    Without it any run of records can be read, such as the body of a pull response.
    """
    position = start
    while position < len(buffer):
        found = read_at(buffer, position, base_physical_offset=base_physical_offset, check_crc=check_crc)
        yield found
        if not isinstance(found, Message):
            return
        position += BLANK.struct.unpack_from(buffer, position)[0]


_RECORD_OR_BLANK = re.compile(
    b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
)
_MAGIC_POSITION = BLANK.position("magic")


def find_record(buffer: Bytes, start: int, *, base_physical_offset: int, check_crc: bool = True) -> int | None:
    """Return the first position at or after `start` of a record or the segment's BLANK, or None.

    A record counts if its magic, lengths, own physical offset and CRC are right. A message body can contain bytes
    that pass all of these, so a position is likely, not certain; `kernels.splits` verifies it.
    """
    search_from = start + _MAGIC_POSITION
    while match := _RECORD_OR_BLANK.search(buffer, search_from):
        position = match.start() - _MAGIC_POSITION
        found = read_at(buffer, position, base_physical_offset=base_physical_offset, check_crc=check_crc)
        if isinstance(found, Message | SegmentEnd):
            return position
        search_from = match.start() + 1
    return None
