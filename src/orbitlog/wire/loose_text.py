"""Loose JSON: reads text that orjson refuses (Java's dialect, invalid UTF-8, unpaired surrogates).

JSON can spell an unpaired surrogate (`\\ud800`) and a Java string can contain it, but it has no UTF-8: Java sends `?`
instead. The reader replaces it at once, so that no string fails to be encoded later.
"""

from __future__ import annotations

import re
from typing import cast

import orjson

from orbitlog.errors import LimitExceeded
from orbitlog.formats.java import utf8_decode, utf8_encode
from orbitlog.formats.tables.loose_json import Json, read_json

_INTEGER_KEY = re.compile(rb"([{,])(-?[0-9]{1,19}+):")
_ESCAPES_PER_VALUE = 4
_LONG_BYTES = 16 * 1024


def read_loosely(data: bytes, *, bytes_max: int, values_max: int, depth_max: int) -> Json:
    """Return the value of `data`; raise `FormatError` if it is not valid loose JSON, or too much for this reader.

    Standard JSON with malformed UTF-8 may have any length, and so may JSON with integers as keys, which then become
    texts. Everything else is read in Python, at a thousandth of orjson's speed, so both limits must be small for text
    from a network.
    """
    if len(data) > _LONG_BYTES:
        try:
            return cast("Json", orjson.loads(_integer_keys_quoted(data)))
        except orjson.JSONDecodeError:
            pass  # more than integer keys; or one in a string, which a quote has ended too early
    text = utf8_decode(data)
    if len(data) > bytes_max:
        return _read_repaired(data, utf8_encode(text), bytes_max)
    values = data.count(b",") + data.count(b":") + data.count(b"[") + data.count(b"\\") // _ESCAPES_PER_VALUE
    if values > values_max:
        raise LimitExceeded(field="values of JSON that is not standard", limit=values_max, got=values)
    value = read_json(text, characters_max=bytes_max, depth_max=depth_max)
    if b"\\ud" in data or b"\\uD" in data:
        return _sendable(value)
    return value


def _integer_keys_quoted(data: bytes) -> bytes:
    """Return JSON with its integer keys in quotes, built from slices: a substitution would call Python for each key."""
    parts = _INTEGER_KEY.split(data)
    count = len(parts) // 3
    quoted = [b""] * (5 * count + 1)
    quoted[::5], quoted[1::5], quoted[3::5] = parts[::3], parts[1::3], parts[2::3]
    quoted[2::5], quoted[4::5] = [b'"'] * count, [b'":'] * count
    return b"".join(quoted)


def _read_repaired(data: bytes, repaired: bytes, bytes_max: int) -> Json:
    try:
        if repaired != data:
            return cast("Json", orjson.loads(repaired))
    except orjson.JSONDecodeError:
        pass
    raise LimitExceeded(field="JSON that is not standard", limit=bytes_max, got=len(data))


def _sendable(value: Json) -> Json:
    """Replace unpaired surrogates; the reader has limited the nesting."""
    if isinstance(value, str):
        return utf8_encode(value).decode()
    if isinstance(value, list):
        return [_sendable(child) for child in value]
    if isinstance(value, dict):
        return {
            utf8_encode(key).decode() if isinstance(key, str) else key: _sendable(child) for key, child in value.items()
        }
    return value
