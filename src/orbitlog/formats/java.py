"""Java semantics that the formats depend on: string hashing, number widths, splitting, map order.

Each function returns the value of the Java expression in its docstring.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def to_int(value: int) -> int:
    """Wrap to a signed 32-bit number: `(int) value`."""
    return ((value + 2**31) & 0xFFFFFFFF) - 2**31


def to_long(value: int) -> int:
    """Wrap to a signed 64-bit number: `(long) value`."""
    return ((value + 2**63) & 0xFFFFFFFFFFFFFFFF) - 2**63


def divide(dividend: int, divisor: int) -> int:
    """Divide truncating towards zero: `dividend / divisor` on integers."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _even_lanes(width: int) -> int:
    """Return a mask over every other run of `width` bits in 256."""
    return sum(((1 << width) - 1) << position for position in range(0, 256, 2 * width))


_WEIGHTS = tuple(pow(31, length, 2**32) for length in range(33))
_LANES_8, _LANES_16, _LANES_32, _LANES_64 = map(_even_lanes, (8, 16, 32, 64))
_WEIGHT_2, _WEIGHT_4, _WEIGHT_8, _WEIGHT_16 = (_WEIGHTS[length] for length in (2, 4, 8, 16))


def ascii_hash(text: bytes, before: int = 0) -> int:
    """Hash ASCII as `hashCode` would, unsigned; `before` is the hash of a text that comes before it, unsigned.

    Up to 32 characters are summed pair by pair, then fours, eights and so on, inside one number: every lane is wide
    enough for its sum, and zeros before the text count nothing. That is faster than going character by character.
    """
    length = len(text)
    if length > 32:
        return _long_hash(text, before)
    sums = int.from_bytes(text, "big")
    sums = (sums >> 8 & _LANES_8) * 31 + (sums & _LANES_8)
    sums = (sums >> 16 & _LANES_16) * _WEIGHT_2 + (sums & _LANES_16)
    sums = (sums >> 32 & _LANES_32) * _WEIGHT_4 + (sums & _LANES_32)
    sums = (sums >> 64 & _LANES_64) * _WEIGHT_8 + (sums & _LANES_64)
    return (before * _WEIGHTS[length] + (sums >> 128) * _WEIGHT_16 + sums) & 0xFFFFFFFF


def _long_hash(text: bytes, before: int) -> int:
    for start in range(0, len(text), 32):
        before = ascii_hash(text[start : start + 32], before)
    return before


def string_hash(text: str) -> int:
    """Hash over UTF-16 units: `text.hashCode()`."""
    if text.isascii():
        value = ascii_hash(text.encode("ascii"))
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        value = 0
        for high, low in zip(raw[::2], raw[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 2**32 if value > INT_MAX else value


def abs_or_zero(value: int) -> int:
    """Return `Math.abs(value)`, but 0 for the int minimum, whose absolute value is negative in Java."""
    return 0 if value == INT_MIN else abs(value)


def utf8_encode(text: str) -> bytes:
    """Encode with lone surrogates as `?`: `text.getBytes(UTF_8)`."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Two surrogates that make a pair are one character in Java, even if they came as two.
        paired = text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
        return paired.encode("utf-8", "replace")


def utf8_decode(data: bytes | bytearray | memoryview) -> str:
    """Decode with malformed bytes as U+FFFD: `new String(data, UTF_8)`."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        # Java reads an encoded surrogate as one malformed character, Python as one for each of its bytes.
        return _ENCODED_SURROGATE.sub(b"\xef\xbf\xbd", data).decode("utf-8", "replace")


def utf16_length(text: str) -> int:
    """Count UTF-16 units: `text.length()`."""
    return len(text) + sum(1 for character in text if character > "\uffff")


def split(text: str, separator: str) -> list[str]:
    """Split, dropping empty strings at the end only: `text.split(separator)`."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return [] if parts == [""] and text else parts


def hash_map_order(keys: Iterable[str], *, capacity: int = 16) -> list[str]:
    """Order keys as a `java.util.HashMap` of that initial capacity iterates over them.

    Buckets ascend and a bucket keeps insertion order. The table doubles when it is over three quarters full, and,
    while it is smaller than 64, when a ninth key enters one bucket. (In a larger table such a bucket becomes a tree,
    whose root comes first: that is not followed here.)
    """
    capacity = 1 << (capacity - 1).bit_length()
    spread: dict[str, int] = {}
    for key in keys:
        if key in spread:
            continue
        value = string_hash(key) & 0xFFFFFFFF
        value ^= value >> 16
        if capacity < 64 and sum(not (value ^ other) & (capacity - 1) for other in spread.values()) >= 8:
            capacity *= 2
        spread[key] = value
        if len(spread) > capacity * 3 // 4:
            capacity *= 2
    return sorted(spread, key=lambda key: spread[key] & (capacity - 1))
