from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import BadField, BadMagic, FormatError, LengthMismatch, LimitExceeded, Misplaced, Truncated
from orbitlog.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from orbitlog.formats.records.dledger import (
    ENTRY_HEADER_BYTES,
    DLedgerCheckpoint,
    DLedgerEntry,
    DLedgerIndexUnit,
    DLedgerTerm,
    OldFormat,
    Uncommitted,
    decode_dledger_checkpoint,
    decode_dledger_term,
    decode_entry_header,
    decode_index_unit,
    encode_dledger_checkpoint,
    encode_dledger_term,
    encode_entry_header,
    encode_file_end,
    encode_index_unit,
    scan_entries,
)
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2
from orbitlog.formats.records.message_scan import Damage, LogEnd, SegmentEnd, encode_blank
from tests.support.damage import flips, gives_value_or_format_error, repeatable

# Written by DLedger 0.3.1.2: an entry with body `hello`, its index unit, and two data files of 256 bytes.
ENTRY = DLedgerEntry(index=7, term=3, physical_offset=1024, body_bytes=5)
ENTRY_RAW = bytes.fromhex(
    "00000001000000350000000000000007000000000000000300000000000004000000000000000000000000000000000568656c6c6f"
)
INDEX_RAW = bytes.fromhex("0000000100000000000004000000003500000000000000070000000000000003")
FIRST_FILE = bytes.fromhex(
    "000000010000003600000000000000000000000000000000000000000000000000000000000000000000000000000006626f64792d30"
    "000000010000003800000000000000010000000000000000000000000000003600000000000000000000000000000008626f64792d312d78"
    "000000010000003a00000000000000020000000000000000000000000000006e0000000000000000000000000000000a"
    "626f64792d322d787878"
    "000000010000003c0000000000000003000000000000000100000000000000a80000000000000000000000000000000c"
    "626f64792d332d7878787878"
    "ffffffff0000001c0000000000000000000000000000000000000000"
)
SECOND_FILE = bytes.fromhex(
    "000000010000003e0000000000000004000000000000000100000000000001000000000000000000000000000000000e"
    "626f64792d342d78787878787878"
).ljust(256, b"\0")
BODIES = [b"body-0", b"body-1-x", b"body-2-xxx", b"body-3-xxxxx", b"body-4-xxxxxxx"]


def entries_of(bodies: list[bytes], *, physical_offset: int = 0) -> list[DLedgerEntry]:
    entries = []
    for index, body in enumerate(bodies):
        entries.append(DLedgerEntry(index, index // 3, physical_offset, len(body)))
        physical_offset += ENTRY_HEADER_BYTES + len(body)
    return entries


def test_entry_and_index_bytes_both_ways() -> None:
    assert encode_entry_header(ENTRY) + b"hello" == ENTRY_RAW
    assert decode_entry_header(ENTRY_RAW, physical_offset=1024) == ENTRY
    assert ENTRY.size_bytes == 53
    assert ENTRY.record_physical_offset == 1072
    unit = DLedgerIndexUnit(index=7, term=3, physical_offset=1024, size_bytes=53)
    assert encode_index_unit(unit) == INDEX_RAW
    assert decode_index_unit(INDEX_RAW) == unit
    assert unit.end_physical_offset == 1077
    assert decode_index_unit(bytes(32)) is None


def test_golden_files_scan() -> None:
    found = list(scan_entries(FIRST_FILE, base_physical_offset=0))
    positions = [0, 54, 110, 168, 228]
    assert found == [*zip(positions, entries_of(BODIES[:4]), strict=False), (228, SegmentEnd(228, 28))]
    for position, entry in found[:-1]:
        assert isinstance(entry, DLedgerEntry)
        body = FIRST_FILE[position + ENTRY_HEADER_BYTES : position + entry.size_bytes]
        assert body == BODIES[entry.index]
        assert entry.record_physical_offset == position + ENTRY_HEADER_BYTES
    last = DLedgerEntry(index=4, term=1, physical_offset=256, body_bytes=14)
    assert list(scan_entries(SECOND_FILE, base_physical_offset=256)) == [(0, last), (62, LogEnd(62))]


def test_golden_files_encode() -> None:
    first = b"".join(
        encode_entry_header(entry) + body for entry, body in zip(entries_of(BODIES[:4]), BODIES, strict=False)
    )
    assert first + encode_file_end(28) == FIRST_FILE


def test_scan_stops_after_the_committed_entry() -> None:
    found = list(scan_entries(FIRST_FILE, committed_index=1))
    assert found[2:] == [(110, Uncommitted(110))]
    assert list(scan_entries(FIRST_FILE, committed_index=3))[-1] == (228, SegmentEnd(228, 28))


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
def test_records_of_the_old_format_are_recognised(magic: int) -> None:
    old = (100).to_bytes(4, "big") + magic.to_bytes(4, "big") + bytes(92)
    assert list(scan_entries(old)) == [(0, OldFormat(0))]


def test_the_blank_of_the_old_format_is_recognised() -> None:
    assert list(scan_entries(encode_blank(100) + bytes(92))) == [(0, OldFormat(0))]


def replaced(position: int, value: int, size: int = 4) -> bytes:
    return ENTRY_RAW[:position] + value.to_bytes(size, "big", signed=True) + ENTRY_RAW[position + size :]


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (replaced(0, 2), BadMagic),
        (replaced(0, 0), BadMagic),
        (replaced(4, 54), LengthMismatch),
        (replaced(4, 0), LengthMismatch),
        (replaced(8, -1, 8), BadField),
        (replaced(24, 1025, 8), Misplaced),
        (replaced(44, -1), BadField),
        (replaced(44, 6), LengthMismatch),
        (ENTRY_RAW[:-1], Truncated),
        (ENTRY_RAW[:30], Truncated),
        (b"\1", Truncated),
        (encode_file_end(20) + b"\0", LengthMismatch),
    ],
)
def test_damage_stops_a_scan(raw: bytes, error: type[FormatError]) -> None:
    [(position, found)] = scan_entries(raw, base_physical_offset=1024)
    assert position == 0
    assert isinstance(found, Damage)
    assert isinstance(found.error, error)


