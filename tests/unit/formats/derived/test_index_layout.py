from __future__ import annotations

import struct

import pytest

from orbitlog.errors import BadField, Truncated
from orbitlog.formats.derived.index_layout import (
    IndexEntry,
    IndexHeader,
    IndexLayout,
    IndexWriter,
    decode_header,
    decode_index_entry,
    encode_header,
    encode_index_entry,
    index_key,
    infer_layout,
    key_hash,
    tags_index_key,
    time_diff_seconds,
)

START_MS = 1_600_000_000_000


def filled(
    layout: IndexLayout, puts: list[tuple[int, int, int]], after: IndexHeader | None = None
) -> tuple[bytearray, IndexWriter]:
    buffer = bytearray(layout.file_bytes)
    writer = IndexWriter(buffer, layout, after=after)
    for hashed_key, physical_offset, store_timestamp_ms in puts:
        assert writer.put(hashed_key, physical_offset, store_timestamp_ms)
    return buffer, writer


def entries(buffer: bytes | bytearray, layout: IndexLayout) -> list[IndexEntry]:
    count = decode_header(buffer).key_count
    return [decode_index_entry(buffer, layout.entry_position(number)) for number in range(1, count + 1)]


def slot(buffer: bytes | bytearray, layout: IndexLayout, hashed_key: int) -> int:
    (newest,) = struct.unpack_from(">i", buffer, layout.slot_position(hashed_key))
    return int(newest)


def test_the_standard_layout() -> None:
    layout = IndexLayout()
    assert (layout.slot_count, layout.entry_count, layout.capacity) == (5_000_000, 20_000_000, 19_999_999)
    assert layout.entries_position == 20_000_040
    assert layout.file_bytes == 420_000_040
    assert layout.entry_position(1) == 20_000_060


@pytest.mark.parametrize(("slots", "entry_count"), [(0, 5), (-1, 5), (5, 1), (5, 0), (2**31, 5), (5, 2**31)])
def test_a_layout_that_cannot_be(slots: int, entry_count: int) -> None:
    with pytest.raises(BadField) as caught:
        IndexLayout(slots, entry_count)
    assert caught.value.field == "index layout"


def test_keys_and_hashes() -> None:
    assert index_key("TopicTest", "KEY1") == "TopicTest#KEY1"
    assert tags_index_key("TopicTest", "TagA") == "TopicTest#T#TagA"
    assert key_hash("TopicTest#KEY1") == 1656969516
    assert IndexLayout().slot_position(1656969516) == 40 + 1969516 * 4
    assert key_hash("polygenelubricants") == 0, "the one hash without an absolute value"


HEADER = IndexHeader(1, 2, 3, 4, 5, 6)
HEADER_RAW = "00000000000000010000000000000002000000000000000300000000000000040000000500000006"


def test_header_both_directions() -> None:
    assert encode_header(HEADER).hex() == HEADER_RAW
    for kind in (bytes, bytearray, memoryview):
        assert decode_header(kind(bytes.fromhex(HEADER_RAW) + b"more")) == HEADER
    assert HEADER.key_count == 5


def test_a_file_never_written_to_is_empty() -> None:
    assert decode_header(bytes(40)) == IndexHeader()
    assert IndexHeader().index_count == 1
    assert IndexHeader().key_count == 0


@pytest.mark.parametrize(("slots", "count"), [(-1, 1), (0, -1), (-(2**31), -(2**31))])
def test_counts_are_not_negative(slots: int, count: int) -> None:
    with pytest.raises(BadField) as caught:
        decode_header(struct.pack(">qqqqii", 0, 0, 0, 0, slots, count))
    assert caught.value.field == "index header"


def test_entry_both_directions() -> None:
    entry = IndexEntry(1656969516, 566, 7, 3)
    raw = encode_index_entry(entry)
    assert raw.hex() == "62c3592c00000000000002360000000700000003"
    for kind in (bytes, bytearray, memoryview):
        assert decode_index_entry(kind(b"xyz" + raw), 3) == entry


@pytest.mark.parametrize("size", [0, 39])
def test_a_header_cut_short(size: int) -> None:
    with pytest.raises(Truncated) as caught:
        decode_header(bytes(size))
    assert (caught.value.field, caught.value.needed, caught.value.got) == ("index header", 40, size)
    with pytest.raises(Truncated):
        infer_layout(bytes(size))


