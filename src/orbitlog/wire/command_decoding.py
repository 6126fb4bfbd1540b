"""Command decoding: JSON and binary headers, with limits; raises `WireError` for anything else.

orjson reads the JSON of nearly all clients; what it refuses goes to the loose reader. Ext fields are text in Java and
Go, and also numbers and booleans in C++ and Node: all become text. Mirrors Java `RemotingCommand.decode`,
`RocketMQSerializable.rocketMQProtocolDecode`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import orjson

from orbitlog.errors import FormatError, WireError
from orbitlog.formats.java import INT_MAX, INT_MIN, utf8_decode
from orbitlog.wire.command import LANGUAGES, Command, Serialization

if TYPE_CHECKING:
    from orbitlog.wire.request_budgets import RequestBudgets

FRAME_BYTES_MAX = 16 * 1024 * 1024
LOOSE_HEADER_BYTES_MAX = 8 * 1024
"""The loose reader is slow: no client sends such a header with much in it."""


class WireLimits(NamedTuple):
    """Limits of received frames. A header contains up to 32 KiB of properties, at up to six bytes per character."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    header_bytes_max: int = 1024 * 1024
    ext_fields_max: int = 1024
    nesting_max: int = 8
    budgets: RequestBudgets | None = None
    """The largest header and body per request code; None, for a client, allows any."""


_JSON = int(Serialization.JSON)
_FIXED = struct.Struct(">hbhii")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


def decode_json_header(header: bytes, body: bytes, limits: WireLimits) -> Command:
    """Decode a JSON header."""
    try:
        fields = orjson.loads(header)
    except orjson.JSONDecodeError:
        fields = _read_loosely(header, limits)
    if type(fields) is not dict:
        raise WireError("header is JSON, but not an object")
    get = fields.get
    code = get("code")
    opaque = get("opaque", 0)
    flag = get("flag", 0)
    version = get("version", 0)
    if not (type(code) is type(opaque) is type(flag) is type(version) is int):
        code, opaque = _integer(code, "code"), _integer(opaque, "opaque")
        flag, version = _integer(flag, "flag"), _integer(version, "version")
    if not 0 <= code | opaque | flag <= INT_MAX:
        _check_widths(code, opaque, flag)
    ext_fields = get("extFields")
    if ext_fields is None:
        ext_fields = {}
    elif type(ext_fields) is not dict:
        raise WireError("extFields is not an object")
    else:
        if len(ext_fields) > limits.ext_fields_max:
            raise WireError(f"{len(ext_fields)} ext fields exceed the maximum of {limits.ext_fields_max}")
        try:
            "".join(ext_fields.values())  # the fastest check that all are text
        except TypeError:
            ext_fields = _all_text(ext_fields)
    remark = get("remark")
    language = get("language", "JAVA")
    if type(language) is not str or (remark is not None and type(remark) is not str):
        language = _language(language)
        remark = remark if isinstance(remark, str) else None
    return Command(code, opaque, flag, ext_fields, body, remark, version, language, _JSON)


def _check_widths(*values: int) -> None:
    if not all(INT_MIN <= value <= INT_MAX for value in values):
        raise WireError("code, opaque or flag is wider than 32 bits")


def _read_loosely(header: bytes, limits: WireLimits) -> object:
    from orbitlog.wire.loose_text import read_loosely  # official clients send standard JSON in headers

    try:
        return read_loosely(
            header, bytes_max=LOOSE_HEADER_BYTES_MAX, values_max=LOOSE_HEADER_BYTES_MAX, depth_max=limits.nesting_max
        )
    except FormatError as error:
        raise WireError(f"header is not valid JSON: {error}") from None


def _integer(value: object, name: str) -> int:
    if isinstance(value, bool) or value is None:
        raise WireError(f"{name} is missing or not a number")
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.removeprefix("-").isascii() and value.removeprefix("-").isdigit():
        return int(value) if len(value) < 12 else INT_MAX + 1
    raise WireError(f"{name} is not a number")


def _language(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and 0 <= value < len(LANGUAGES):
        return LANGUAGES[value]
    return "OTHER"


def _all_text(ext_fields: dict[object, object]) -> dict[str, str]:
    """Format numbers and booleans as Java does; nulls are omitted."""
    texts = {}
    for name, value in ext_fields.items():
        if isinstance(value, str):
            texts[str(name)] = value
        elif isinstance(value, bool):
            texts[str(name)] = "true" if value else "false"
        elif isinstance(value, int | float):
            texts[str(name)] = str(value)
        elif value is not None:
            raise WireError(f"ext field {str(name)[:40]} is neither text, number nor boolean")
    return texts


def decode_binary_header(header: bytes, body: bytes, limits: WireLimits) -> Command:
    """Decode a binary header."""
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(header)
        position = _FIXED.size
        (remark_bytes,) = _INT.unpack_from(header, position)
        position += 4
        remark = _text(header, position, remark_bytes)
        position += remark_bytes
        (ext_bytes,) = _INT.unpack_from(header, position)
        position += 4
        if ext_bytes < 0 or position + ext_bytes > len(header):
            raise WireError(f"ext fields of {ext_bytes} bytes in a header of {len(header)}")
        ext_fields = _binary_ext_fields(header, position, position + ext_bytes, limits)
    except struct.error:
        raise WireError(f"binary header is truncated at {len(header)} bytes") from None
    name = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    return Command(code, opaque, flag, ext_fields, body, remark or None, version, name, int(Serialization.BINARY))


def _binary_ext_fields(header: bytes, position: int, end: int, limits: WireLimits) -> dict[str, str]:
    ext_fields: dict[str, str] = {}
    count = 0
    while position < end:
        count += 1  # not the number of keys: an empty or repeated key costs as much
        if count > limits.ext_fields_max:
            raise WireError(f"more than {limits.ext_fields_max} ext fields")
        (key_bytes,) = _SHORT.unpack_from(header, position)
        key = _text(header, position + 2, key_bytes)
        position += 2 + key_bytes
        (value_bytes,) = _INT.unpack_from(header, position)
        value = _text(header, position + 4, value_bytes)
        position += 4 + value_bytes
        if key:
            ext_fields[key] = value
    if position != end:
        raise WireError("ext fields exceed their length")
    return ext_fields


def _text(header: bytes, start: int, length: int) -> str:
    if length < 0 or start + length > len(header):
        raise WireError(f"text of {length} bytes in a header of {len(header)}")
    return utf8_decode(header[start : start + length])
