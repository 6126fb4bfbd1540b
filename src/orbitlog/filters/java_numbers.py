"""Numbers as Java reads them from text: `Integer.valueOf`, `Long.valueOf`, `Double.valueOf`, `Boolean.valueOf`.

Each raises `ValueError` if Java throws NumberFormatException. `compare_doubles` orders as `Double.compareTo`.
"""

from __future__ import annotations

import math
import re

INTEGER_MIN, INTEGER_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
# Longer text is out of range unless it has leading zeros; the limit also prevents the conversion of megabytes.
_DIGITS_MAX = 64

# Possessive: a text of n digits and a letter would otherwise be tried in n * n ways.
_WHOLE = re.compile(r"[+-]?\d++")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?")
_HEX_DIGITS = r"(?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)"
_HEXADECIMAL = re.compile(rf"([+-]?0[xX]{_HEX_DIGITS}[pP][+-]?[0-9]++)[fFdD]?")
_WORDS = {"NaN": math.nan, "Infinity": math.inf}
# What String.trim removes: everything up to the space.
_TRIMMED = "".join(map(chr, range(33)))


def parse_integer(text: str) -> int:
    """Parse a Java int."""
    return _whole(text, INTEGER_MIN, INTEGER_MAX)


def parse_long(text: str) -> int:
    """Parse a Java long."""
    return _whole(text, LONG_MIN, LONG_MAX)


def _whole(text: str, least: int, most: int) -> int:
    if text.isascii() and len(text) <= _DIGITS_MAX and (text.isdecimal() or _WHOLE.fullmatch(text)):
        number = int(text)
    else:
        number = _parse_other_digits(text)
    if not least <= number <= most:
        raise ValueError(f"{text[:_DIGITS_MAX]!r} is out of range")
    return number


def _parse_other_digits(text: str) -> int:
    """Parse digits of other scripts and many leading zeros; Java reads single UTF-16 units, so none above U+FFFF."""
    if not _WHOLE.fullmatch(text) or max(text) > "\uffff":
        raise ValueError(f"{text[:_DIGITS_MAX]!r} is not a whole number")
    sign = -1 if text[0] == "-" else 1
    digits = "".join(str(int(digit)) for digit in text.lstrip("+-")).lstrip("0")
    if len(digits) > _DIGITS_MAX:
        raise ValueError(f"{text[:_DIGITS_MAX]!r}... is out of range")
    return sign * int(digits or "0")


def parse_double(text: str) -> float:
    """Parse a Java double."""
    text = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    unsigned = text[1:] if text[:1] in {"+", "-"} else text
    if unsigned in _WORDS:
        return math.copysign(_WORDS[unsigned], -1.0 if text[0] == "-" else 1.0)
    hexadecimal = _HEXADECIMAL.fullmatch(text)
    if hexadecimal is None:
        raise ValueError(f"{text[:_DIGITS_MAX]!r} is not a number")
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -math.inf if text[0] == "-" else math.inf


def parse_boolean(text: str) -> bool:
    """Parse a Java boolean: everything but "true" is false."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Compare like `Double.compareTo`: NaN equals itself and is above everything, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(number: float) -> int:
    if math.isnan(number):
        return 2
    return 0 if number or math.copysign(1.0, number) > 0 else -1
