"""Timestamps and positions as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orbitlog.cli.main import WrongUse
from orbitlog.cli.topic_positions import parse_position

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
LOCAL = datetime(2026, 1, 31, 12, 0, 5, 250_000).astimezone()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        *((word, "earliest") for word in ("earliest", "first", "begin")),
        *((word, "latest") for word in ("latest", "last", "end")),
        ("0", 0),
        ("123456789012", 123456789012),
        ("-30m", NOW - timedelta(minutes=30)),
        ("-7d", NOW - timedelta(days=7)),
        ("-250ms", NOW - timedelta(milliseconds=250)),
        ("1769860800000", NOW),
        ("2026-01-31T12:00:00+00:00", NOW),
        ("2026-01-31T12:00:05.250", LOCAL),
        ("2026-01-31#12:00:05:250", LOCAL),
    ],
)
def test_a_place_is_read(text: str, place: object) -> None:
    assert parse_position("--to", text, now=NOW) == place


@pytest.mark.parametrize("text", ["", "then", "-", "-5", "-5y", "1.5", "12345678901234", "2026-02-31", "9" * 40])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(WrongUse, match=r"--to .* is not earliest, latest"):
        parse_position("--to", text)
