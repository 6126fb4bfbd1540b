"""Records that differ from one another in little: what they share is put together once.

Whoever sends many messages sends them to one topic, over one connection, with the same flags. A template holds all of
that; a record made from it has the same bytes as `encode_placed` gives, which a test holds it to. Only plain records
have templates: version 1, both hosts IPv4.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from orbitlog.formats.records import flags
from orbitlog.formats.records.message import (
    BODY_CRC_MASK,
    MAGIC_V1,
    RECORD_BYTES_MIN,
    RECORD_PREFIX,
    TOPIC_BYTES_MAX_V1,
    Message,
)

# The prefix of a record; the store host, the times it was sent back and the half message's place are one field.
TEMPLATE_PREFIX = struct.Struct(">iIiiiqqiq8sq20si")
assert TEMPLATE_PREFIX.size == RECORD_PREFIX.size_bytes
_AFTER_STORE_TIME = struct.Struct(">8siq")
_IPV6_BITS = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6

_pack_prefix = TEMPLATE_PREFIX.pack
_new_tuple = tuple.__new__  # a named tuple made in half the time of calling it


class RecordTemplate(NamedTuple):
    """What records share; `size_bytes` is that of one without body and properties, `topic_part` follows the body."""

    topic: str
    size_bytes: int
    flag: int
    sys_flag: int
    born_host_raw: bytes
    after_store_time: bytes
    topic_part: bytes


def template_of(message: Message) -> RecordTemplate | None:
    """Return a template for messages like this one; None where it is not plain."""
    topic = message.topic.encode()
    if message.version != 1 or not 0 < len(topic) <= TOPIC_BYTES_MAX_V1 or message.sys_flag & _IPV6_BITS:
        return None
    after_store_time = _AFTER_STORE_TIME.pack(
        message.store_host_raw, message.reconsume_times, message.prepared_transaction_offset
    )
    return RecordTemplate(
        message.topic,
        RECORD_BYTES_MIN + len(topic),
        message.flag,
        message.sys_flag,
        message.born_host_raw,
        after_store_time,
        bytes((len(topic),)) + topic,
    )


Row = tuple[RecordTemplate, tuple[str, int], int, bytes, bytes]
"""One message of a run: its template, its queue, the time it was born at, its body and its properties.

A plain tuple: it takes a third of the time of a named one.
"""


class Run(NamedTuple):
    """Records that follow each other; for each its physical offset and its queue offset."""

    raw: bytes
    places: list[tuple[int, int]]


def encode_run(
    rows: Sequence[Row], queue_offsets: dict[tuple[str, int], int], physical_offset: int, store_ms: int, room_bytes: int
) -> Run:
    """Return the records of the first rows, as many as have room; counts on in `queue_offsets`."""
    parts: list[bytes] = []
    places: list[tuple[int, int]] = []
    end = physical_offset + room_bytes
    for template, queue, born_ms, body, properties in rows:
        _, size_bytes, flag, sys_flag, born, after_store_time, topic_part = template
        body_bytes, properties_bytes = len(body), len(properties)
        size_bytes += body_bytes + properties_bytes
        if physical_offset + size_bytes > end:
            break
        queue_offset = queue_offsets.get(queue, 0)
        queue_offsets[queue] = queue_offset + 1
        parts += (
            _pack_prefix(
                size_bytes,
                MAGIC_V1,
                crc32(body) & BODY_CRC_MASK,
                queue[1],
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_ms,
                born,
                store_ms,
                after_store_time,
                body_bytes,
            ),
            body,
            topic_part,
            properties_bytes.to_bytes(2, "big"),
            properties,
        )
        places.append((physical_offset, queue_offset))
        physical_offset += size_bytes
    return _new_tuple(Run, (b"".join(parts), places))
