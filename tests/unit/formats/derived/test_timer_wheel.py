from __future__ import annotations

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import BadField, LengthMismatch, Truncated
from orbitlog.formats.derived.timer_wheel import (
    SLOT_BYTES,
    TURN_SLOTS_DEFAULT,
    TimerSlot,
    decode_slot,
    encode_slot,
    find_slot,
    scan_wheel,
    slot_position,
    turn_slots_of,
    wheel_bytes,
)
from orbitlog.formats.java import INT_MAX, INT_MIN, LONG_MAX
from orbitlog.testing.golden import GoldenStore
from tests.support.damage import gives_value_or_format_error, repeatable

SLOT = TimerSlot(
    time_ms=1794732281000, first_log_position=468, last_log_position=780, message_count=5
)  # one of the golden store
RAW = bytes.fromhex("000000006af970f9" + "00000000000001d4" + "000000000000030c" + "00000005" + "00000000")


def test_bytes_both_ways() -> None:
    assert encode_slot(SLOT) == RAW
    assert decode_slot(RAW) == SLOT


def test_golden_wheel(golden_550_crash: GoldenStore) -> None:
    wheel = (golden_550_crash.store / "timerwheel").read_bytes()
    assert len(wheel) == wheel_bytes()
    assert turn_slots_of(len(wheel)) == TURN_SLOTS_DEFAULT
    recorded = golden_550_crash.manifest["timerSlots"]
    assert len(recorded) == 13
    for fact in recorded:
        assert slot_position(fact["timerOutMs"], turn_slots=TURN_SLOTS_DEFAULT) == fact["slotIndex"] * SLOT_BYTES
        expected = TimerSlot(fact["slotTimeMs"], fact["firstPos"], fact["lastPos"], fact["num"], fact["magic"])
        assert find_slot(wheel, fact["timerOutMs"]) == (None if fact["slotTimeMs"] == -1 else expected)


def test_golden_wheel_is_written_again(golden_550_crash: GoldenStore) -> None:
    wheel = (golden_550_crash.store / "timerwheel").read_bytes()
    written = bytearray(len(wheel))
    slots = list(scan_wheel(wheel))
    assert len(slots) == 13
    for position, slot in slots:
        assert position == slot_position(slot.time_ms, turn_slots=TURN_SLOTS_DEFAULT)
        written[position : position + SLOT_BYTES] = encode_slot(slot)
    assert written == wheel


def test_a_slot_of_another_turn_is_not_found() -> None:
    turn_slots = 8
    wheel = bytearray(wheel_bytes(turn_slots))
    slot = TimerSlot(5_000, 0, 52, 2)
    position = slot_position(5_000, turn_slots=turn_slots)
    wheel[position : position + SLOT_BYTES] = encode_slot(slot)
    assert position == 5 * SLOT_BYTES
    assert find_slot(wheel, 5_999) == slot
    assert find_slot(wheel, 5_000 + 2 * turn_slots * 1000) is None
    assert find_slot(wheel, 6_000) is None


def test_another_precision() -> None:
    slot = TimerSlot(123_400, 0, 0, 1)
    raw = encode_slot(slot, precision_ms=100)
    assert decode_slot(raw, precision_ms=100) == slot
    assert raw[:8] == (1234).to_bytes(8, "big")


def test_every_truncation_is_noticed() -> None:
    for length in range(SLOT_BYTES):
        with pytest.raises(Truncated):
            decode_slot(RAW[:length])


def test_damage_is_a_format_error() -> None:
    gives_value_or_format_error(decode_slot, RAW)


@pytest.mark.parametrize("position", [0, 8, 16])
def test_negative_numbers_are_refused(position: int) -> None:
    with pytest.raises(BadField):
        decode_slot(RAW[:position] + b"\xff" * 7 + b"\xfe" + RAW[position + 8 :])


@pytest.mark.parametrize("size_bytes", [0, 1, 32, 63, 65, 96])
def test_a_file_of_another_size_is_no_wheel(size_bytes: int) -> None:
    with pytest.raises(LengthMismatch):
        list(scan_wheel(bytes(size_bytes)))


def test_a_mapped_wheel_is_scanned_without_leaving_a_view() -> None:
    with mmap.mmap(-1, wheel_bytes(10_000)) as mapped:
        position = slot_position(SLOT.time_ms, turn_slots=10_000)
        mapped[position : position + SLOT_BYTES] = RAW
        with memoryview(mapped) as view:
            assert list(scan_wheel(view)) == [(position, SLOT)]


@repeatable
@given(
    st.builds(
        TimerSlot,
        time_ms=st.integers(1, LONG_MAX // 1000).map(lambda seconds: seconds * 1000),
        first_log_position=st.integers(-1, LONG_MAX),
        last_log_position=st.integers(-1, LONG_MAX),
        message_count=st.integers(INT_MIN, INT_MAX),
        magic=st.integers(INT_MIN, INT_MAX),
    )
)
def test_round_trip(slot: TimerSlot) -> None:
    assert decode_slot(b"x" + encode_slot(slot), 1) == slot
