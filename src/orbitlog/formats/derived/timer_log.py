"""The timer log: one unit for each message put on the timer wheel (5.x).

Files of fixed size, units back to back; a unit names the one before it in the same slot, so a slot's messages
form a list that is walked backwards. A file ends with a BLANK of 16 bytes that refers to the next file.
Mirrors Java `TimerLog` and `TimerMessageStore.doEnqueue`. Positions called `log_position` are bytes from the start
of the timer log, over all of its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orbitlog.errors import BadField, BadMagic, FormatError, LengthMismatch, LimitExceeded, Misplaced, Truncated
from orbitlog.formats.derived.queue_ext import scan_units
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import Bytes
from orbitlog.formats.records.message_scan import MAGIC_BLANK, Damage, LogEnd, SegmentEnd

TIMER_LOG_UNIT = Layout(
    "Timer log unit",
    Field("size_bytes", "i32", "of this unit: 52"),
    Field("previous_log_position", "i64", "the unit before it in the same slot, -1 for the first"),
    Field("magic", "u32", "bit 0 always, bit 1 to be put on the wheel again, bit 2 a deletion"),
    Field("write_time_ms", "i64", "when it was put on the wheel"),
    Field("delay_ms", "i32", "delivery time minus write time"),
    Field("physical_offset", "i64", "the message's record in the CommitLog"),
    Field("record_bytes", "i32", "length of that record"),
    Field("real_topic_hash", "i32", "hash code of the topic that it will be delivered to"),
    Field("reserved", "i64", "0"),
)
TIMER_LOG_BLANK = Layout(
    "Timer log, end of a file",
    Field("size_bytes", "i32", "bytes from here to the end of the file"),
    Field("unused", "i64", "0"),
    Field("magic", "u32", f"0x{MAGIC_BLANK:08X}"),
)
TIMER_UNIT_BYTES = TIMER_LOG_UNIT.size_bytes
assert TIMER_UNIT_BYTES == 52
assert TIMER_LOG_BLANK.size_bytes == 16
assert TIMER_LOG_BLANK.position("magic") == TIMER_LOG_UNIT.position("magic")

MAGIC_DEFAULT = 1
MAGIC_ROLL = 2
MAGIC_DELETE = 4
_MAGIC_MASK = 0xF
_NO_PREVIOUS = -1


@dataclass(frozen=True, slots=True)
class TimerLogUnit:
    previous_log_position: int | None
    write_time_ms: int
    delay_ms: int
    physical_offset: int
    record_bytes: int
    real_topic_hash: int
    magic: int = MAGIC_DEFAULT
    reserved: int = 0

    @property
    def due_time_ms(self) -> int:
        return self.write_time_ms + self.delay_ms

    @property
    def is_roll(self) -> bool:
        """Whether it is due later than the wheel reaches: at `due_time_ms` it is put on the wheel again."""
        return bool(self.magic & MAGIC_ROLL)

    @property
    def is_delete(self) -> bool:
        """It takes another message off the wheel."""
        return bool(self.magic & MAGIC_DELETE)


TimerLogFound = TimerLogUnit | SegmentEnd | LogEnd | Damage


def encode_timer_unit(unit: TimerLogUnit) -> bytes:
    return TIMER_LOG_UNIT.struct.pack(
        TIMER_UNIT_BYTES,
        _NO_PREVIOUS if unit.previous_log_position is None else unit.previous_log_position,
        unit.magic,
        unit.write_time_ms,
        unit.delay_ms,
        unit.physical_offset,
        unit.record_bytes,
        unit.real_topic_hash,
        unit.reserved,
    )


def encode_timer_blank(room: int) -> bytes:
    """Return the 16 bytes that end a file with `room` bytes left."""
    assert room >= TIMER_LOG_BLANK.size_bytes
    return TIMER_LOG_BLANK.struct.pack(room, 0, MAGIC_BLANK)


def timer_unit_fits(room: int) -> bool:
    """Return whether a unit fits: a file always keeps room for its BLANK."""
    return TIMER_UNIT_BYTES + TIMER_LOG_BLANK.size_bytes <= room


def decode_timer_unit(buffer: Bytes, position: int = 0) -> TimerLogUnit:
    """Return the unit at `position`."""
    if len(buffer) - position < TIMER_UNIT_BYTES:
        raise Truncated(field="timer log unit", needed=TIMER_UNIT_BYTES, got=len(buffer) - position, position=position)
    size, previous, magic, write_time_ms, delay_ms, *rest = TIMER_LOG_UNIT.struct.unpack_from(buffer, position)
    physical_offset, record_bytes, real_topic_hash, reserved = rest
    if size != TIMER_UNIT_BYTES:
        raise LengthMismatch(field="timer log unit", stated=size, counted=TIMER_UNIT_BYTES, position=position)
    if magic & ~_MAGIC_MASK:
        raise BadMagic(field="timer log unit", got=magic, position=position)
    if previous < _NO_PREVIOUS or physical_offset < 0 or record_bytes <= 0:
        problem = f"invalid: previous {previous}, record at {physical_offset} of {record_bytes} bytes"
        raise BadField(problem, field="timer log unit", position=position)
    return TimerLogUnit(
        previous_log_position=None if previous == _NO_PREVIOUS else previous,
        write_time_ms=write_time_ms,
        delay_ms=delay_ms,
        physical_offset=physical_offset,
        record_bytes=record_bytes,
        real_topic_hash=real_topic_hash,
        magic=magic,
        reserved=reserved,
    )


def read_timer_unit_at(buffer: Bytes, position: int) -> TimerLogFound:
    """Return the unit, BLANK, zeros or damage at `position` of a timer log file; `buffer` ends with the file."""
    room = len(buffer) - position
    if room >= TIMER_LOG_BLANK.size_bytes:
        size, previous, magic = TIMER_LOG_BLANK.struct.unpack_from(buffer, position)
        if size == previous == magic == 0:
            return LogEnd(position)
        if magic == MAGIC_BLANK:
            if size == room:
                return SegmentEnd(position, size)
            error = LengthMismatch(field="timer log file end", stated=size, counted=room, position=position)
            return Damage(position, error)
    try:
        return decode_timer_unit(buffer, position)
    except FormatError as error:
        return Damage(position, error)


def scan_timer_log(buffer: Bytes, start: int = 0) -> Iterator[tuple[int, TimerLogFound]]:
    """Scan a timer log file, as `scan_units` does."""
    return scan_units(
        buffer, start, read_timer_unit_at, lambda found: TIMER_UNIT_BYTES if isinstance(found, TimerLogUnit) else None
    )


def walk_slot(
    read_unit: Callable[[int], Bytes], last_log_position: int, *, units_max: int = INT_MAX
) -> Iterator[tuple[int, TimerLogUnit]]:
    """Yield log position and unit of a slot's messages, last first.

    `read_unit(log_position)` gives the 52 bytes there. Each unit must name one before itself, so damage cannot make
    the walk go round in a circle.
    """
    log_position: int | None = last_log_position
    for _ in range(units_max):
        if log_position is None:
            return
        unit = decode_timer_unit(read_unit(log_position))
        yield log_position, unit
        previous = unit.previous_log_position
        if previous is not None and previous > log_position - TIMER_UNIT_BYTES:
            raise Misplaced(field="previous timer log unit", stated=previous, actual=log_position)
        log_position = previous
    if log_position is not None:
        raise LimitExceeded(field="timer slot units", limit=units_max, got="a longer list")
