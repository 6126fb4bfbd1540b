from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import BadField, BadMagic, FormatError, LengthMismatch, LimitExceeded, Misplaced, Truncated
from orbitlog.formats.derived.timer_log import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    TIMER_UNIT_BYTES,
    TimerLogUnit,
    decode_timer_unit,
    encode_timer_blank,
    encode_timer_unit,
    scan_timer_log,
    timer_unit_fits,
    walk_slot,
)
from orbitlog.formats.derived.timer_wheel import scan_wheel
from orbitlog.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from orbitlog.formats.records.message_scan import Damage, LogEnd, SegmentEnd
from orbitlog.testing.golden import GoldenStore
from tests.support.damage import gives_value_or_format_error, repeatable

# The eighth unit of the golden store: it takes the seventh off the wheel again.
UNIT = TimerLogUnit(
    previous_log_position=312,
    write_time_ms=0x1A1DE611DC8,
    delay_ms=0x6DD148,
    physical_offset=0x210D,
    record_bytes=0x17B,
    real_topic_hash=-891915716,
    magic=MAGIC_DEFAULT | MAGIC_DELETE,
)
RAW = bytes.fromhex(
    "00000034" "0000000000000138" "00000005" "000001a1de611dc8" "006dd148" "000000000000210d" "0000017b" "cad6723c"
    "0000000000000000"
)  # fmt: skip


def reader(log: bytes) -> Callable[[int], bytes]:
    return lambda log_position: log[log_position : log_position + TIMER_UNIT_BYTES]


def test_bytes_both_ways() -> None:
    assert encode_timer_unit(UNIT) == RAW
    assert decode_timer_unit(RAW) == UNIT
    assert UNIT.is_delete
    assert not UNIT.is_roll


def test_golden_log(golden_550_crash: GoldenStore) -> None:
    log = (golden_550_crash.store / "timerlog" / "00000000000000000000").read_bytes()
    *units, (end, why) = scan_timer_log(log)
    assert why == LogEnd(end)
    assert len(units) == 29
    assert b"".join(encode_timer_unit(unit) for _, unit in units if isinstance(unit, TimerLogUnit)) == log[:end]
    by_record = {message["commitLogOffset"]: message for message in golden_550_crash.manifest["messages"]}
    for _, unit in units:
        assert isinstance(unit, TimerLogUnit)
        message = by_record[unit.physical_offset]
        assert message["topic"] == "rmq_sys_wheel_timer"
        assert message["storeSize"] == unit.record_bytes
        assert unit.is_roll or unit.due_time_ms // 1000 * 1000 == int(message["properties"]["TIMER_OUT_MS"])


def test_golden_slots_are_walked(golden_550_crash: GoldenStore) -> None:
    log = (golden_550_crash.store / "timerlog" / "00000000000000000000").read_bytes()
    wheel = (golden_550_crash.store / "timerwheel").read_bytes()
    walked = 0
    for _, slot in scan_wheel(wheel):
        listed = list(walk_slot(reader(log), slot.last_log_position))
        assert listed[-1][0] == slot.first_log_position
        assert {unit.due_time_ms for _, unit in listed} == {slot.time_ms}
        assert sum(-1 if unit.is_delete else 1 for _, unit in listed) == slot.message_count
        walked += len(listed)
    assert walked == 29


def test_a_file_ends_with_a_blank() -> None:
    room = 40
    assert not timer_unit_fits(room)
    assert timer_unit_fits(68)
    assert not timer_unit_fits(67)
    assert encode_timer_blank(room).hex() == "000000280000000000000000cbd43194"
    file = RAW + encode_timer_blank(room).ljust(room, b"\0")
    assert list(scan_timer_log(file)) == [(0, UNIT), (52, SegmentEnd(52, room))]


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        (encode_timer_blank(40) + bytes(25), LengthMismatch),
        (RAW[:-1], Truncated),
        (b"\0" * 10, Truncated),
        (b"\0\0\0\x33" + RAW[4:], LengthMismatch),
        (RAW[:12] + b"\0\0\0\x10" + RAW[16:], BadMagic),
        (RAW[:4] + b"\xff" * 7 + b"\xfe" + RAW[12:], BadField),
        (RAW[:28] + b"\x80" + RAW[29:], BadField),
        (RAW[:36] + bytes(4) + RAW[40:], BadField),
    ],
)
def test_damage_stops_a_scan(tail: bytes, error: type[FormatError]) -> None:
    [(_, unit), (position, found)] = scan_timer_log(RAW + tail)
    assert unit == UNIT
    assert position == TIMER_UNIT_BYTES
    assert isinstance(found, Damage)
    assert isinstance(found.error, error)


def test_every_truncation_is_noticed() -> None:
    for length in range(TIMER_UNIT_BYTES):
        with pytest.raises(Truncated):
            decode_timer_unit(RAW[:length])


def test_flipped_bytes_are_a_value_or_a_format_error() -> None:
    gives_value_or_format_error(decode_timer_unit, RAW)
    gives_value_or_format_error(lambda data: list(scan_timer_log(data)), RAW + encode_timer_blank(20) + bytes(4))


@pytest.mark.parametrize("previous", [52, 53, 1000, LONG_MAX])
def test_a_walk_does_not_go_round_in_a_circle(previous: int) -> None:
    log = bytes(52) + encode_timer_unit(replace(UNIT, previous_log_position=previous))
    walk = walk_slot(reader(log), 52)
    assert next(walk)[0] == 52
    with pytest.raises(Misplaced):
        next(walk)


def test_a_walk_over_missing_bytes_is_a_format_error() -> None:
    with pytest.raises(Truncated):
        list(walk_slot(reader(b""), 52))


def test_a_walk_has_a_limit() -> None:
    log = b"".join(
        encode_timer_unit(replace(UNIT, previous_log_position=None if n == 0 else (n - 1) * 52)) for n in range(5)
    )
    assert [position for position, _ in walk_slot(reader(log), 208, units_max=5)] == [208, 156, 104, 52, 0]
    with pytest.raises(LimitExceeded):
        list(walk_slot(reader(log), 208, units_max=4))


@repeatable
@given(
    st.builds(
        TimerLogUnit,
        previous_log_position=st.none() | st.integers(0, LONG_MAX),
        write_time_ms=st.integers(LONG_MIN, LONG_MAX),
        delay_ms=st.integers(INT_MIN, INT_MAX),
        physical_offset=st.integers(0, LONG_MAX),
        record_bytes=st.integers(1, INT_MAX),
        real_topic_hash=st.integers(INT_MIN, INT_MAX),
        magic=st.sampled_from([MAGIC_DEFAULT, MAGIC_DEFAULT | MAGIC_ROLL, MAGIC_DEFAULT | MAGIC_DELETE, 15]),
        reserved=st.integers(LONG_MIN, LONG_MAX),
    )
)
def test_round_trip(unit: TimerLogUnit) -> None:
    assert decode_timer_unit(b"x" + encode_timer_unit(unit), 1) == unit
