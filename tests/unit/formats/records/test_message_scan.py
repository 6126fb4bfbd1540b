from __future__ import annotations

import pytest

from orbitlog.errors import BadMagic, ChecksumMismatch, LengthMismatch, Misplaced, Truncated
from orbitlog.formats.records.message import Message, encode_message, make_message
from orbitlog.formats.records.message_scan import (
    BLANK_BYTES,
    Damage,
    LogEnd,
    SegmentEnd,
    encode_blank,
    find_record,
    fits,
    read_at,
    scan_messages,
)

BASE = 4096


def lay(*bodies: bytes, base: int = BASE) -> tuple[bytes, list[Message], list[int]]:
    """Records back to back from `base` on: their bytes, messages and positions."""
    data, messages, positions = b"", [], []
    for number, body in enumerate(bodies):
        messages.append(make_message("Topic", body, queue_offset=number, physical_offset=base + len(data)))
        positions.append(len(data))
        data += encode_message(messages[-1])
    return data, messages, positions


def xored(data: bytes, position: int, mask: int = 0xFF) -> bytes:
    changed = bytearray(data)
    changed[position] ^= mask
    return bytes(changed)


def test_blank_states_the_room_left() -> None:
    assert encode_blank(100).hex().upper() == "00000064CBD43194"
    assert len(encode_blank(8)) == BLANK_BYTES
    with pytest.raises(AssertionError):
        encode_blank(7)


@pytest.mark.parametrize(("left", "result"), [(9, True), (8, True), (7, False), (0, False), (-1, False)])
def test_a_record_leaves_room_for_the_blank(left: int, result: bool) -> None:
    assert fits(200, room=200 + left) is result


@pytest.mark.parametrize("left", [8, 9, 100])
def test_a_segment_rolls(left: int) -> None:
    data, messages, _ = lay(b"one", b"two")
    segment = data + encode_blank(left) + b"\xab" * (left - BLANK_BYTES)
    assert list(scan_messages(segment, base_physical_offset=BASE)) == [*messages, SegmentEnd(len(data), left)]


def test_zeros_end_the_log() -> None:
    data, messages, _ = lay(b"one", b"two")
    assert list(scan_messages(data + bytes(500), base_physical_offset=BASE)) == [*messages, LogEnd(len(data))]
    assert list(scan_messages(bytes(64))) == [LogEnd(0)]


def test_bytes_may_end_with_a_record() -> None:
    data, messages, positions = lay(b"one", b"two", b"")
    assert list(scan_messages(data, base_physical_offset=BASE)) == messages
    assert list(scan_messages(data, positions[1])) == messages[1:]
    assert list(scan_messages(data, len(data))) == []
    assert list(scan_messages(b"")) == []


def test_records_from_anywhere_are_read_without_a_base() -> None:
    far, far_messages, _ = lay(b"far", base=10**12)
    near, near_messages, _ = lay(b"near")
    assert list(scan_messages(far + near)) == far_messages + near_messages
    found = list(scan_messages(far + near, base_physical_offset=10**12))
    assert found[:1] == far_messages
    assert isinstance(found[1], Damage)
    assert isinstance(found[1].error, Misplaced)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: type) -> None:
    data, messages, positions = lay(b"one", b"two")
    segment = kind(data + encode_blank(20) + bytes(12))
    assert list(scan_messages(segment, base_physical_offset=BASE)) == [*messages, SegmentEnd(len(data), 20)]
    assert find_record(segment, 1, base_physical_offset=BASE) == positions[1]


