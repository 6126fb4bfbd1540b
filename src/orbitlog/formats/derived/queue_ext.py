"""The ConsumeQueue extension: tags code, store time and filter bitmap of a message, for SQL subscriptions.

If it is enabled, the tags code of a ConsumeQueue unit is the address of an extension unit: its position in the
extension's byte stream with the sign bit set. A hash code never looks like one. A unit never crosses a file: where
it does not fit, the file ends with an i16 of -1. Mirrors Java `ConsumeQueueExt`; the bitmap is made by `bloom`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from orbitlog.errors import BadField, FormatError, LengthMismatch, Truncated
from orbitlog.formats.java import INT_MIN, LONG_MIN
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import Bytes
from orbitlog.formats.records.message_scan import Damage, LogEnd, SegmentEnd

Found = TypeVar("Found")

QUEUE_EXT_UNIT = Layout(
    "ConsumeQueue extension unit",
    Field("size_bytes", "i16", "of this unit with its bitmap; -1 ends the file"),
    Field("tags_code", "i64", "hash of the tags"),
    Field("store_timestamp_ms", "i64", "store time of the message"),
    Field("bitmap_bytes", "i16", "length of the filter bitmap that follows"),
)
EXT_UNIT_BYTES_MIN = QUEUE_EXT_UNIT.size_bytes
assert EXT_UNIT_BYTES_MIN == 20
EXT_UNIT_BYTES_MAX = 2**15 - 1
EXT_FILE_BYTES_DEFAULT = 48 * 1024 * 1024

_SIZE = QUEUE_EXT_UNIT.partial("size_bytes")
_FILE_END = -1
EXT_FILE_END_RAW = _SIZE.pack(_FILE_END)
# A file keeps this much room for its end; Java reserves four bytes and writes two.
_END_ROOM_BYTES = 4

_ADDRESS_MAX = INT_MIN - 1
EXT_POSITION_MAX = _ADDRESS_MAX - LONG_MIN


@dataclass(frozen=True, slots=True)
class QueueExtUnit:
    tags_code: int
    store_timestamp_ms: int
    bitmap: bytes = b""

    @property
    def size_bytes(self) -> int:
        return EXT_UNIT_BYTES_MIN + len(self.bitmap)


QueueExtFound = QueueExtUnit | SegmentEnd | LogEnd | Damage


def is_ext_address(tags_code: int) -> bool:
    """Return whether a tags code is the address of an extension unit; a hash code is never below the int minimum."""
    return tags_code <= _ADDRESS_MAX


def ext_address(position: int) -> int:
    """Return the tags code that stands for the extension unit at `position` of the extension's stream."""
    assert 0 <= position <= EXT_POSITION_MAX
    return position + LONG_MIN


def ext_position(address: int) -> int:
    """Return the position of the unit with an address in the extension's stream."""
    assert is_ext_address(address)
    return address - LONG_MIN


def ext_unit_fits(unit_bytes: int, room: int) -> bool:
    """Return whether a unit fits: a file keeps room for its end."""
    return unit_bytes <= room - _END_ROOM_BYTES


def encode_ext_unit(unit: QueueExtUnit) -> bytes:
    assert unit.size_bytes <= EXT_UNIT_BYTES_MAX
    fixed = QUEUE_EXT_UNIT.struct.pack(unit.size_bytes, unit.tags_code, unit.store_timestamp_ms, len(unit.bitmap))
    return fixed + unit.bitmap


def decode_ext_unit(buffer: Bytes, position: int = 0) -> QueueExtUnit:
    """Return the unit at `position`."""
    available = len(buffer) - position
    if available < EXT_UNIT_BYTES_MIN:
        raise Truncated(field="queue ext unit", needed=EXT_UNIT_BYTES_MIN, got=available, position=position)
    size, tags_code, store_timestamp_ms, bitmap_bytes = QUEUE_EXT_UNIT.struct.unpack_from(buffer, position)
    if size < EXT_UNIT_BYTES_MIN or bitmap_bytes < 0:
        raise BadField(f"invalid: {size} bytes, bitmap of {bitmap_bytes}", field="queue ext unit", position=position)
    if size != EXT_UNIT_BYTES_MIN + bitmap_bytes:
        counted = EXT_UNIT_BYTES_MIN + bitmap_bytes
        raise LengthMismatch(field="queue ext unit", stated=size, counted=counted, position=position)
    if size > available:
        raise Truncated(field="queue ext bitmap", needed=size, got=available, position=position)
    bitmap = bytes(buffer[position + EXT_UNIT_BYTES_MIN : position + size])
    return QueueExtUnit(tags_code, store_timestamp_ms, bitmap)


def read_ext_unit_at(buffer: Bytes, position: int) -> QueueExtFound:
    """Return the unit, end, zeros or damage at `position` of an extension file; `buffer` ends with the file."""
    room = len(buffer) - position
    if room >= _SIZE.size:
        (size,) = _SIZE.unpack_from(buffer, position)
        if size == _FILE_END:
            return SegmentEnd(position, room)
        if size == 0:
            return LogEnd(position)
    try:
        return decode_ext_unit(buffer, position)
    except FormatError as error:
        return Damage(position, error)


def scan_ext_file(buffer: Bytes, start: int = 0) -> Iterator[tuple[int, QueueExtFound]]:
    """Scan an extension file, as `scan_units` does."""
    return scan_units(
        buffer, start, read_ext_unit_at, lambda found: found.size_bytes if isinstance(found, QueueExtUnit) else None
    )


def scan_units(
    buffer: Bytes, start: int, read_at: Callable[[Bytes, int], Found], size_of: Callable[[Found], int | None]
) -> Iterator[tuple[int, Found]]:
    """Yield position and unit from `start` on, then the reason for stopping; no reason if the bytes just end.

    `size_of` returns the bytes of a unit, and None for a reason. The timer log is scanned by it as well.
    """
    position = start
    while position < len(buffer):
        found = read_at(buffer, position)
        yield position, found
        size_bytes = size_of(found)
        if size_bytes is None:
            return
        position += size_bytes
