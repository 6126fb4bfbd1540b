from __future__ import annotations

import struct

import pytest

from orbitlog.errors import BadField, Truncated
from orbitlog.formats.derived.queue_entry import (
    ENTRY_BYTES,
    PRE_BLANK,
    PRE_BLANK_RAW,
    QUEUE_FILE_BYTES_DEFAULT,
    QueueEntry,
    check_queue_file_bytes,
    decode_entry,
    encode_entry,
    locate_entry,
    scan_entries,
)

VECTORS = [
    (QueueEntry(0, 1, 0), "0000000000000000000000010000000000000000"),
    (QueueEntry(566, 157, 2598919), "00000000000002360000009d000000000027a807"),
    (QueueEntry(1, 91, -(2**31)), "00000000000000010000005bffffffff80000000"),
    (QueueEntry(2**63 - 1, 2**31 - 1, -1), "7fffffffffffffff7fffffffffffffffffffffff"),
    (PRE_BLANK, "00000000000000007fffffff0000000000000000"),
]


@pytest.mark.parametrize(("entry", "raw"), VECTORS)
def test_both_directions(entry: QueueEntry, raw: str) -> None:
    assert encode_entry(entry).hex() == raw
    assert decode_entry(bytes.fromhex(raw)) == entry
    assert decode_entry(memoryview(b"x" + bytes.fromhex(raw) + b"y"), 1) == entry


def test_zeros_were_never_written() -> None:
    assert decode_entry(bytes(ENTRY_BYTES)) is None
    assert decode_entry(bytearray(50), 30) is None


def test_only_pre_blank_units_are_pre_blank() -> None:
    assert encode_entry(PRE_BLANK) == PRE_BLANK_RAW
    assert PRE_BLANK.is_pre_blank
    assert QueueEntry(0, 2**31 - 1, 5).is_pre_blank
    assert not QueueEntry(1, 2**31 - 1, 0).is_pre_blank
    assert not QueueEntry(0, 2**31 - 2, 0).is_pre_blank


@pytest.mark.parametrize(
    ("offset", "size", "tags_code"), [(-1, 10, 0), (0, 0, 1), (5, 0, 0), (5, -1, 0), (-(2**63), -(2**31), 0)]
)
def test_a_unit_that_cannot_be(offset: int, size: int, tags_code: int) -> None:
    with pytest.raises(BadField) as caught:
        decode_entry(b"xyz" + struct.pack(">qiq", offset, size, tags_code), 3)
    assert (caught.value.field, caught.value.position) == ("queue entry", 3)
    with pytest.raises(AssertionError):
        encode_entry(QueueEntry(offset, size, tags_code))


@pytest.mark.parametrize("got", range(ENTRY_BYTES))
def test_a_unit_cut_short(got: int) -> None:
    with pytest.raises(Truncated) as caught:
        decode_entry(b"xy" + PRE_BLANK_RAW[:got], 2)
    assert (caught.value.needed, caught.value.got, caught.value.position) == (20, got, 2)


def test_a_scan_ends_where_nothing_was_written() -> None:
    entries = [PRE_BLANK, PRE_BLANK, QueueEntry(5, 100, 7), QueueEntry(105, 100, 8)]
    data = b"".join(map(encode_entry, entries))
    assert list(scan_entries(data)) == entries
    assert list(scan_entries(data, 40)) == entries[2:]
    assert list(scan_entries(data + bytes(200))) == entries
    assert list(scan_entries(b"")) == []
    units = scan_entries(data + b"\0" * 7)
    assert [next(units) for _ in entries] == entries
    with pytest.raises(Truncated):
        next(units)


@pytest.mark.parametrize(
    ("queue_offset", "file_bytes", "location"),
    [
        (0, QUEUE_FILE_BYTES_DEFAULT, (0, 0)),
        (299_999, QUEUE_FILE_BYTES_DEFAULT, (0, 5_999_980)),
        (300_000, QUEUE_FILE_BYTES_DEFAULT, (6_000_000, 0)),
        (300_001, QUEUE_FILE_BYTES_DEFAULT, (6_000_000, 20)),
        (15, 200, (200, 100)),
        (49, 1000, (0, 980)),
        (50, 1000, (1000, 0)),
    ],
)
def test_unit_position_follows_from_its_number(queue_offset: int, file_bytes: int, location: tuple[int, int]) -> None:
    assert locate_entry(queue_offset, file_bytes) == location


def test_file_sizes_are_whole_units() -> None:
    assert check_queue_file_bytes(QUEUE_FILE_BYTES_DEFAULT) == 6_000_000
    assert check_queue_file_bytes(20) == 20
    for wrong in (0, -20, 19, 21, 6_000_001):
        with pytest.raises(BadField, match="multiple of 20"):
            check_queue_file_bytes(wrong)
