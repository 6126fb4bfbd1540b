"""Remoting command: one request or response, and its encoding. Mirrors Java `RemotingCommand`.

    frame = total u32 | mark u32 (serialization u8, header length u24) | header | body      total counts all but itself

The header is JSON text, or binary:

    code i16 | language i8 | version i16 | opaque i32 | flag i32 | remark length i32, bytes | ext length i32, entries
    entry = key length i16, bytes | value length i32, bytes

A command keeps the serialization that it was received in, and its response uses the same one: C++ and Node read JSON
only. `command_decoding` decodes. The binary header mirrors Java `RocketMQSerializable`.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from enum import IntEnum

import orjson

from orbitlog.errors import WireError
from orbitlog.formats.java import utf8_encode
from orbitlog.wire.frame_start import TOTAL_BYTES, pack_frame_start

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

# The version in our commands: the ordinal of release 5.3.3. Java consumers refuse SQL filters below 232, and a name
# server responds in standard JSON from 401.
PROTOCOL_VERSION = 479
LANGUAGE = "PYTHON"

LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST"),
    "NODE_JS",
)
LANGUAGE_ORDINALS = {name: ordinal for ordinal, name in enumerate(LANGUAGES)}

HEADER_BYTES_MAX = 2**24 - 1


class Serialization(IntEnum):
    """The encoding of a header."""

    JSON = 0
    BINARY = 1


@dataclass(slots=True)
class Command:
    """A request or a response; `ext_fields` contain the header of its code as text."""

    code: int
    opaque: int = 0
    flag: int = 0
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str | None = None
    version: int = PROTOCOL_VERSION
    language: str = LANGUAGE
    serialization: int = Serialization.JSON
    header: object = field(default=None, repr=False, compare=False)
    """The typed header, if the decoder has created it already (`repeated_pulls`)."""

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & FLAG_ONEWAY != 0


def response_to(
    request: Command,
    code: int,
    remark: str | None = None,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
) -> Command:
    """Return a response to `request`, in the same serialization."""
    return Command(
        code,
        request.opaque,
        FLAG_RESPONSE,
        {} if ext_fields is None else ext_fields,
        body,
        remark,
        PROTOCOL_VERSION,
        LANGUAGE,
        request.serialization,
    )


_FIXED = struct.Struct(">hbhii")
_ENTRY_KEY = struct.Struct(">h")
_LENGTH = struct.Struct(">i")


def encode_command(command: Command) -> bytes:
    """Return a whole frame; raise `WireError` if the header is too long."""
    header = _binary_header(command) if command.serialization == Serialization.BINARY else _json_header(command)
    if len(header) > HEADER_BYTES_MAX:
        raise WireError(f"header of {len(header)} bytes exceeds the maximum of {HEADER_BYTES_MAX}")
    body = command.body
    mark = command.serialization << 24 | len(header)
    return b"".join((pack_frame_start(TOTAL_BYTES + len(header) + len(body), mark), header, body))


def _json_header(command: Command) -> bytes:
    # Nulls are omitted, as in Java. Values are always text: Go accepts nothing else.
    fields: dict[str, object] = {
        "code": int(command.code),
        "language": command.language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
    }
    if command.remark is not None:
        fields["remark"] = command.remark
    fields["extFields"] = command.ext_fields
    try:
        return orjson.dumps(fields)
    except orjson.JSONEncodeError:  # an unpaired surrogate, which a string from loose JSON can contain
        return json.dumps(fields, separators=(",", ":")).encode()


def _binary_header(command: Command) -> bytes:
    remark = b"" if command.remark is None else utf8_encode(command.remark)
    entries: list[bytes] = []
    for name, value in command.ext_fields.items():
        key, text = utf8_encode(name), utf8_encode(value)
        if len(key) > 32767:
            raise WireError(f"ext field name of {len(key)} bytes exceeds the maximum of 32767")
        entries += (_ENTRY_KEY.pack(len(key)), key, _LENGTH.pack(len(text)), text)
    ext = b"".join(entries)
    fixed = _FIXED.pack(
        _short(int(command.code)),  # codes from 200050 are truncated, as in Java
        LANGUAGE_ORDINALS.get(command.language, LANGUAGE_ORDINALS["OTHER"]),
        _short(command.version),
        command.opaque,
        command.flag,
    )
    return b"".join((fixed, _LENGTH.pack(len(remark)), remark, _LENGTH.pack(len(ext)), ext))


def _short(value: int) -> int:
    """Return `(short) value`: the low 16 bits, as a signed number."""
    return ((value + 2**15) & 0xFFFF) - 2**15
