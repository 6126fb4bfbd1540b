"""Log walk over a converted store: ordinary segments, then records after the headers of DLedger entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats.records.dledger import ENTRY_HEADER_BYTES, DLedgerEntry, encode_entry_header, encode_file_end
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.formats.records.message_scan import encode_blank
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.store_files import OffsetFile

SEGMENT_BYTES = 2048


def entry(number: int, physical_offset: int) -> bytes:
    message = make_message("T", f"message {number}".encode() * 9, physical_offset=physical_offset + ENTRY_HEADER_BYTES)
    record = encode_message(message)
    return encode_entry_header(DLedgerEntry(number, 1, physical_offset, len(record))) + record


def data_file(base: int, first_number: int, *, is_last: bool = False) -> bytes:
    content = b""
    while len(part := entry(first_number, base + len(content))) + 8 <= SEGMENT_BYTES - len(content):
        content += part
        first_number += 1
    return content.ljust(SEGMENT_BYTES, b"\0") if is_last else content + encode_file_end(SEGMENT_BYTES - len(content))


def old_file() -> bytes:
    content = b""
    for _ in range(5):
        content += encode_message(make_message("Old", b"b", physical_offset=len(content)))
    return (content + encode_blank(SEGMENT_BYTES - len(content))).ljust(SEGMENT_BYTES, b"\0")


@pytest.fixture
def segments(tmp_path: Path) -> list[OffsetFile]:
    found = []
    for number, content in enumerate(
        [old_file(), data_file(2048, 0), data_file(4096, 100), data_file(6144, 200, is_last=True)]
    ):
        path = tmp_path / f"{number * SEGMENT_BYTES:020d}"
        path.write_bytes(content)
        log_format = LogFormat.DLEDGER if number else LogFormat.ORDINARY
        found.append(OffsetFile(path, number * SEGMENT_BYTES, len(content), log_format))
    return found


def test_records_of_both_formats(segments: list[OffsetFile]) -> None:
    walk = LogWalk(segments, SEGMENT_BYTES)
    read = list(walk.records())
    assert walk.damage == []
    assert [message.topic for message, _ in read[:6]] == ["Old"] * 5 + ["T"]
    assert read[5][0].physical_offset == 2048 + ENTRY_HEADER_BYTES
    assert all(message.size_bytes == size for message, size in read)


def test_from_any_place(segments: list[OffsetFile]) -> None:
    read = list(LogWalk(segments, SEGMENT_BYTES).records())
    for start in range(0, 4 * SEGMENT_BYTES, 37):
        walk = LogWalk(segments, SEGMENT_BYTES, start=start)
        found = list(walk.records())
        assert walk.damage == []
        # An entry that starts before the place may hold a record that starts after it: either answer is right.
        expected = [stored for stored in read if stored[0].physical_offset >= start]
        assert found in (expected, expected[1:])


@pytest.mark.parametrize("byte", [0, 3, 4, 24, 44, 48, 52, 140])
def test_damage_costs_one_record_at_most(segments: list[OffsetFile], byte: int) -> None:
    read = list(LogWalk(segments, SEGMENT_BYTES).records())
    position = read[7][0].physical_offset - ENTRY_HEADER_BYTES - 2048
    data = bytearray(segments[1].path.read_bytes())
    data[position + byte] ^= 0x41
    segments[1].path.write_bytes(data)
    walk = LogWalk(segments, SEGMENT_BYTES)
    # A record after a damaged header is still a record.
    left = read if byte < ENTRY_HEADER_BYTES else read[:7] + read[8:]
    assert list(walk.records()) == left
    (damage,) = walk.damage
    assert (damage.start, damage.resumed_at) == (2048 + position, left[7][0].physical_offset)


def test_walk_with_a_committed_end_stops_there(segments: list[OffsetFile]) -> None:
    read = list(LogWalk(segments, SEGMENT_BYTES).records())
    for count in (5, 6, 9, len(read) - 1, len(read)):
        last = read[count - 1][0]
        end = last.physical_offset + last.size_bytes if count > 5 else 2048
        walk = LogWalk(segments, SEGMENT_BYTES, committed_end=end)
        assert list(walk.records()) == read[:count]
        assert walk.damage == []


def test_zeros_before_the_committed_end_are_damage(segments: list[OffsetFile]) -> None:
    read = list(LogWalk(segments, SEGMENT_BYTES).records())
    lost = read[-3][0].physical_offset - ENTRY_HEADER_BYTES
    end = read[-1][0].physical_offset + read[-1][0].size_bytes
    data = segments[-1].path.read_bytes()
    segments[-1].path.write_bytes(data[: lost - segments[-1].base].ljust(SEGMENT_BYTES, b"\0"))
    walk = LogWalk(segments, SEGMENT_BYTES, committed_end=end)
    assert list(walk.records()) == read[:-3]
    (damage,) = walk.damage
    assert (damage.path, damage.start, damage.size_bytes) == (segments[-1].path, lost, end - lost)
