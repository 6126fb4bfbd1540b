"""JSON text as fastjson writes it, byte for byte: the config files of a store, pretty or compact.

There are two versions. fastjson 1 (RocketMQ up to 5.3) keeps a map with integer keys on one line and
escapes U+007F to U+009F, U+2028 and U+2029; fastjson 2 (RocketMQ 5.5) gives each entry its own line and escapes
control characters alone. `compat.Compat.int_keys_on_own_line` selects one. Both leave integer keys
unquoted, leave nulls out of maps, and never escape a slash. Mirrors Java `RemotingSerializable.toJson`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from orbitlog.formats.tables.loose_json import Json


class _Style(NamedTuple):
    int_keys_on_own_line: bool
    escapes: dict[int, str]


_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def _escapes(code_points: list[int], template: str) -> dict[int, str]:
    return {point: template.format(point) for point in code_points} | {
        ord(character): escape for character, escape in _SHORT_ESCAPES.items()
    }


_FASTJSON_1 = _Style(False, _escapes([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], "\\u{:04X}"))
_FASTJSON_2 = _Style(True, _escapes([*range(0x20)], "\\u{:04x}"))


def write_pretty(value: Json, *, int_keys_on_own_line: bool) -> str:
    """Write as fastjson 2 (`int_keys_on_own_line`) or fastjson 1 do in pretty mode: TABs, `"key":value`.

    A null in a map is left out. Lists of integers stay on one line, as `int[]` and `long[]` do in both.
    """
    return _pretty(value, 0, _FASTJSON_2 if int_keys_on_own_line else _FASTJSON_1)


class PrettyWriter:
    """Writes a map of which the values are given one at a time, so that a large table is never a tree of objects."""

    def __init__(self, *, int_keys_on_own_line: bool) -> None:
        self._style = _FASTJSON_2 if int_keys_on_own_line else _FASTJSON_1

    def value(self, value: Json, level: int) -> str:
        """Return the text of a value at a nesting level."""
        return _pretty(value, level, self._style)

    def map(self, texts: Iterable[tuple[str | int, str]], level: int) -> str:
        """Return the text of a map from those of its values, which are one level deeper."""
        return _joined_map(texts, level, self._style)


def write_compact(value: Json, *, int_keys_on_own_line: bool = True) -> str:
    """Write without spaces; the flag selects the escapes, as in `write_pretty`."""
    return _compact(value, _FASTJSON_2 if int_keys_on_own_line else _FASTJSON_1)


def _pretty(value: Json, level: int, style: _Style) -> str:
    if isinstance(value, dict):
        return _pretty_map(value, level, style)
    if isinstance(value, list) and not all(type(item) is int for item in value):
        indent = "\n" + "\t" * (level + 1)
        items = [indent + _pretty(item, level + 1, style) for item in value]
        return f"[{','.join(items)}\n{chr(9) * level}]"
    return _compact(value, style)


def _pretty_map(entries: dict[str | int, Json], level: int, style: _Style) -> str:
    members = ((key, _pretty(child, level + 1, style)) for key, child in entries.items() if child is not None)
    return _joined_map(members, level, style)


def _joined_map(texts: Iterable[tuple[str | int, str]], level: int, style: _Style) -> str:
    indent = "\n" + "\t" * (level + 1)
    members = [
        ("" if isinstance(key, int) and not style.int_keys_on_own_line else indent) + f"{_key(key, style)}:{text}"
        for key, text in texts
    ]
    return f"{{{','.join(members)}\n{chr(9) * level}}}" if members else "{}"


def _compact(value: Json, style: _Style) -> str:
    if isinstance(value, dict):
        members = [f"{_key(k, style)}:{_compact(child, style)}" for k, child in value.items() if child is not None]
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(_compact(item, style) for item in value)}]"
    return _scalar(value, style)


def _key(key: str | int, style: _Style) -> str:
    return str(key) if isinstance(key, int) else _scalar(key, style)


def _scalar(value: bool | int | float | str | None, style: _Style) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return _java_double(value)
        case str():
            return f'"{value.translate(style.escapes)}"'
        case _:
            return str(value)


def _java_double(value: float) -> str:
    """Spell a double as `Double.toString` does (1.5, 1.0E20, 1.0E-4); fastjson has null for NaN and infinities."""
    if not math.isfinite(value):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # rarely needed, and slow to load

    number = Decimal(repr(value)).normalize()
    first, *others = map(str, number.as_tuple().digits)
    return f"{'-' if value < 0 else ''}{first}.{''.join(others) or '0'}E{number.adjusted()}"