def test_padding_of_a_blank_is_never_read() -> None:
    data, messages, _ = lay(b"one")
    stale, _, _ = lay(b"stale", base=BASE + len(data) + BLANK_BYTES)
    segment = data + encode_blank(BLANK_BYTES + len(stale)) + stale
    assert list(scan_messages(segment, base_physical_offset=BASE)) == [
        *messages,
        SegmentEnd(len(data), BLANK_BYTES + len(stale)),
    ]


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        (b"\0\0\0\0\xcb\xd4\x31\x94" + bytes(8), LengthMismatch),
        (b"\xff\xff\xff\xff\xcb\xd4\x31\x94" + bytes(8), LengthMismatch),
        (encode_blank(8) + bytes(8), LengthMismatch),
        (encode_blank(15) + bytes(8), LengthMismatch),
        (encode_blank(17) + bytes(8), Truncated),
        (b"\0\0\0\x10\0\0\0\0" + bytes(8), BadMagic),
        (b"\0\0\0\0\0\0\0\1" + bytes(8), BadMagic),
        (b"garbage garbage", BadMagic),
        (b"\0" * 7, Truncated),
        (b"\0", Truncated),
    ],
)
def test_anything_else_is_damage(tail: bytes, error: type[Exception]) -> None:
    data, messages, _ = lay(b"one")
    *read, last = scan_messages(data + tail, base_physical_offset=BASE)
    assert read == messages
    assert isinstance(last, Damage)
    assert last.position == len(data)
    assert type(last.error) is error
    assert last.error.position == len(data)


def test_scanning_stops_at_damage() -> None:
    data, messages, positions = lay(b"one", b"two", b"three")
    damaged = xored(data, positions[1] + 88)
    *read, last = scan_messages(damaged, base_physical_offset=BASE)
    assert read == messages[:1]
    assert isinstance(last, Damage)
    assert last.position == positions[1]


def test_the_crc_may_be_left_out() -> None:
    data, _, positions = lay(b"one", b"two")
    damaged = xored(data, positions[1] + 88)
    assert isinstance(list(scan_messages(damaged))[-1], Damage)
    assert [found.body for found in scan_messages(damaged, check_crc=False) if isinstance(found, Message)] == [
        b"one",
        b"\x8bwo",
    ]


def test_read_at_returns_what_is_stored_there() -> None:
    data, messages, positions = lay(b"one", b"two")
    segment = data + encode_blank(16) + bytes(8)
    assert read_at(segment, positions[1], base_physical_offset=BASE) == messages[1]
    assert read_at(segment, len(data)) == SegmentEnd(len(data), 16)
    assert read_at(segment, len(segment) - 8) == LogEnd(len(segment) - 8)
    misplaced = read_at(segment, 0, base_physical_offset=0)
    assert isinstance(misplaced, Damage)
    assert isinstance(misplaced.error, Misplaced)
    checksum = read_at(xored(segment, 88), 0)
    assert isinstance(checksum, Damage)
    assert isinstance(checksum.error, ChecksumMismatch)
    assert isinstance(read_at(xored(segment, 88), 0, check_crc=False), Message)


def test_find_record_gets_back_into_step() -> None:
    data, _, positions = lay(b"one", b"two", b"three")
    segment = data + encode_blank(30) + bytes(22)
    starts = [*positions, len(data)]
    for start in range(len(data) + 1):
        expected = next(position for position in starts if position >= start)
        assert find_record(segment, start, base_physical_offset=BASE) == expected
    assert find_record(segment, len(data) + 1, base_physical_offset=BASE) is None


def test_find_record_passes_over_what_only_looks_like_one() -> None:
    inner, _, _ = lay(b"inner", base=999)
    data, _, positions = lay(b"x" + inner + encode_blank(40), b"two")
    assert find_record(data, 1, base_physical_offset=BASE) == positions[1], "it says that it lies elsewhere"
    damaged = xored(data, positions[1] + 88)
    assert find_record(damaged, 1, base_physical_offset=BASE) is None
    assert find_record(damaged, 1, base_physical_offset=BASE, check_crc=False) == positions[1]


def test_a_forged_record_in_a_body_is_found_though_no_scan_would_read_it() -> None:
    forged, _, _ = lay(b"forged", base=BASE + 89)
    data, messages, positions = lay(b"x" + forged, b"two")
    assert find_record(data, 1, base_physical_offset=BASE) == 89
    assert list(scan_messages(data, base_physical_offset=BASE)) == messages
    assert find_record(data, 90, base_physical_offset=BASE) == positions[1]


def test_find_record_in_nothing() -> None:
    assert find_record(b"", 0, base_physical_offset=0) is None
    assert find_record(bytes(1000), 0, base_physical_offset=0) is None
    assert find_record(b"\xda\xa3\x20\xa7", 0, base_physical_offset=0) is None
