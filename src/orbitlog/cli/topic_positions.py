"""Positions in a topic as options: earliest, latest, an offset, a time, or an age."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from orbitlog.cli.main import WrongUse

TopicPosition = datetime | int | Literal["earliest", "latest"]

_WORDS: dict[str, Literal["earliest", "latest"]] = {
    "earliest": "earliest",
    "first": "earliest",
    "begin": "earliest",
    "latest": "latest",
    "last": "latest",
    "end": "latest",
}
_AGO = re.compile(r"-([0-9]{1,9})(ms|s|m|h|d)", re.ASCII)
_MILLISECONDS = re.compile(r"[0-9]{13}", re.ASCII)
_OFFSET = re.compile(r"[0-9]{1,12}", re.ASCII)
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
# The format of Java's tools: 2026-01-31#12:00:00:000.
_JAVA_TIME = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})", re.ASCII)


def parse_position(option: str, text: str, *, now: datetime | None = None) -> TopicPosition:
    """Parse a position; a time without a zone is local, 13 digits are milliseconds since 1970."""
    if text in _WORDS:
        return _WORDS[text]
    if ago := _AGO.fullmatch(text):
        return (now or datetime.now(UTC)) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    if _MILLISECONDS.fullmatch(text):
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    if _OFFSET.fullmatch(text):
        return int(text)
    if java := _JAVA_TIME.fullmatch(text):
        text = f"{java[1]}T{java[2]}.{java[3]}"
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise WrongUse(
            f"{option} {text!r} is not earliest, latest, an offset, a time (2026-01-31T12:00) or an age (-30m)"
        ) from None
