"""What orjson refuses, read all the same: Java's loose JSON, bytes that are not UTF-8, halves of surrogate pairs.

A half surrogate can be spelled in JSON (`\\ud800`) and held by Java, but never be sent: Java writes `?` in its place.
We do so at once, so that no text inside can fail to be written later.
"""

from __future__ import annotations

from orbitlog.formats.java import utf8_decode, utf8_encode
from orbitlog.formats.tables.loose_json import Json, read_json


def read_loosely(data: bytes, *, characters_max: int, depth_max: int) -> Json:
    """Return what `data` spells; `FormatError` if it is not even loose JSON."""
    value = read_json(utf8_decode(data), characters_max=characters_max, depth_max=depth_max)
    if b"\\ud" in data or b"\\uD" in data:
        return _sendable(value)
    return value


def _sendable(value: Json) -> Json:
    """Replace what cannot be encoded; nesting is bounded by the reader."""
    if isinstance(value, str):
        return utf8_encode(value).decode()
    if isinstance(value, list):
        return [_sendable(child) for child in value]
    if isinstance(value, dict):
        return {
            utf8_encode(key).decode() if isinstance(key, str) else key: _sendable(child) for key, child in value.items()
        }
    return value
