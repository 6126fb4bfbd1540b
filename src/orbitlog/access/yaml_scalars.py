"""Scalars of YAML 1.1: unfolds and unescapes quoted text, and decides whether plain text is read as text."""

from __future__ import annotations

import re
from typing import NamedTuple

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_DECIMAL = re.compile(r"0|[1-9][0-9]*")
# What YAML 1.1 reads as another type than text. Java's YAML reads more texts as numbers than the specification, such as
# 1234e10: the last line has all that look like one.
_NOT_TEXT = re.compile(
    r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF|<<|="
    r"|[-+]?0b[01_]+|[-+]?0x[0-9a-fA-F_]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?"
    r"(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?"
    r"|[-+]?[.0-9][0-9_.:eE+-]*"
)
_BLANK = " \t"
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {
    **dict(zip("0abtnvfre", "\0\a\b\t\n\v\f\r\x1b", strict=True)),
    **dict(zip('\t "\\/', '\t "\\/', strict=True)),
    **dict(zip("N_LP", "\x85\xa0\u2028\u2029", strict=True)),
}


class Scalar(NamedTuple):
    """A value as it was written; `is_text` if YAML 1.1 reads it as text, `is_decimal` if as a plain whole number."""

    text: str
    is_text: bool
    is_decimal: bool
    line: int


def plain_scalar(text: str, line: int) -> Scalar | None:
    """Return the scalar of text without quotes; None if YAML reads it as null."""
    if text in _NULL:
        return None
    return Scalar(text, _NOT_TEXT.fullmatch(text) is None, _DECIMAL.fullmatch(text) is not None, line)


def unquoted(raw: str, quote: str) -> str:
    """Return what stands between two quotes: a line break becomes a space, a blank line a line break.

    Raise `ValueError` if an escape is invalid.
    """
    is_double = quote == '"'
    lines = raw.replace("\r\n", "\n").split("\n")
    parts: list[str] = []
    blank_lines, is_joined = 0, True
    for index, written in enumerate(lines):
        is_last = index == len(lines) - 1
        line = written.lstrip(_BLANK) if index else written
        kept = line if is_last else line.rstrip(_BLANK)
        ends_escaped = is_double and not is_last and (len(kept) - len(kept.rstrip("\\"))) % 2 == 1
        if index and not kept and not is_last:
            blank_lines += 1
            continue
        parts.append("\n" * blank_lines or ("" if is_joined else " "))
        blank_lines, is_joined = 0, ends_escaped and kept == line
        if is_joined:  # an escaped line break
            kept = kept[:-1]
        elif ends_escaped:  # an escaped space before the line break
            kept = line[: len(kept) + 1]
        parts.append(_unescaped(kept) if is_double else kept.replace("''", "'"))
    return "".join(parts)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_escaped, text) if "\\" in text else text


def _escaped(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits is None:
        letter = _ESCAPED.get(match[4])
        if letter is None:
            raise ValueError("an unknown escape; write \\\\ for a backslash between double quotes")
        return letter
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError("an escape of an invalid character")
    return chr(code)
