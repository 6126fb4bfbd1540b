"""Index entries built in blocks equal those that `IndexWriter` puts one by one; any other byte is reported."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitlog.formats.derived.index_layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    IndexHeader,
    IndexLayout,
    IndexWriter,
    encode_header,
)
from orbitlog.kernels.arrays import np
from orbitlog.kernels.index_stream import EntryStream, KeyColumns, equal_entries, right_links

BEFORE = IndexHeader(end_timestamp_ms=1_700_000_000_000, end_physical_offset=77)


def columns_of(rows: list[list[int]], begin: int = 0, end: int | None = None) -> KeyColumns:
    chosen = rows[begin:end]
    numbers = np.arange(begin, begin + len(chosen))
    return KeyColumns(
        numbers * 100,
        1_700_000_005_000 + numbers * 700,
        np.cumsum([len(hashes) for hashes in chosen]).astype(np.int64),
        np.array([each for hashes in chosen for each in hashes], np.int32),
    )


def streamed(rows: list[list[int]], layout: IndexLayout, block_entries: int) -> tuple[bytes, EntryStream, int]:
    columns = columns_of(rows)
    stream = EntryStream(
        layout, IndexWriter(bytearray(layout.file_bytes), layout, after=BEFORE).header, block_entries=block_entries
    )
    made = bytearray(layout.file_bytes)
    row = key = 0
    while row < len(rows) and stream.header.index_count < layout.entry_count:
        place = layout.entry_position(stream.header.index_count)
        entries, row, key = stream.put(columns, row, key, layout.entry_count)
        made[place : place + len(entries)] = entries.tobytes()
    made[: INDEX_HEADER.size_bytes] = encode_header(stream.header)
    made[INDEX_HEADER.size_bytes : layout.entries_position] = stream.slots.astype(">i4").tobytes()
    return bytes(made), stream, key


@given(
    rows=st.lists(st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 9), max_size=4), min_size=1, max_size=40),
    layout=st.builds(IndexLayout, st.integers(1, 20), st.integers(2, 60)),
    block_entries=st.integers(1, 20),
)
@settings(deadline=None, max_examples=150)
def test_blocks_of_any_size_make_the_same_file(rows: list[list[int]], layout: IndexLayout, block_entries: int) -> None:
    expected = bytearray(layout.file_bytes)
    writer = IndexWriter(expected, layout, after=BEFORE)
    columns = columns_of(rows)
    taken = 0
    for row, hashes in enumerate(rows):
        for each in hashes:
            is_put = writer.put(each, int(columns.physical_offset[row]), int(columns.store_timestamp_ms[row]))
            taken += is_put
    expected[: INDEX_HEADER.size_bytes] = encode_header(writer.header)
    made, _, key = streamed(rows, layout, block_entries)
    assert made == bytes(expected)
    assert key == taken


@given(
    rows=st.lists(st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 9), max_size=4), min_size=1, max_size=40),
    layout=st.builds(IndexLayout, st.integers(1, 20), st.integers(2, 60)),
    cuts=st.lists(st.integers(1, 60), max_size=3),
    columns_at_once=st.integers(1, 40),
)
@settings(deadline=None, max_examples=150)
def test_pieces_make_the_same_file(
    rows: list[list[int]], layout: IndexLayout, cuts: list[int], columns_at_once: int
) -> None:
    """Each piece passes over the keys before it, of as many messages at once as there are at hand."""
    expected, whole, key_count = streamed(rows, layout, 7)
    made = bytearray(layout.file_bytes)
    firsts = sorted({0, *(cut for cut in cuts if cut < key_count)})
    for first, stop in pairwise([*firsts, key_count]):
        stream = EntryStream(layout, IndexWriter(bytearray(layout.file_bytes), layout, after=BEFORE).header)
        for begin in range(0, len(rows), columns_at_once):
            columns = columns_of(rows, begin, begin + columns_at_once)
            row = key = 0
            if stream.header.key_count < first:
                row, key = stream.pass_over(columns, key, first + 1)
            while row < len(columns.physical_offset) and stream.header.key_count < stop:
                place = layout.entry_position(stream.header.index_count)
                entries, row, key = stream.put(columns, row, key, stop + 1)
                made[place : place + len(entries)] = entries.tobytes()
    made[: INDEX_HEADER.size_bytes] = encode_header(stream.header)
    made[INDEX_HEADER.size_bytes : layout.entries_position] = stream.slots.astype(">i4").tobytes()
    assert stream.header == whole.header
    assert bytes(made) == expected


def test_every_wrong_byte_of_an_entry_is_seen() -> None:
    rows = [[3, 8], [], [13], [3, 3], [21]]
    layout = IndexLayout(5, 10)
    made, stream, _ = streamed(rows, layout, 4)
    begin_ms = stream.header.begin_timestamp_ms
    entries = np.frombuffer(made, np.uint8)[layout.entry_position(1) : layout.entry_position(7)].copy()
    columns = columns_of(rows)
    assert equal_entries(columns, 0, entries, begin_ms, is_begin=True) == 6
    assert equal_entries(columns, 3, entries[3 * 20 :], begin_ms, is_begin=False) == 3
    assert right_links(entries, 1, np.zeros(5, np.int32)) == (6, stream.header.hash_slot_count)
    link = INDEX_ENTRY.position("previous_entry")
    time_of_first = range(INDEX_ENTRY.position("time_diff_seconds"), link)
    for place in range(len(entries)):
        entries[place] ^= 1
        number, field = divmod(place, 20)
        if field < link and place not in time_of_first:
            assert equal_entries(columns, 0, entries, begin_ms, is_begin=True) == number
        elif field >= link:
            assert right_links(entries, 1, np.zeros(5, np.int32))[0] == number
        entries[place] ^= 1


@pytest.mark.parametrize("count", [0, 4])
def test_fewer_keys_than_entries_are_no_match(count: int) -> None:
    made, stream, _ = streamed([[1], [2], [3], [4]], IndexLayout(5, 10), 10)
    entries = np.frombuffer(made, np.uint8)[IndexLayout(5, 10).entry_position(1) :][: 5 * 20].copy()
    columns = columns_of([[1], [2], [3], [4]][:count])
    assert equal_entries(columns, 0, entries, stream.header.begin_timestamp_ms, is_begin=True) == count
