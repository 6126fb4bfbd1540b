"""Values as text: sizes, times, hosts, and text from files with control characters escaped."""

from __future__ import annotations

import codecs
import time
import unicodedata
from datetime import datetime
from functools import lru_cache

from orbitlog.formats.hosts import decode_host

_PREVIEW_BYTES = 160
_PREVIEW_HEX_BYTES = 16
_STEP = 1024


def byte_count(size_bytes: int) -> str:
    """Return a size with its unit: `91 B`, `1.2 KiB`."""
    if size_bytes < _STEP:
        return f"{size_bytes} B"
    value = size_bytes / _STEP
    for unit in ("KiB", "MiB", "GiB"):
        if value < _STEP:
            return f"{value:.1f} {unit}"
        value /= _STEP
    return f"{value:.1f} TiB"


def byte_rate(size_bytes: int, seconds: float) -> str:
    """Return a throughput with its unit: `1.2 MiB/s`."""
    return f"{byte_count(int(size_bytes / max(seconds, 0.001)))}/s"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 message`, `2 messages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def local_time(timestamp_ms: int) -> str:
    """Return a timestamp in local time with milliseconds, or the number if it is out of range."""
    try:
        instant = datetime.fromtimestamp(timestamp_ms // 1000)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{instant:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"


def zone_name() -> str:
    """Return the name of the local time zone."""
    return time.tzname[0]


@lru_cache(maxsize=4096)
def host_text(raw: bytes) -> str:
    """Return the 8 or 20 bytes of a host as `ip:port`."""
    return str(decode_host(raw))


def printable(text: str) -> str:
    """Return text with control characters escaped, which a terminal could execute."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def body_preview(body: bytes) -> str:
    """Return the start of a body: as text if it is text, else in hexadecimal."""
    try:
        text, _ = codecs.utf_8_decode(body[:_PREVIEW_BYTES], "strict", len(body) <= _PREVIEW_BYTES)
    except UnicodeDecodeError:
        text = ""
    shown = printable(text.replace("\n", " ").replace("\t", " "))
    # If escapes make it much longer, it is binary data that happens to be valid UTF-8.
    if body and (not text or len(shown) > 1.5 * len(text)):
        head = body[:_PREVIEW_HEX_BYTES].hex(" ")
        return f"0x {head}" + (" …" if len(body) > _PREVIEW_HEX_BYTES else "")
    return shown + ("…" if len(body) > _PREVIEW_BYTES else "")


def display_width(text: str) -> int:
    """Return the number of terminal columns that a text needs."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Truncate or pad to exactly `width` columns."""
    needed = display_width(text)
    if needed > width:
        text, needed = _cut(text, width)
    padding = " " * (width - needed)
    return padding + text if right else text + padding


def _cut(text: str, width: int) -> tuple[str, int]:
    used = 0
    for number, character in enumerate(text):
        step = _character_width(character)
        if used + step > width - 1:
            return text[:number] + "…", used + 1
        used += step
    return text, used
