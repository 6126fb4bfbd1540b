"""Property CRC: a checksum of the whole record in its last property, `__CRC32#` (RocketMQ 5.2 and later).

A record's own CRC field covers the body alone. A Java broker with `enabledAppendPropCRC` ends the properties of every
record that it appends with `__CRC32#`, 0x01, ten digits and 0x02: the CRC-32 of all bytes of the record before these
20. A record that was stored before and is stored again (a retry, a delayed message, a commit) gets a new one, the old
one is removed. With `forceVerifyPropCRC` a Java broker ends the log, at its next start, before the first record that
has none or a wrong one. Mirrors `MessageExtEncoder`, `CommitLog.DefaultAppendMessageCallback` and
`MessageUtils.deleteProperty`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from orbitlog.formats.records.properties import (
    CRC_PROPERTY_BYTES,
    CRC_PROPERTY_START,
    PROPERTIES_BYTES_MAX,
    append_crc_property,
    join_properties,
)
from orbitlog.formats.records.record_template import Row, Run, encode_run

# Overwritten by `seal_record`; without a zero byte, which would be taken for a torn write.
_ROOM = b"\2" * CRC_PROPERTY_BYTES
_remove = re.compile(rb"(?:\A|(?<=\x02))__CRC32#\x01[^\x02]*(?:\x02|\Z)").sub


def ends_with_crc(properties_raw: bytes | memoryview) -> bool:
    """Return whether the properties of a record end with a property CRC that a Java broker finds."""
    length = len(properties_raw)
    if properties_raw[length - CRC_PROPERTY_BYTES : length - 11] != CRC_PROPERTY_START:
        return False
    # Java appends it to batch members without a separator: it is then part of the last value, and not found.
    return length == CRC_PROPERTY_BYTES or properties_raw[length - CRC_PROPERTY_BYTES - 1] == 2


def without_crc(properties_raw: bytes) -> bytes:
    """Return the properties without any `__CRC32#`: that of a record stored earlier is invalid for the next."""
    return _remove(b"", properties_raw) if CRC_PROPERTY_START in properties_raw else properties_raw


def with_room_for_crc(properties_raw: bytes) -> bytes:
    """Return the properties with 20 bytes at their end that `seal_record` overwrites, after a separator."""
    return join_properties(without_crc(properties_raw), _ROOM)


def seal_record(record: bytes) -> bytes:
    """Return the record with the property CRC in its last 20 bytes."""
    covered = record[:-CRC_PROPERTY_BYTES]
    return covered + append_crc_property(covered)


def encode_sealed_run(
    rows: Sequence[Row], queue_offsets: dict[tuple[str, int], int], physical_offset: int, store_ms: int, room_bytes: int
) -> Run:
    """Return what `record_template.encode_run` returns, each record with its property CRC.

    Stops before the first row whose properties become too long.
    """
    wider: list[Row] = []
    for template, queue, born_ms, body_crc, body, properties in rows:
        with_room = with_room_for_crc(properties)
        if len(with_room) > PROPERTIES_BYTES_MAX:
            break
        wider.append((template, queue, born_ms, body_crc, body, with_room))
    raw, places = encode_run(wider, queue_offsets, physical_offset, store_ms, room_bytes)
    bounds = [*(place - physical_offset for place, _ in places), len(raw)]
    return b"".join(seal_record(raw[start:end]) for start, end in pairwise(bounds)), places
