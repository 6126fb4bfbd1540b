"""The property CRC: appended as Java does, replaced when a message is stored as a copy, checked in the log."""

from __future__ import annotations

from zlib import crc32

import pytest

from orbitlog.errors import ChecksumMismatch
from orbitlog.formats.records.message import BODY_CRC_MASK, Message, decode_message, encode_message, make_message
from orbitlog.formats.records.properties import PROPERTIES_BYTES_MAX, check_crc_property
from orbitlog.formats.records.property_crc import (
    encode_sealed_run,
    ends_with_crc,
    seal_record,
    with_room_for_crc,
    without_crc,
)
from orbitlog.formats.records.record_template import RecordTemplate, Row, template_of

# A record of Apache's 5.5.0 broker with enabledAppendPropCRC: the digits of 2122799909.
DIGITS = b"__CRC32#\x019099972212\x02"


def sealed(properties: bytes, physical_offset: int = 0) -> bytes:
    message = make_message("T", b"body", properties=with_room_for_crc(properties), physical_offset=physical_offset)
    return seal_record(encode_message(message))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"A\x01b\x02", b"A\x01b\x02"),
        (DIGITS, b""),
        (b"A\x01b\x02" + DIGITS, b"A\x01b\x02"),
        (DIGITS + b"A\x01b\x02", b"A\x01b\x02"),
        (DIGITS[:-1], b""),
        (b"A\x01b\x02" + DIGITS[:-1], b"A\x01b\x02"),
        (DIGITS + DIGITS + b"A\x01b", b"A\x01b"),
        (b"A\x01b" + DIGITS, b"A\x01b" + DIGITS),  # part of the value: what Java leaves, too
        (b"x__CRC32#\x01b\x02", b"x__CRC32#\x01b\x02"),
    ],
)
def test_without_crc_removes_each_as_java_does(before: bytes, after: bytes) -> None:
    assert without_crc(before) == after


@pytest.mark.parametrize("properties", [b"", b"A\x01b", b"A\x01b\x02", b"A\x01b\x02" + DIGITS])
def test_sealed_record_is_accepted(properties: bytes) -> None:
    record = sealed(properties)
    message = decode_message(record, physical_offset=0)
    assert ends_with_crc(message.properties_raw)
    assert check_crc_property(record)
    assert message.properties_raw.count(b"__CRC32#") == 1
    rest = message.properties_raw[:-20]
    assert rest == (b"" if not properties else b"A\x01b\x02")


def test_value_that_swallowed_the_crc_is_none() -> None:
    assert not ends_with_crc(b"A\x01b" + DIGITS)
    assert ends_with_crc(DIGITS)
    assert not ends_with_crc(DIGITS[1:])


def test_damaged_properties_are_found_in_a_log_and_not_elsewhere() -> None:
    record = bytearray(sealed(b"A\x01b\x02", physical_offset=7))
    record[-22] ^= 1
    with pytest.raises(ChecksumMismatch) as caught:
        decode_message(b"12345" + record, 5, physical_offset=7)
    assert (caught.value.field, caught.value.position) == ("property __CRC32#", 5)
    assert decode_message(record, physical_offset=7, check_crc=False).properties["A"] == "c"
    assert decode_message(record).properties["A"] == "c", "a client gets records that a broker has changed"


def rows(*properties: bytes) -> list[Row]:
    template = template_of(make_message("T", b""))
    assert isinstance(template, RecordTemplate)
    bodies = [b"body %d" % number for number in range(len(properties))]
    return [
        (template, ("T", 3), 11, crc32(body) & BODY_CRC_MASK, body, raw)
        for body, raw in zip(bodies, properties, strict=True)
    ]


def test_run_has_the_bytes_of_single_records() -> None:
    offsets: dict[tuple[str, int], int] = {("T", 3): 5}
    raw, places = encode_sealed_run(rows(b"", b"A\x01b", b"A\x01b\x02"), offsets, 1000, 12, 10_000)
    assert [queue_offset for _, queue_offset in places] == [5, 6, 7]
    assert offsets == {("T", 3): 8}
    expected = b""
    for number, properties in enumerate((b"", b"A\x01b", b"A\x01b\x02")):
        message = make_message(
            "T",
            b"body %d" % number,
            properties=with_room_for_crc(properties),
            queue_id=3,
            queue_offset=5 + number,
            physical_offset=1000 + len(expected),
            born_timestamp_ms=11,
            store_timestamp_ms=12,
        )
        expected += seal_record(encode_message(message))
    assert raw == expected


def test_run_ends_before_properties_without_room_for_the_crc() -> None:
    fits = b"A\x01" + b"x" * (PROPERTIES_BYTES_MAX - 23) + b"\x02"
    too_long = b"A\x01" + b"x" * (PROPERTIES_BYTES_MAX - 22) + b"\x02"
    raw, places = encode_sealed_run(rows(fits, too_long, b""), {}, 0, 12, 100_000)
    assert len(places) == 1
    message = decode_message(raw, physical_offset=0)
    assert isinstance(message, Message) and len(message.properties_raw) == PROPERTIES_BYTES_MAX
    assert encode_sealed_run(rows(too_long), {}, 0, 12, 100_000) == (b"", [])
