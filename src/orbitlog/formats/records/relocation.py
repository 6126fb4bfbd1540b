"""Relocation: rewrites a CommitLog record for another physical offset.

A record contains its own physical offset, and may refer to earlier records: a committed message to its half message
(`prepared_transaction_offset`), a retried or dead-letter message to its original by offset message id. Such references
are translated too. Lengths never change.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from orbitlog.formats.hosts import IPV4_HOST_BYTES, IPV6_HOST_BYTES
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import MAGIC_V2, RECORD_PREFIX
from orbitlog.formats.records.property_crc import ends_with_crc, seal_record

Translate = Callable[[int], int | None]
"""Returns the new physical offset of an earlier record, None without a record at the old one."""

_I16, _I32, _U32, _I64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">I"), struct.Struct(">q")
_MAGIC = RECORD_PREFIX.position("magic")
_PHYSICAL_OFFSET = RECORD_PREFIX.position("physical_offset")
_SYS_FLAG = RECORD_PREFIX.position("sys_flag")
_PREPARED = RECORD_PREFIX.position("prepared_transaction_offset")
_BODY_LENGTH = RECORD_PREFIX.position("body_length")
_IPV6_MORE = IPV6_HOST_BYTES - IPV4_HOST_BYTES
_OFFSET_DIGITS = 16
# Properties are name 0x01 value, separated by 0x02. Both properties hold an offset message id: 32 digits, 56 for IPv6.
_ORIGIN = b"ORIGIN_MESSAGE_ID\x01"
_ORIGIN_ID = re.compile(rb"(?:(?<=\x02)|\A)(?:DLQ_)?ORIGIN_MESSAGE_ID\x01([0-9A-Fa-f]{56}|[0-9A-Fa-f]{32})(?=\x02|\Z)")


def relocate_record(record: bytes, physical_offset: int, translate: Translate) -> bytes:
    """Return a valid record with another physical offset, its references to earlier records translated.

    References to records that do not exist, such as expired ones, stay as they are. A property CRC is recomputed.
    """
    raw = bytearray(record)
    _I64.pack_into(raw, _PHYSICAL_OFFSET, physical_offset)
    (sys_flag,) = _I32.unpack_from(raw, _SYS_FLAG)
    more = _IPV6_MORE * (bool(sys_flag & flags.BORN_HOST_IPV6) + bool(sys_flag & flags.STORE_HOST_IPV6))
    (prepared,) = _I64.unpack_from(raw, _PREPARED + more)
    if prepared > 0 and (half_message := translate(prepared)) is not None:
        _I64.pack_into(raw, _PREPARED + more, half_message)
    start = _properties_start(raw, more)
    if _ORIGIN in record:
        for match in _ORIGIN_ID.finditer(bytes(raw[start:])):
            _translate_id(raw, start + match.start(1), start + match.end(1), translate)
    if ends_with_crc(memoryview(raw)[start:]):
        return seal_record(bytes(raw))
    return bytes(raw)


def _properties_start(raw: bytearray, more: int) -> int:
    """Return the position of the first byte after the properties' length."""
    (body_length,) = _I32.unpack_from(raw, _BODY_LENGTH + more)
    position = RECORD_PREFIX.size_bytes + more + int(body_length)
    (magic,) = _U32.unpack_from(raw, _MAGIC)
    if magic == MAGIC_V2:
        return position + _I16.size + int(_I16.unpack_from(raw, position)[0]) + _I16.size
    return position + 1 + raw[position] + _I16.size


def _translate_id(raw: bytearray, start: int, end: int, translate: Translate) -> None:
    """Translate the offset in an offset message id; its host stays."""
    digits = raw[end - _OFFSET_DIGITS : end]
    translated = translate(int(digits, 16))
    if translated is not None:
        text = f"{translated:0{_OFFSET_DIGITS}X}"
        raw[end - _OFFSET_DIGITS : end] = (text if not digits.islower() else text.lower()).encode()
