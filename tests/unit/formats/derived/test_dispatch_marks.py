from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orbitlog.errors import FormatError
from orbitlog.formats.derived.dispatch_marks import (
    DISPATCH_MARK,
    MARKS_BYTES,
    DispatchLease,
    DispatchMark,
    decode_lease,
    decode_mark,
    encode_lease,
    encode_mark,
    mark_position,
    newest_mark,
)
from orbitlog.formats.derived.index_layout import IndexHeader

MARK = DispatchMark(
    dispatched_to=1 << 40,
    index_from=77,
    index_skip_keys=2,
    unit_count=12,
    last_store_timestamp_ms=1_700_000_000_000,
    last_physical_offset=5,
    index_file=20261115171139123,
    index_header=IndexHeader(1, 2, 3, 4, 5, 6),
    epoch=3,
    sequence=9,
)
LEASE = DispatchLease("spark", 7, "ab" * 16, 4711, "host", 1 << 50, True, {"maxIndexNum": "20"})


def test_a_mark_goes_both_ways() -> None:
    assert decode_mark(encode_mark(MARK)) == MARK
    assert len(encode_mark(MARK)) == DISPATCH_MARK.size_bytes


def test_each_flipped_byte_and_each_cut_of_a_mark_is_seen() -> None:
    raw = encode_mark(MARK)
    for position in range(len(raw)):
        with pytest.raises(FormatError):
            decode_mark(raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :])
        with pytest.raises(FormatError):
            decode_mark(raw[:position])


def test_the_newer_of_two_marks_counts_and_a_torn_one_does_not() -> None:
    older, newer = MARK, replace(MARK, sequence=10, dispatched_to=(1 << 40) + 5)
    assert mark_position(older.sequence) != mark_position(newer.sequence)
    file = bytearray(MARKS_BYTES)
    assert newest_mark(file) is None
    for mark in (older, newer):
        position = mark_position(mark.sequence)
        file[position : position + DISPATCH_MARK.size_bytes] = encode_mark(mark)
    assert newest_mark(file) == newer
    file[mark_position(newer.sequence) + 20] ^= 255
    assert newest_mark(file) == older


def test_a_mark_of_a_later_epoch_counts_whatever_its_sequence() -> None:
    late, zombie = replace(MARK, epoch=4, sequence=2), replace(MARK, epoch=3, sequence=101)
    file = bytearray(MARKS_BYTES)
    for mark in (late, zombie):
        position = mark_position(mark.sequence)
        file[position : position + DISPATCH_MARK.size_bytes] = encode_mark(mark)
    assert newest_mark(file) == late


def test_a_lease_goes_both_ways_and_can_be_read() -> None:
    assert decode_lease(encode_lease(LEASE)) == LEASE
    assert json.loads(encode_lease(LEASE))["processId"] == 4711
    assert str(LEASE) == "engine spark, process 4711 on host, epoch 7"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 4000,
        b" " * 70_000,
        encode_lease(replace(LEASE, epoch=-1)),
        encode_lease(replace(LEASE, owner="x" * 201)),
        encode_lease(replace(LEASE, process_id=1 << 40)),
        encode_lease(LEASE).replace(b"true", b"1"),
        encode_lease(LEASE).replace(b'"20"', b"20"),
        encode_lease(LEASE).replace(b"7,", b'"7",', 1),
    ],
)
def test_what_is_no_lease_is_an_error_of_the_format(raw: bytes) -> None:
    with pytest.raises(FormatError):
        decode_lease(raw)
