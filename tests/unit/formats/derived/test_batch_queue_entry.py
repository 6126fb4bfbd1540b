from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import BadField, Truncated
from orbitlog.formats.derived.batch_queue_entry import (
    BATCH_ENTRY_BYTES,
    BatchQueueEntry,
    decode_batch_entry,
    encode_batch_entry,
    scan_batch_entries,
)
from orbitlog.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from tests.support.damage import gives_value_or_format_error, repeatable

ENTRY = BatchQueueEntry(
    physical_offset=4096,
    size_bytes=321,
    tags_code=-2,
    store_timestamp_ms=1700000000123,
    base_queue_offset=70,
    message_count=10,
)
RAW = bytes.fromhex("000000000000100000000141fffffffffffffffe0000018bcfe5687b0000000000000046000affffffff00000000")


def test_bytes_both_ways() -> None:
    assert encode_batch_entry(ENTRY) == RAW
    assert decode_batch_entry(RAW) == ENTRY
    assert ENTRY.next_queue_offset == 80


def test_every_truncation_is_noticed() -> None:
    for length in range(len(RAW)):
        with pytest.raises(Truncated):
            decode_batch_entry(RAW[:length])


def test_damage_is_a_format_error() -> None:
    gives_value_or_format_error(decode_batch_entry, RAW)


@pytest.mark.parametrize(
    ("field", "value"),
    [("physical_offset", -1), ("size_bytes", 0), ("size_bytes", -1), ("base_queue_offset", -1), ("message_count", 0)],
)
def test_what_java_takes_for_the_end_is_refused(field: str, value: int) -> None:
    width = {"physical_offset": (0, 8), "size_bytes": (8, 4), "base_queue_offset": (28, 8), "message_count": (36, 2)}
    position, size = width[field]
    raw = RAW[:position] + value.to_bytes(size, "big", signed=True) + RAW[position + size :]
    with pytest.raises(BadField):
        decode_batch_entry(raw)


def test_scan_stops_at_the_blank() -> None:
    second = replace(ENTRY, base_queue_offset=80, compacted_offset=5, reserved=-7)
    data = RAW + encode_batch_entry(second) + bytes(BATCH_ENTRY_BYTES + 3)
    assert list(scan_batch_entries(data)) == [ENTRY, second]
    assert list(scan_batch_entries(data, BATCH_ENTRY_BYTES)) == [second]
    assert list(scan_batch_entries(RAW + b"\0")) == [ENTRY]
    assert list(scan_batch_entries(b"")) == []


@repeatable
@given(
    st.builds(
        BatchQueueEntry,
        physical_offset=st.integers(0, LONG_MAX),
        size_bytes=st.integers(1, INT_MAX),
        tags_code=st.integers(LONG_MIN, LONG_MAX),
        store_timestamp_ms=st.integers(LONG_MIN, LONG_MAX),
        base_queue_offset=st.integers(0, LONG_MAX),
        message_count=st.integers(1, 2**15 - 1),
        compacted_offset=st.integers(INT_MIN, INT_MAX),
        reserved=st.integers(INT_MIN, INT_MAX),
    )
)
def test_round_trip(entry: BatchQueueEntry) -> None:
    assert decode_batch_entry(b"x" + encode_batch_entry(entry), 1) == entry
