from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import BadField, FormatError, LengthMismatch, Truncated
from orbitlog.formats.derived.queue_ext import (
    EXT_FILE_END_RAW,
    EXT_POSITION_MAX,
    EXT_UNIT_BYTES_MAX,
    EXT_UNIT_BYTES_MIN,
    QueueExtUnit,
    decode_ext_unit,
    encode_ext_unit,
    ext_address,
    ext_position,
    ext_unit_fits,
    is_ext_address,
    scan_ext_file,
)
from orbitlog.formats.java import INT_MIN, LONG_MAX, LONG_MIN
from orbitlog.formats.records.message_scan import Damage, LogEnd, SegmentEnd
from tests.support.damage import gives_value_or_format_error, repeatable

# Two files of 128 bytes that Java's ConsumeQueueExt (4.9.7) wrote: five units, the fourth without a bitmap.
BITMAP = bytes.fromhex("0000000000001000000000000000")
UNITS = [QueueExtUnit(2598919 + number, 1700000000000 + number, b"" if number == 3 else BITMAP) for number in range(5)]
FIRST_FILE = bytes.fromhex(
    "0022000000000027a8070000018bcfe56800000e0000000000001000000000000000"
    "0022000000000027a8080000018bcfe56801000e0000000000001000000000000000"
    "0022000000000027a8090000018bcfe56802000e0000000000001000000000000000"
    "0014000000000027a80a0000018bcfe568030000ffff00000000"
)
SECOND_FILE = bytes.fromhex("0022000000000027a80b0000018bcfe56804000e0000000000001000000000000000").ljust(128, b"\0")


def test_golden_files_scan() -> None:
    assert list(scan_ext_file(FIRST_FILE)) == [
        (0, UNITS[0]),
        (34, UNITS[1]),
        (68, UNITS[2]),
        (102, UNITS[3]),
        (122, SegmentEnd(122, 6)),
    ]
    assert list(scan_ext_file(SECOND_FILE)) == [(0, UNITS[4]), (34, LogEnd(34))]


def test_golden_files_encode() -> None:
    first = b"".join(encode_ext_unit(unit) for unit in UNITS[:4]) + EXT_FILE_END_RAW
    assert first.ljust(128, b"\0") == FIRST_FILE
    assert encode_ext_unit(UNITS[4]).ljust(128, b"\0") == SECOND_FILE


def test_a_unit_fits_where_java_puts_it() -> None:
    assert ext_unit_fits(34, 128 - 68)
    assert not ext_unit_fits(34, 128 - 102)
    assert ext_unit_fits(20, 24)
    assert not ext_unit_fits(20, 23)


@pytest.mark.parametrize(
    ("address", "position"),
    [
        (-9223372036854775808, 0),
        (-9223372036854775774, 34),
        (-9223372036854775680, 128),
        (INT_MIN - 1, EXT_POSITION_MAX),
    ],
)
def test_addresses_are_java_s(address: int, position: int) -> None:
    assert ext_address(position) == address
    assert ext_position(address) == position
    assert is_ext_address(address)


def test_a_hash_code_is_no_address() -> None:
    assert not any(is_ext_address(code) for code in (INT_MIN, -1, 0, 2598919, LONG_MAX))
    assert is_ext_address(LONG_MIN)
    assert EXT_POSITION_MAX == 9223372034707292159


def test_every_truncation_is_noticed() -> None:
    raw = encode_ext_unit(UNITS[0])
    for length in range(len(raw)):
        with pytest.raises(Truncated):
            decode_ext_unit(raw[:length])


def test_damage_is_a_format_error() -> None:
    gives_value_or_format_error(decode_ext_unit, encode_ext_unit(UNITS[0]))


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ("0013" + "00" * 16 + "0000", BadField),
        ("fffe" + "00" * 16 + "0000", BadField),
        ("0014" + "00" * 16 + "ffff", BadField),
        ("0014" + "00" * 16 + "0001" + "00", LengthMismatch),
        ("7fff" + "00" * 16 + "7feb", Truncated),
    ],
)
def test_impossible_lengths(raw: str, error: type[FormatError]) -> None:
    data = bytes.fromhex(raw)
    with pytest.raises(error):
        decode_ext_unit(data)
    [(position, found)] = scan_ext_file(data)
    assert position == 0
    assert isinstance(found, Damage)
    assert isinstance(found.error, error)


def test_a_file_that_ends_within_a_size_is_damaged() -> None:
    *_, (position, found) = scan_ext_file(encode_ext_unit(UNITS[3]) + b"\0")
    assert position == EXT_UNIT_BYTES_MIN
    assert isinstance(found, Damage)


@repeatable
@given(
    st.lists(
        st.builds(
            QueueExtUnit,
            st.integers(LONG_MIN, LONG_MAX),
            st.integers(LONG_MIN, LONG_MAX),
            st.binary(max_size=40) | st.just(bytes(EXT_UNIT_BYTES_MAX - EXT_UNIT_BYTES_MIN)),
        ),
        max_size=6,
    )
)
def test_round_trip(units: list[QueueExtUnit]) -> None:
    data = b"".join(map(encode_ext_unit, units))
    assert [found for _, found in scan_ext_file(data)] == units
    assert [found for _, found in scan_ext_file(memoryview(data + b"\0\0"))] == [*units, LogEnd(len(data))]
