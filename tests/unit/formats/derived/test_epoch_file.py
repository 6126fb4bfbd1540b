from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import BadField, ChecksumMismatch, FormatError, LengthMismatch, LimitExceeded, Truncated
from orbitlog.formats.derived.epoch_file import EpochEntry, decode_epoch_file, encode_epoch_file
from orbitlog.formats.java import INT_MAX, LONG_MAX
from tests.support.damage import gives_value_or_format_error, repeatable

# Written by Java's CheckpointFile (5.5.0).
ENTRIES = (EpochEntry(1, 0), EpochEntry(3, 107374182400), EpochEntry(4, 107374999999))
TEXT = "3\n925385019\n1-0\n3-107374182400\n4-107374999999\n"
ONE_ENTRY_TEXT = "1\n1725254278\n1-0\n"


def test_text_both_ways() -> None:
    assert decode_epoch_file(TEXT) == ENTRIES
    assert encode_epoch_file(ENTRIES) == TEXT
    assert decode_epoch_file(ONE_ENTRY_TEXT) == ENTRIES[:1]
    assert encode_epoch_file(ENTRIES[:1]) == ONE_ENTRY_TEXT


def test_other_line_ends_and_a_crc_of_zero() -> None:
    assert decode_epoch_file(TEXT.replace("\n", "\r\n")) == ENTRIES
    assert decode_epoch_file(TEXT.removesuffix("\n")) == ENTRIES
    assert decode_epoch_file(TEXT.replace("925385019", "0")) == ENTRIES


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", Truncated),
        ("0", Truncated),
        ("x\n0\n", BadField),
        ("1\nx\n1-0\n", BadField),
        ("1\n-5\n1-0\n", BadField),
        ("2\n0\n1-0\n", LengthMismatch),
        ("0\n0\n1-0\n", LengthMismatch),
        ("1\n5\n1-0\n", ChecksumMismatch),
        ("1\n0\n1\n", BadField),
        ("1\n0\n1-2-3\n", BadField),
        ("1\n0\n-1-2\n", BadField),
        ("1\n0\n2147483648-0\n", BadField),
        ("1\n0\n1-9223372036854775808\n", BadField),
        ("1\n0\n1-0\u2028\n", BadField),
        ("1\n0\n٣-0\n", BadField),
        ("9" * 5000 + "\n0\n", BadField),
        ("2147483648\n0\n", BadField),
        ("0" * (1024 * 1024 + 1), LimitExceeded),
    ],
)
def test_what_is_no_epoch_file(text: str, error: type[FormatError]) -> None:
    with pytest.raises(error):
        decode_epoch_file(text)


def test_every_flipped_byte_is_noticed() -> None:
    """The CRC covers the entries, and the first line counts them."""
    gives_value_or_format_error(lambda raw: decode_epoch_file(raw.decode("latin-1")), TEXT.encode())
    start = TEXT.index("1-0")
    for position in range(start, len(TEXT) - 1):
        damaged = TEXT[:position] + chr(ord(TEXT[position]) ^ 1) + TEXT[position + 1 :]
        with pytest.raises(FormatError):
            decode_epoch_file(damaged)


@repeatable
@given(st.lists(st.builds(EpochEntry, st.integers(0, INT_MAX), st.integers(0, LONG_MAX)), max_size=8).map(tuple))
def test_round_trip(entries: tuple[EpochEntry, ...]) -> None:
    assert decode_epoch_file(encode_epoch_file(entries)) == entries


@repeatable
@given(st.text(st.sampled_from("0123456789-\n\rx "), max_size=40) | st.text())
def test_any_text_gives_a_value_or_a_format_error(text: str) -> None:
    try:
        decode_epoch_file(text)
    except FormatError:
        pass
