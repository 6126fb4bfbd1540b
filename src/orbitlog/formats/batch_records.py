"""The records of an ordinary batch, made in one go: what a broker under batches lives on.

The same bytes as `expand_batch` and `encode_placed` give, without an object for each member; a test holds it to that.
Whatever is unusual about a batch, or wrong with it, is left to them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

from orbitlog.formats import flags
from orbitlog.formats import properties as props
from orbitlog.formats.batch import BATCH_MEMBER
from orbitlog.formats.message import (
    BODY_CRC_MASK,
    MAGIC_V1,
    Message,
)
from orbitlog.formats.properties import PROPERTIES_BYTES_MAX
from orbitlog.formats.record_template import TEMPLATE_PREFIX, template_of

_unpack_member = struct.Struct(">12xii").unpack_from  # of its head the flag and the length of the body
_pack_prefix = TEMPLATE_PREFIX.pack
_MEMBER_HEAD = BATCH_MEMBER.size_bytes
_SEPARATOR = ord(props.PROPERTY_END)
_UNUSUAL_BITS = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6 | flags.TRANSACTION_MASK | flags.INNER_BATCH
# Members with these are refused or looked at one by one; a body that holds such a word only takes the longer way.
_UNUSUAL_WORDS = (props.DELAY.encode(), props.INNER_NUM.encode())


class BatchRecords(NamedTuple):
    """Records that follow each other, and where each begins."""

    raw: bytes
    physical_offsets: list[int]


def encode_records(
    batch: Message, added: bytes, queue_offset: int, physical_offset: int, store_timestamp_ms: int
) -> BatchRecords | None:
    """Return the records of a batch (its body the request's), `added` behind each one's properties; None if unusual."""
    _, queue_id, _, _, _, sys_flag, born_ms, born, _, _, _, _, body, _, _, _ = batch
    template = template_of(batch)
    if template is None or sys_flag & _UNUSUAL_BITS or any(word in body for word in _UNUSUAL_WORDS):
        return None
    _, size_without, _, _, _, after_store_time, topic_part = template
    parts: list[bytes] = []
    physical_offsets: list[int] = []
    position, end = 0, len(body)
    properties_bytes, tail = -1, b""
    while position + _MEMBER_HEAD <= end:
        flag, body_bytes = _unpack_member(body, position)
        body_start = position + _MEMBER_HEAD
        body_end = body_start + body_bytes
        properties_start = body_end + 2
        if body_bytes <= 0 or properties_start > end:
            return None
        position = properties_start + int.from_bytes(body[body_end:properties_start], "big")
        member, raw = body[body_start:body_end], body[properties_start:position]
        if raw and raw[-1] != _SEPARATOR and added:
            raw += b"\x02"
        raw += added
        if len(raw) != properties_bytes:  # mostly that of the member before
            properties_bytes = len(raw)
            if properties_bytes > PROPERTIES_BYTES_MAX:
                return None
            tail = topic_part + properties_bytes.to_bytes(2, "big")
        if position > end or 0 in raw:
            return None
        size_bytes = size_without + body_bytes + properties_bytes
        parts += (
            _pack_prefix(
                size_bytes,
                MAGIC_V1,
                crc32(member) & BODY_CRC_MASK,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_ms,
                born,
                store_timestamp_ms,
                after_store_time,
                body_bytes,
            ),
            member,
            tail,
            raw,
        )
        physical_offsets.append(physical_offset)
        physical_offset += size_bytes
        queue_offset += 1
    return BatchRecords(b"".join(parts), physical_offsets) if position == end and len(physical_offsets) > 1 else None
