"""Values as people read them."""

from __future__ import annotations

import pytest

from orbitlog.cli.output.display_text import (
    body_preview,
    byte_count,
    counted,
    display_width,
    fit,
    host_text,
    local_time,
    printable,
)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (2**30, "1.0 GiB"), (2**50, "1024.0 TiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert byte_count(size) == text


def test_counts() -> None:
    assert [counted(number, "row") for number in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]


@pytest.mark.parametrize("timestamp_ms", [-(2**63), 2**63 - 1, 10**17])
def test_times_that_no_calendar_has_stay_numbers(timestamp_ms: int) -> None:
    assert local_time(timestamp_ms) == str(timestamp_ms)


def test_times_are_exact_to_the_millisecond() -> None:
    assert local_time(1_700_000_000_007).endswith(":20.007")


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\x9b31m", "\u202e", "\ud800"])
def test_nothing_reaches_the_terminal_as_a_command(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown != text


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", ""),
        (b"plain text", "plain text"),
        ("Größe 注文".encode(), "Größe 注文"),
        (b"two\nlines", "two lines"),
        (b"\xff\xfe\xfd", "0x ff fe fd"),
        (bytes(40), "0x " + " ".join(["00"] * 16) + " …"),
        (b"x" * 200, "x" * 160 + "…"),
        # The cut falls into a character.
        (b"a" + "é".encode() * 100, "a" + "é" * 79 + "…"),
    ],
)
def test_previews(body: bytes, shown: str) -> None:
    assert body_preview(body) == shown


def test_hosts() -> None:
    assert host_text(bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])) == "127.0.0.1:10911"
    assert host_text(bytes(15) + b"\1" + bytes([0, 0, 0, 1])) == "0:0:0:0:0:0:0:1:1"


@pytest.mark.parametrize("text", ["", "abc", "注文注文", "e\u0301", "a注b文c", "x" * 30])
@pytest.mark.parametrize("width", [1, 2, 3, 5, 8])
def test_cells_have_exactly_their_width(text: str, width: int) -> None:
    assert display_width(fit(text, width)) == width
    assert display_width(fit(text, width, right=True)) == width
