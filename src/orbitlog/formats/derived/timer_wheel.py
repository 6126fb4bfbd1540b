"""Timer wheel: for each second of two turns, the timer log positions of the messages due then (5.x).

One file of fixed size. The slot of a time is found by arithmetic; the wheel turns over itself, so a slot counts
only when the time it holds is the time asked for. Mirrors Java `TimerWheel` and `Slot`. Positions are bytes from
the start of the timer log, over all of its files; `timer_log` walks from a slot's last unit back to its first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orbitlog.errors import BadField, LengthMismatch, Truncated
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import Bytes

TIMER_SLOT = Layout(
    "Timer wheel slot",
    Field("time", "i64", "delivery time in units of the precision (seconds)"),
    Field("first_log_position", "i64", "timer log unit of the first message"),
    Field("last_log_position", "i64", "timer log unit of the last message; from it the list runs backwards"),
    Field("message_count", "i32", "messages due, deletions subtracted"),
    Field("magic", "i32", "not used, 0"),
)
SLOT_BYTES = TIMER_SLOT.size_bytes
assert SLOT_BYTES == 32

TURN_SLOTS_DEFAULT = 7 * 24 * 3600
PRECISION_MS_DEFAULT = 1000
_TURNS = 2
_ZEROS = bytes(4096 * SLOT_BYTES)


@dataclass(frozen=True, slots=True)
class TimerSlot:
    time_ms: int
    first_log_position: int
    last_log_position: int
    message_count: int
    magic: int = 0


def wheel_bytes(turn_slots: int = TURN_SLOTS_DEFAULT) -> int:
    """Return the size of the file."""
    return _TURNS * turn_slots * SLOT_BYTES


def turn_slots_of(size_bytes: int) -> int:
    """Return how many slots a turn has in a wheel file of that size."""
    turn_slots, rest = divmod(size_bytes, _TURNS * SLOT_BYTES)
    if rest or not turn_slots:
        raise LengthMismatch(field="timer wheel", stated=size_bytes, counted=wheel_bytes(turn_slots))
    return turn_slots


def slot_position(time_ms: int, *, turn_slots: int, precision_ms: int = PRECISION_MS_DEFAULT) -> int:
    """Return the position of the slot of a timestamp."""
    assert time_ms >= 0
    return time_ms // precision_ms % (_TURNS * turn_slots) * SLOT_BYTES


def encode_slot(slot: TimerSlot, *, precision_ms: int = PRECISION_MS_DEFAULT) -> bytes:
    return TIMER_SLOT.struct.pack(
        slot.time_ms // precision_ms,
        slot.first_log_position,
        slot.last_log_position,
        slot.message_count,
        slot.magic,
    )


def decode_slot(buffer: Bytes, position: int = 0, *, precision_ms: int = PRECISION_MS_DEFAULT) -> TimerSlot | None:
    """Return the slot at `position`, or None if it was never written (all zero)."""
    if len(buffer) - position < SLOT_BYTES:
        raise Truncated(field="timer slot", needed=SLOT_BYTES, got=len(buffer) - position, position=position)
    time, first, last, count, magic = TIMER_SLOT.struct.unpack_from(buffer, position)
    if time == first == last == count == magic == 0:
        return None
    if time < 0 or first < -1 or last < -1:
        raise BadField(f"invalid: time {time}, positions {first} to {last}", field="timer slot", position=position)
    return TimerSlot(time * precision_ms, first, last, count, magic)


def find_slot(wheel: Bytes, time_ms: int, *, precision_ms: int = PRECISION_MS_DEFAULT) -> TimerSlot | None:
    """Return the slot for a delivery timestamp from a whole wheel, or None if nothing is due then."""
    turn_slots = turn_slots_of(len(wheel))
    position = slot_position(time_ms, turn_slots=turn_slots, precision_ms=precision_ms)
    slot = decode_slot(wheel, position, precision_ms=precision_ms)
    if slot is None or slot.time_ms != time_ms // precision_ms * precision_ms:
        return None
    return slot


def scan_wheel(wheel: Bytes, *, precision_ms: int = PRECISION_MS_DEFAULT) -> Iterator[tuple[int, TimerSlot]]:
    """Yield position and slot of every slot ever written, in the order of the file."""
    turn_slots_of(len(wheel))
    view = memoryview(wheel)
    for start in range(0, len(view), len(_ZEROS)):
        chunk = view[start : start + len(_ZEROS)]
        if chunk == _ZEROS[: len(chunk)]:
            continue
        for position in range(start, start + len(chunk), SLOT_BYTES):
            slot = decode_slot(view, position, precision_ms=precision_ms)
            if slot is not None:
                yield position, slot
