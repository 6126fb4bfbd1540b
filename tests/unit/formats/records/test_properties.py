from __future__ import annotations

import zlib

import pytest

from orbitlog.errors import BadField, ChecksumMismatch
from orbitlog.formats.records.properties import (
    CRC32,
    CRC_PROPERTY_BYTES,
    append_crc_property,
    check_crc_property,
    decode_properties,
    encode_properties,
    join_properties,
)


@pytest.mark.parametrize(
    ("properties", "trailing", "raw"),
    [
        ({}, True, b""),
        ({}, False, b""),
        ({"a": "1"}, True, b"a\x011\x02"),
        ({"a": "1"}, False, b"a\x011"),
        ({"a": "1", "b": "2"}, True, b"a\x011\x02b\x012\x02"),
        ({"a": "1", "b": "2"}, False, b"a\x011\x02b\x012"),
        ({"b": "2", "a": "1"}, False, b"b\x012\x02a\x011"),
        ({"a": "x\x01y"}, True, b"a\x01x\x01y\x02"),
        ({"键": "值\N{GRINNING FACE}"}, True, "键\x01值\N{GRINNING FACE}\x02".encode()),
    ],
)
def test_both_directions(properties: dict[str, str], trailing: bool, raw: bytes) -> None:
    assert encode_properties(properties, trailing_separator=trailing) == raw
    assert decode_properties(raw) == properties
    assert decode_properties(memoryview(raw)) == properties


# What Java 4.9.1 and later make of it, with and without the separator at the end
@pytest.mark.parametrize("end", [b"", b"\x02"])
@pytest.mark.parametrize(
    ("raw", "properties"),
    [
        (b"a\x01", {}),
        (b"\x011", {}),
        (b"\x01", {}),
        (b"\x01\x01", {}),
        (b"\x01\x01x", {}),
        (b"a", {}),
        (b"abc", {}),
        (b"\x02\x02", {}),
        (b"a\x01\x02b\x012", {"b": "2"}),
        (b"abc\x02b\x012", {"b": "2"}),
        (b"a\x01x\x01y", {"a": "x\x01y"}),
        (b"a\x01x\x01", {"a": "x\x01"}),
        (b"a\x01\x01", {"a": "\x01"}),
        (b"a\x011\x02b\x012\x02a\x013", {"a": "3", "b": "2"}),
        (b"a\x011\x02a\x01", {"a": "1"}),
        (b"\x02\x02a\x011\x02\x02", {"a": "1"}),
        (b"\xff\x011", {"\ufffd": "1"}),
        (b"a\x01\xed\xa0\x80", {"a": "\ufffd"}),
    ],
)
def test_odd_items_read_as_java_reads_them(raw: bytes, properties: dict[str, str], end: bytes) -> None:
    assert decode_properties(raw + end) == properties


def test_an_empty_value_is_written_but_not_read() -> None:
    assert encode_properties({"a": "", "b": "2"}) == b"a\x01\x02b\x012\x02"
    assert decode_properties(encode_properties({"a": "", "b": "2"})) == {"b": "2"}


def test_a_lone_surrogate_is_written_as_java_writes_it() -> None:
    assert encode_properties({"a": "\ud83d"}) == b"a\x01?\x02"


@pytest.mark.parametrize("properties", [{"a\x01": "1"}, {"a\x02": "1"}, {"a": "1\x02"}])
def test_separators_are_refused_where_they_would_split(properties: dict[str, str]) -> None:
    with pytest.raises(BadField, match="separator") as caught:
        encode_properties(properties)
    assert caught.value.field == f"property {next(iter(properties))!r}"


@pytest.mark.parametrize(
    ("member", "batch", "joined"),
    [
        (b"", b"", b""),
        (b"a\x011", b"", b"a\x011"),
        (b"", b"b\x012", b"b\x012"),
        (b"a\x011", b"b\x012", b"a\x011\x02b\x012"),
        (b"a\x011\x02", b"b\x012\x02", b"a\x011\x02b\x012\x02"),
    ],
)
def test_batch_properties_follow_after_one_separator(member: bytes, batch: bytes, joined: bytes) -> None:
    assert join_properties(member, batch) == joined


def test_the_crc_property_ends_the_record() -> None:
    record = b"\0" * 30 + b"some record"
    crc = zlib.crc32(record) & 0x7FFFFFFF
    raw = append_crc_property(record)
    assert len(raw) == CRC_PROPERTY_BYTES
    assert raw == CRC32.encode() + b"\x01" + f"{crc:010d}"[::-1].encode() + b"\x02"
    assert check_crc_property(record + raw)
    assert check_crc_property(memoryview(record + raw))
    assert check_crc_property(append_crc_property(b"")), "the property alone is the shortest that has one"


# The last four bytes of each force its CRC.
@pytest.mark.parametrize(
    ("record", "crc", "digits"),
    [
        ("6b6e6f776e452d2849", 2122799909, "9099972212"),
        ("6b6e6f776e96a21d12", 2122799909 | 0x80000000, "9099972212"),
        ("6b6e6f776e9b0ddb7a", 7, "7000000000"),
        ("6b6e6f776e9f141f17", 0, "0000000000"),
    ],
)
def test_the_crc_digits_are_least_significant_first_and_padded(record: str, crc: int, digits: str) -> None:
    raw = bytes.fromhex(record)
    assert zlib.crc32(raw) == crc
    assert append_crc_property(raw) == f"__CRC32#\x01{digits}\x02".encode()
    assert check_crc_property(raw + append_crc_property(raw))


@pytest.mark.parametrize("record", [b"", b"short", b"x" * 19, b"x" * 40, b"__CRC32$\x010000000000\x02"])
def test_a_record_may_have_no_crc_property(record: bytes) -> None:
    assert not check_crc_property(record)


def test_every_flipped_bit_under_the_crc_property_is_seen() -> None:
    record = b"some record of a few bytes"
    whole = record + append_crc_property(record)
    for position in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            if position < len(record) or position >= len(record) + len(CRC32) + 1:
                with pytest.raises(ChecksumMismatch):
                    check_crc_property(damaged)
            else:
                assert not check_crc_property(damaged), "its name is gone"


def test_a_wrong_crc_is_named() -> None:
    record = b"some record"
    crc = zlib.crc32(record) & 0x7FFFFFFF
    with pytest.raises(ChecksumMismatch) as caught:
        check_crc_property(record + CRC32.encode() + b"\x011230000009\x02")
    assert (caught.value.field, caught.value.stored, caught.value.computed) == ("property __CRC32#", 9000000321, crc)
    with pytest.raises(ChecksumMismatch) as caught:
        check_crc_property(record + CRC32.encode() + b"\x01not number\x02")
    assert caught.value.stored == -1