@pytest.mark.parametrize(("index", "term"), [(9, 3), (7, 3), (8, 2)])
def test_entries_must_follow_each_other(index: int, term: int) -> None:
    second = DLedgerEntry(index=index, term=term, physical_offset=1077, body_bytes=0)
    *_, (position, found) = scan_entries(ENTRY_RAW + encode_entry_header(second), base_physical_offset=1024)
    assert position == 53
    assert isinstance(found, Damage)
    assert isinstance(found.error, BadField)


def test_every_truncation_is_noticed() -> None:
    for length in range(len(ENTRY_RAW)):
        with pytest.raises(Truncated):
            decode_entry_header(ENTRY_RAW[:length])
    for length in range(len(INDEX_RAW)):
        with pytest.raises(Truncated):
            decode_index_unit(INDEX_RAW[:length])


def test_flipped_bytes_are_a_value_or_a_format_error() -> None:
    gives_value_or_format_error(decode_entry_header, ENTRY_RAW)
    gives_value_or_format_error(decode_index_unit, INDEX_RAW)
    for damaged in flips(FIRST_FILE):
        assert list(scan_entries(damaged, base_physical_offset=0))


@repeatable
@given(
    st.builds(
        DLedgerEntry,
        index=st.integers(0, LONG_MAX),
        term=st.integers(LONG_MIN, LONG_MAX),
        physical_offset=st.integers(LONG_MIN, LONG_MAX),
        body_bytes=st.integers(0, 64),
        channel=st.integers(INT_MIN, INT_MAX),
        chain_crc=st.integers(INT_MIN, INT_MAX),
        body_crc=st.integers(INT_MIN, INT_MAX),
    )
)
def test_round_trip(entry: DLedgerEntry) -> None:
    assert decode_entry_header(b"x" + encode_entry_header(entry) + bytes(entry.body_bytes), 1) == entry


@repeatable
@given(
    st.builds(
        DLedgerIndexUnit,
        index=st.integers(0, LONG_MAX),
        term=st.integers(LONG_MIN, LONG_MAX),
        physical_offset=st.integers(0, LONG_MAX),
        size_bytes=st.integers(48, INT_MAX),
    )
)
def test_index_unit_round_trip(unit: DLedgerIndexUnit) -> None:
    assert decode_index_unit(encode_index_unit(unit)) == unit


def test_text_files_are_java_s() -> None:
    checkpoint, term = "committedIndex=9\nendIndex=12\n", "voteLeader=n0\ncurrTerm=5\n"
    assert decode_dledger_checkpoint(checkpoint) == DLedgerCheckpoint(end_index=12, committed_index=9)
    assert encode_dledger_checkpoint(DLedgerCheckpoint(end_index=12, committed_index=9)) == checkpoint
    assert decode_dledger_term(term) == DLedgerTerm(term=5, vote_for="n0")
    assert encode_dledger_term(DLedgerTerm(term=5, vote_for="n0")) == term
    assert encode_dledger_term(DLedgerTerm(term=0, vote_for="")) == "voteLeader=\ncurrTerm=0\n"


@pytest.mark.parametrize(
    ("text", "end_index", "committed_index"),
    [
        ("", None, None),
        ("endIndex=-1\r\ncommittedIndex=\r\n", -1, None),
        ("#comment\n! another\n\n  committedIndex = 7 \nendIndex", None, 7),
        ("other=1\nendIndex=1\nendIndex=2", 2, None),
    ],
)
def test_checkpoint_text_is_read_loosely(text: str, end_index: int | None, committed_index: int | None) -> None:
    assert decode_dledger_checkpoint(text) == DLedgerCheckpoint(end_index, committed_index)


@pytest.mark.parametrize("value", ["x", "1.5", "9223372036854775808", "9" * 5000, "--1", "٣"])
def test_a_value_that_is_no_long_is_refused(value: str) -> None:
    with pytest.raises(BadField):
        decode_dledger_checkpoint(f"endIndex={value}")
    with pytest.raises(BadField):
        decode_dledger_term(f"currTerm={value}")


def test_a_huge_text_is_refused() -> None:
    with pytest.raises(LimitExceeded):
        decode_dledger_term("#" * 70_000)


@repeatable
@given(st.text())
def test_any_text_gives_a_value_or_a_format_error(text: str) -> None:
    for decode in (decode_dledger_checkpoint, decode_dledger_term):
        try:
            decode(text)
        except FormatError:
            pass
