"""Java's loose JSON, read with limits: what fastjson writes into config files, and what it takes when people edit them.

Strategy, fastest first. Most text is plain JSON, and the standard library reads it. Maps with integer keys have
them unquoted (`{0:107}`): one regular expression quotes and marks those, and the standard library reads the result;
they become `int` keys, so that a map can be written as it was. Everything else goes to a small reader that accepts
what fastjson accepts (bare keys, single quotes, comments, extra commas) or reports the line and column of the
error. Mirrors Java `RemotingSerializable.fromJson`; `fastjson_writer` is the other direction.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn, TypeAlias

from orbitlog.errors import BadField, FormatError, LimitExceeded
from orbitlog.formats.java import LONG_MAX, LONG_MIN

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str | int, Json] | None"

TEXT_CHARACTERS_MAX = 64 * 1024 * 1024
DEPTH_MAX = 64
_DEPTH_CEILING = 200  # the loose reader recurses: deeper than this and Python itself would object
_KEY_DEPTH_MAX = 3  # beans in keys of beans: each level escapes the text of the one inside it, and doubles its length
_LONG_DIGITS_MAX = len(str(LONG_MIN))


def read_json(text: str, *, characters_max: int = TEXT_CHARACTERS_MAX, depth_max: int = DEPTH_MAX) -> Json:
    """Return the value that `text` spells; the last of several equal keys wins."""
    assert 0 < depth_max <= _DEPTH_CEILING
    if len(text) > characters_max:
        raise LimitExceeded(field="JSON text", limit=characters_max, got=len(text))
    text = text.removeprefix("\ufeff")
    try:
        value = _read_plain(text)
    except RecursionError:
        raise LimitExceeded(field="JSON nesting", limit=depth_max, got="deeper nesting") from None
    except ValueError:
        return _LooseReader(text, depth_max).read()
    _check_depth(value, depth_max)
    return value


def _check_depth(value: Json, depth_max: int) -> None:
    """Raise `LimitExceeded` for deep nesting; an iterator for each level, and no copy of any."""
    if not isinstance(value, dict | list):
        return
    levels = [_containers(value)]
    while levels:
        child = next(levels[-1], None)
        if child is None:
            levels.pop()
        elif len(levels) >= depth_max:
            raise LimitExceeded(field="JSON nesting", limit=depth_max, got="deeper nesting")
        else:
            levels.append(_containers(child))


def _containers(value: list[Json] | dict[str | int, Json]) -> Iterator[list[Json] | dict[str | int, Json]]:
    children = value.values() if isinstance(value, dict) else value
    return (child for child in children if isinstance(child, dict | list))


def _long(literal: str) -> int:
    value = int(literal) if len(literal) <= _LONG_DIGITS_MAX else LONG_MAX + 1
    if not LONG_MIN <= value <= LONG_MAX:
        raise ValueError(literal)
    return value


def _double(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(literal)
    return value


def _refuse(literal: str) -> NoReturn:
    raise ValueError(literal)


# Marks a key that had no quotes. A noncharacter: a text that holds it anyway is left to the loose reader.
_MARK = "\ufdd0"
_MARK_IN_TEXT = re.compile(r"\ufdd0|\\ufdd0", re.IGNORECASE)
_INT_KEY = re.compile(r"([{,][ \t\r\n]*+)(-?[0-9]++)(?=[ \t\r\n]*+:)")
# An unclosed string matches to the end of the text, so that the search for strings never starts over.
_QUOTED = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def _unmark(pairs: list[tuple[str, Json]]) -> dict[str | int, Json]:
    return {_long(key[1:]) if key[:1] == _MARK else key: value for key, value in pairs}


# `strict=False`: fastjson takes control characters inside strings as they are.
_PLAIN = json.JSONDecoder(parse_int=_long, parse_float=_double, parse_constant=_refuse, strict=False)
_MARKED = json.JSONDecoder(
    parse_int=_long, parse_float=_double, parse_constant=_refuse, strict=False, object_pairs_hook=_unmark
)


def _read_plain(text: str) -> Json:
    """Read JSON that is standard except for unquoted integer keys; raise `ValueError` if it is not."""
    try:
        plain: Json = _PLAIN.decode(text)
        return plain
    except ValueError:
        marked: Json = _MARKED.decode(_quote_int_keys(text))
        return marked


def _quote_int_keys(text: str) -> str:
    strings = "\0".join(_QUOTED.findall(text))
    if _MARK_IN_TEXT.search(text) or _INT_KEY.search(strings):
        raise ValueError("a string looks like a key")
    return _INT_KEY.sub(rf'\1"{_MARK}\2"', text)


_SPACE = re.compile(r"(?:[ \t\r\n\f\b]++|//[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+')
    |(?P<double>-?[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++))
    |(?P<long>-?[0-9]++)
    |(?P<word>[A-Za-z_$][A-Za-z0-9_$]*+)
    |(?P<mark>[][{}:,])""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None}

# What a single-quoted string, or one with an escape known to fastjson alone, needs to become a JSON string.
_NOT_JSON = re.compile(r"""\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<octal>[0-7])|(?P<v>v)|(?P<quote>')|.)|\"""", re.DOTALL)


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


class _LooseReader:
    """Recursive descent over `text`; every error names line and column."""

    def __init__(self, text: str, depth_max: int) -> None:
        self._text = text
        self._position = 0
        self._depth_max = depth_max
        self._key_depth = 0

    def read(self) -> Json:
        value = self._value(self._next(), 0)
        end = self._next()
        if end.kind != "end":
            raise self._error(f"expected the end, found {end.text!r}", end.position)
        return value

    def _next(self) -> _Token:
        space = _SPACE.match(self._text, self._position)
        start = space.end() if space else self._position
        match = _TOKEN.match(self._text, start)
        if match is None:
            if start < len(self._text):
                raise self._error(f"cannot read {self._text[start : start + 16]!r}", start)
            return _Token("end", "end of text", start)
        self._position = match.end()
        return _Token(match.lastgroup or "", match.group(), start)

    def _value(self, token: _Token, depth: int) -> Json:
        if token.text == "{":
            return self._map(token, depth + 1)
        if token.text == "[":
            return self._list(token, depth + 1)
        if token.kind == "string":
            return self._string(token)
        if token.kind in ("long", "double"):
            return self._number(token)
        if token.text in _WORDS:
            return _WORDS[token.text]
        raise self._error(f"expected a value, found {token.text[:40]!r}", token.position)

    def _map(self, opening: _Token, depth: int) -> dict[str | int, Json]:
        self._enter(opening, depth)
        entries: dict[str | int, Json] = {}
        token = self._next()
        while token.text != "}":
            if token.text == ",":
                token = self._next()
                continue
            key = self._key(token, depth)
            colon = self._next()
            if colon.text != ":":
                raise self._error(f"expected ':', found {colon.text[:40]!r}", colon.position)
            entries[key] = self._value(self._next(), depth)
            token = self._separator("}")
        return entries

    def _list(self, opening: _Token, depth: int) -> list[Json]:
        self._enter(opening, depth)
        items: list[Json] = []
        token = self._next()
        while token.text != "]":
            if token.text == ",":
                token = self._next()
                continue
            items.append(self._value(token, depth))
            token = self._separator("]")
        return items

    def _separator(self, closing: str) -> _Token:
        token = self._next()
        if token.text not in (",", closing):
            raise self._error(f"expected ',' or {closing!r}, found {token.text[:40]!r}", token.position)
        return token

    def _enter(self, opening: _Token, depth: int) -> None:
        if depth > self._depth_max:
            raise LimitExceeded(
                field="JSON nesting", limit=self._depth_max, got=depth, position=self._byte(opening.position)
            )

    def _key(self, token: _Token, depth: int) -> str | int:
        if token.kind == "string":
            return self._string(token)
        if token.kind == "long":
            key = self._number(token)
            assert isinstance(key, int)
            return key
        if token.kind == "word":
            return token.text
        if token.text == "{" and self._key_depth < _KEY_DEPTH_MAX:
            # A map whose keys are beans: the key is the JSON text of one, as newer Java takes it.
            self._key_depth += 1
            bean = self._map(token, depth + 1)
            self._key_depth -= 1
            return json.dumps(bean, ensure_ascii=False, separators=(",", ":"))
        raise self._error(f"expected a key, found {token.text[:40]!r}", token.position)

    def _number(self, token: _Token) -> int | float:
        try:
            return _long(token.text) if token.kind == "long" else _double(token.text)
        except ValueError:
            raise self._error(f"{token.text[:40]} does not fit in 64 bits", token.position, BadField) from None

    def _string(self, token: _Token) -> str:
        try:
            return str(_PLAIN.decode('"' + _NOT_JSON.sub(_as_json, token.text[1:-1]) + '"'))
        except ValueError:
            raise self._error(f"bad escape in string {token.text[:40]!r}", token.position) from None

    def _error(self, problem: str, position: int, kind: type[FormatError] = FormatError) -> FormatError:
        line = self._text.count("\n", 0, position) + 1
        column = position - self._text.rfind("\n", 0, position)
        return kind(f"line {line} column {column}: {problem}", field="JSON", position=self._byte(position))

    def _byte(self, position: int) -> int:
        return len(self._text[:position].encode("utf-8", "surrogatepass"))


def _as_json(match: re.Match[str]) -> str:
    if match["hex"]:
        return f"\\u00{match['hex']}"
    if match["octal"]:
        return f"\\u000{match['octal']}"
    if match["v"]:
        return "\\u000b"
    if match["quote"]:
        return "'"
    return '\\"' if match.group() == '"' else match.group()