@pytest.mark.parametrize("position", [-1, 1, 20, 1000])
def test_an_entry_beyond_the_bytes(position: int) -> None:
    with pytest.raises(Truncated) as caught:
        decode_index_entry(bytes(20), position)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("store_ms", "begin_ms", "seconds"),
    [
        (START_MS + 5_999, START_MS, 5),
        (START_MS + 999, START_MS, 0),
        (START_MS - 1, START_MS, 0),
        (START_MS - 9_999, START_MS, 0),
        (START_MS, 0, 0),
        (START_MS, -1, 0),
        (START_MS, 1, (START_MS - 1) // 1000),
        (2**62, 1, 2**31 - 1),
        ((2**31 - 1) * 1000 + 1, 1, 2**31 - 1),
        ((2**31 - 1) * 1000, 1, 2**31 - 2),
    ],
)
def test_time_is_kept_in_whole_seconds(store_ms: int, begin_ms: int, seconds: int) -> None:
    assert time_diff_seconds(store_ms, begin_ms) == seconds


SMALL = IndexLayout(slot_count=100, entry_count=20)


def test_one_key() -> None:
    buffer, writer = filled(SMALL, [(1234, 500, START_MS)])
    assert writer.header == decode_header(buffer) == IndexHeader(START_MS, START_MS, 500, 500, 1, 2)
    assert entries(buffer, SMALL) == [IndexEntry(1234, 500, 0, 0)]
    assert slot(buffer, SMALL, 34) == 1
    written = (
        bytes(40) + bytes(4 * 34) + b"\0\0\0\1" + bytes(4 * 65 + 20) + encode_index_entry(IndexEntry(1234, 500, 0, 0))
    )
    assert buffer[40:] == written.ljust(SMALL.file_bytes, b"\0")[40:]
    assert buffer[: SMALL.file_bytes] == buffer, "the file keeps its size"


def test_three_keys_in_one_slot_make_a_chain() -> None:
    puts = [(7, 0, START_MS), (107, 200, START_MS + 1_500), (8, 300, START_MS + 2_000), (7, 400, START_MS + 2_999)]
    buffer, writer = filled(SMALL, puts)
    assert entries(buffer, SMALL) == [
        IndexEntry(7, 0, 0, 0),
        IndexEntry(107, 200, 1, 1),
        IndexEntry(8, 300, 2, 0),
        IndexEntry(7, 400, 2, 2),
    ]
    assert (slot(buffer, SMALL, 7), slot(buffer, SMALL, 8)) == (4, 3)
    assert writer.header == IndexHeader(START_MS, START_MS + 2_999, 0, 400, 2, 5)


def test_a_full_file_takes_one_key_less_than_it_has_entries() -> None:
    buffer, writer = filled(SMALL, [(number, number * 100, START_MS) for number in range(19)])
    assert writer.is_full
    before = bytes(buffer)
    assert not writer.put(5, 9_999, START_MS)
    assert buffer == before
    assert decode_header(buffer).key_count == SMALL.capacity == 19


def test_the_first_entry_after_a_roll_counts_from_the_file_before() -> None:
    _, first = filled(SMALL, [(number, 100, START_MS + number) for number in range(19)])
    late_ms = first.header.end_timestamp_ms + 61_000
    buffer, second = filled(SMALL, [(5, 200, late_ms), (6, 300, late_ms + 1_000)], after=first.header)
    assert [entry.time_diff_seconds for entry in entries(buffer, SMALL)] == [61, 1]
    assert second.header == IndexHeader(late_ms, late_ms + 1_000, 200, 300, 2, 3)


def test_writer_resumes_where_a_file_ends() -> None:
    buffer, _ = filled(SMALL, [(7, 0, START_MS)])
    writer = IndexWriter(buffer, SMALL, after=IndexHeader(1, 1, 1, 1, 1, 1))
    assert writer.put(107, 200, START_MS + 3_000)
    together, _ = filled(SMALL, [(7, 0, START_MS), (107, 200, START_MS + 3_000)])
    assert buffer == together


@pytest.mark.parametrize("stale", [-1, 2, 99, 2**31 - 1, -(2**31)])
def test_a_slot_that_points_nowhere_counts_as_empty(stale: int) -> None:
    buffer = bytearray(SMALL.file_bytes)
    struct.pack_into(">i", buffer, SMALL.slot_position(7), stale)
    writer = IndexWriter(buffer, SMALL)
    assert writer.put(7, 0, START_MS)
    assert entries(buffer, SMALL) == [IndexEntry(7, 0, 0, 0)]
    assert writer.header.hash_slot_count == 1


