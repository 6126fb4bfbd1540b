"""Values as text on pages: numbers, sizes, ages, timestamps, and hostile text made visible."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

_STEP = 1024
UNKNOWN = "\N{EN DASH}"
_PICTURES = 0x2400
_DELETE, _DELETE_PICTURE = 0x7F, "␡"


def visible(value: Any) -> Any:
    """Return text with control characters and direction overrides as symbols; other values unchanged.

    It is applied to every value that a template prints.
    """
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(map(_visible_character, value))


def _visible_character(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(_PICTURES + code)
    if code == _DELETE:
        return _DELETE_PICTURE
    if unicodedata.category(character) == "Zs":
        return character
    return f"⟨U+{code:04X}⟩"


def shown_count(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


def shown_rate(number: float | None) -> str:
    if number is None:
        return UNKNOWN
    return f"{number:,.0f}/s" if number >= 10 or number == 0 else f"{number:.1f}/s"


def shown_percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio:.0%}"


def shown_size(size_bytes: int | None) -> str:
    """Return a size with its unit: `91 B`, `1.2 KiB`."""
    if size_bytes is None:
        return UNKNOWN
    if abs(size_bytes) < _STEP:
        return f"{size_bytes} B"
    value = size_bytes / _STEP
    for unit in ("KiB", "MiB", "GiB"):
        if abs(value) < _STEP:
            return f"{value:.1f} {unit}"
        value /= _STEP
    return f"{value:.1f} TiB"


def shown_duration(duration_ms: int | None) -> str:
    """Return a duration in its largest sensible unit: `12 min`."""
    if duration_ms is None:
        return UNKNOWN
    seconds = duration_ms / 1000
    if 0 < seconds < 1:
        return f"{duration_ms} ms"
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def shown_age(timestamp_ms: int | None, now_ms: int) -> str:
    if timestamp_ms is None:
        return "never read"
    age_ms = now_ms - timestamp_ms
    return "just now" if age_ms < 1000 else f"{shown_duration(age_ms)} ago"


def shown_time(timestamp_ms: int | None) -> Markup:
    """Return a `time` element in UTC with milliseconds."""
    if timestamp_ms is None:
        return Markup(UNKNOWN)  # noqa: S704 - a constant
    try:
        instant = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return escape(str(timestamp_ms))
    text = f"{instant:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"
    return Markup('<time datetime="{}">{}</time>').format(f"{instant:%Y-%m-%dT%H:%M:%SZ}", text)
