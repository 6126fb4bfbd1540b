"""One request or response, and its bytes. Mirrors Java `RemotingCommand` and `RocketMQSerializable`.

    frame = total u32 | mark u32 (serialization u8, header length u24) | header | body      total counts all but itself

The header is JSON text, or binary:

    code i16 | language i8 | version i16 | opaque i32 | flag i32 | remark length i32, bytes | ext length i32, entries
    entry = key length i16, bytes | value length i32, bytes

A command remembers which of the two it came in, and its response is written in the same: C++ and Node read JSON
only. `command_decoding` is the other direction.
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

# What we say we are: the ordinal of release 5.3.3. Java consumers refuse SQL filters below 232, and a name server
# answers standard JSON from 401 on.
PROTOCOL_VERSION = 479
LANGUAGE = "PYTHON"

LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST"),
    "NODE_JS",
)
LANGUAGE_ORDINALS = {name: ordinal for ordinal, name in enumerate(LANGUAGES)}

HEADER_BYTES_MAX = 2**24 - 1


class Serialization(IntEnum):
    """How a header is written."""

    JSON = 0
    BINARY = 1


@dataclass(slots=True)
class Command:
    """A request or a response. `ext_fields` hold the header of this code as text, `body` what goes with it."""

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
    """The header of its code, where whoever read it has made that as well."""

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
    """Answer `request`, in its own serialization."""
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
    """Write a whole frame."""
    header = _binary_header(command) if command.serialization == Serialization.BINARY else _json_header(command)
    if len(header) > HEADER_BYTES_MAX:
        raise WireError(f"a header of {len(header)} bytes; a frame has room for {HEADER_BYTES_MAX}")
    body = command.body
    mark = command.serialization << 24 | len(header)
    return b"".join((pack_frame_start(TOTAL_BYTES + len(header) + len(body), mark), header, body))


def _json_header(command: Command) -> bytes:
    # Java leaves out what is null, and so do we. Values are text always: Go takes nothing else.
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
    except orjson.JSONEncodeError:  # half of a surrogate pair, which a loosely read request can hold
        return json.dumps(fields, separators=(",", ":")).encode()


def _binary_header(command: Command) -> bytes:
    remark = b"" if command.remark is None else utf8_encode(command.remark)
    entries: list[bytes] = []
    for name, value in command.ext_fields.items():
        key, text = utf8_encode(name), utf8_encode(value)
        if len(key) > 32767:
            raise WireError(f"an extension field's name of {len(key)} bytes; at most 32767")
        entries += (_ENTRY_KEY.pack(len(key)), key, _LENGTH.pack(len(text)), text)
    ext = b"".join(entries)
    fixed = _FIXED.pack(
        _short(int(command.code)),  # codes from 200050 on do not fit, in Java neither
        LANGUAGE_ORDINALS.get(command.language, LANGUAGE_ORDINALS["OTHER"]),
        _short(command.version),
        command.opaque,
        command.flag,
    )
    return b"".join((fixed, _LENGTH.pack(len(remark)), remark, _LENGTH.pack(len(ext)), ext))


def _short(value: int) -> int:
    """`(short) value`."""
    return ((value + 2**15) & 0xFFFF) - 2**15
