"""Values as people read them: sizes, times, hosts, and text from files made safe for a terminal."""

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
    """Write a size with at most four digits: `91 B`, `1.2 KiB`."""
    if size_bytes < _STEP:
        return f"{size_bytes} B"
    value = size_bytes / _STEP
    for unit in ("KiB", "MiB", "GiB"):
        if value < _STEP:
            return f"{value:.1f} {unit}"
        value /= _STEP
    return f"{value:.1f} TiB"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun: `1 message`, `2 messages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def local_time(timestamp_ms: int) -> str:
    """Write an instant in the local time zone, to the millisecond; a number no calendar has stays a number."""
    try:
        instant = datetime.fromtimestamp(timestamp_ms // 1000)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{instant:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"


def zone_name() -> str:
    """Name the zone of `local_time`."""
    return time.tzname[0]


@lru_cache(maxsize=4096)
def host_text(raw: bytes) -> str:
    """Write the 8 or 20 bytes of a host as `ip:port`."""
    return str(decode_host(raw))


def printable(text: str) -> str:
    """Escape what a terminal might take for a command."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def body_preview(body: bytes) -> str:
    """Show the beginning of a body: text where it is text, else bytes in hexadecimal."""
    try:
        text, _ = codecs.utf_8_decode(body[:_PREVIEW_BYTES], "strict", len(body) <= _PREVIEW_BYTES)
    except UnicodeDecodeError:
        text = ""
    shown = printable(text.replace("\n", " ").replace("\t", " "))
    # Escapes that make the text much longer say that it was no text.
    if body and (not text or len(shown) > 1.5 * len(text)):
        head = body[:_PREVIEW_HEX_BYTES].hex(" ")
        return f"0x {head}" + (" …" if len(body) > _PREVIEW_HEX_BYTES else "")
    return shown + ("…" if len(body) > _PREVIEW_BYTES else "")


def display_width(text: str) -> int:
    """Count the columns that a terminal needs for it."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Cut or pad to exactly `width` columns."""
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