def test_a_slot_that_points_to_the_next_entry_is_followed_as_java_does() -> None:
    buffer = bytearray(SMALL.file_bytes)
    struct.pack_into(">i", buffer, SMALL.slot_position(7), 1)
    writer = IndexWriter(buffer, SMALL)
    assert writer.put(7, 0, START_MS)
    assert entries(buffer, SMALL) == [IndexEntry(7, 0, 0, 1)]
    assert writer.header.hash_slot_count == 0


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_writer_wants_the_whole_file(difference: int) -> None:
    with pytest.raises(Truncated):
        IndexWriter(bytearray(SMALL.file_bytes + difference), SMALL)


@pytest.mark.parametrize(
    "layout", [SMALL, IndexLayout(200, 400), IndexLayout(7, 50), IndexLayout(1, 10), IndexLayout(1000, 30)]
)
@pytest.mark.parametrize("keys", [1, 2, 3, 9])
@pytest.mark.parametrize("first_offset", [0, 1, 65_536])
def test_the_layout_shows_in_the_file(layout: IndexLayout, keys: int, first_offset: int) -> None:
    puts = [(key_hash(f"T#{number}"), first_offset + number // 2 * 157, START_MS + number) for number in range(keys)]
    buffer, _ = filled(layout, puts)
    if first_offset or keys > 2 or layout.slot_count > 7:
        assert infer_layout(buffer) == infer_layout(memoryview(buffer)) == layout
    else:
        assert infer_layout(buffer) in (layout, None), "one message at offset 0 may be too little, but never misleads"


def test_partly_written_key_after_the_last_one_is_ignored() -> None:
    buffer, _ = filled(SMALL, [(number * 31, 1000 + number, START_MS) for number in range(9)])
    buffer[SMALL.entry_position(10) : SMALL.entry_position(11)] = encode_index_entry(IndexEntry(31, 2000, 0, 2))
    assert infer_layout(buffer) == SMALL


def test_what_follows_the_last_entry_decides_between_two_layouts_that_fit() -> None:
    """Entry 0 is all zero, which reads like a key of the message at offset 0, so that five slots less fit as well."""
    layout = IndexLayout(slot_count=100, entry_count=3)
    buffer, _ = filled(layout, [(100, 0, START_MS), (5, 0, START_MS)])
    assert infer_layout(buffer) == layout


def test_a_layout_that_only_looks_likely_is_not_returned() -> None:
    layout = IndexLayout(slot_count=7, entry_count=2)
    buffer, _ = filled(layout, [(14, 0, START_MS)])
    assert infer_layout(buffer) in (layout, None)


@pytest.mark.parametrize(
    "data",
    [
        bytes(40),
        bytes(2440),
        encode_header(IndexHeader(1, 1, 5, 5, 1, 2)),
        encode_header(IndexHeader(1, 1, 5, 5, 1, 2)) + bytes(2400),
        encode_header(IndexHeader(1, 1, 0, 0, 1, 2)) + bytes(2400),
        encode_header(IndexHeader(1, 1, 5, 5, 1, 2**31 - 1)) + bytes(2400),
        encode_header(IndexHeader(1, 1, -1, -1, 1, 2)) + b"\xff" * 2400,
        encode_header(IndexHeader(1, 1, 5, 5, 1, 2)) + bytes(2401),
    ],
)
def test_file_without_evidence(data: bytes) -> None:
    assert infer_layout(data) is None


def test_standard_size_determines_the_layout() -> None:
    class Sized(bytes):
        """A header that states the length of a standard file."""

        def __len__(self) -> int:
            return IndexLayout().file_bytes

    assert infer_layout(Sized(encode_header(IndexHeader()))) == IndexLayout()


@pytest.mark.parametrize("slots", [50, 45, 120])
@pytest.mark.parametrize("keys", [(1956197579, 83300750), (83300750, 83300750 + 45 * 50 * 120), (7,)])
def test_layout_of_a_file_with_the_first_message_alone(slots: int, keys: tuple[int, ...]) -> None:
    """Its offsets are 0, as all that is not written: without the slots any layout of that size fits."""
    layout = IndexLayout(slots, 100)
    buffer, _ = filled(layout, [(key, 0, START_MS) for key in keys])
    assert infer_layout(bytes(buffer)) == layout
