"""The records of an ordinary batch, made in one go: what a broker under batches lives on.

The same bytes as `expand_batch` and `encode_placed` give, without an object for each member; a test holds it to that.
Whatever is unusual about a batch, or wrong with it, is left to them.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.batch import BATCH_MEMBER
from orbitlog.formats.records.message import (
    BODY_CRC_MASK,
    MAGIC_V1,
    Message,
)
from orbitlog.formats.records.properties import PROPERTIES_BYTES_MAX
from orbitlog.formats.records.record_template import TEMPLATE_PREFIX, RecordTemplate, template_of

_unpack_member = struct.Struct(">12xii").unpack_from  # of its head the flag and the length of the body
_pack_prefix = TEMPLATE_PREFIX.pack
_TWO_INTS = struct.Struct(">II")
_REST = struct.Struct(">iq8sq20si")
_ALIKE = struct.Struct(f">8si8sqq{_REST.size}s")
assert _ALIKE.size == TEMPLATE_PREFIX.size
_MEMBER_HEAD = BATCH_MEMBER.size_bytes
_SEPARATOR = ord(props.PROPERTY_END)
_UNUSUAL_BITS = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6 | flags.TRANSACTION_MASK | flags.INNER_BATCH
# Members with these are refused or looked at one by one; a body that holds such a word only takes the longer way.
_UNUSUAL_WORDS = (
    props.DELAY.encode(),
    props.INNER_NUM.encode(),
    props.CRC32.encode(),
    props.INNER_MULTI_DISPATCH.encode(),
)


class BatchRecords(NamedTuple):
    """Records that follow each other, and where each begins."""

    raw: bytes
    physical_offsets: list[int]


def encode_records(
    batch: Message, added: bytes, queue_offset: int, physical_offset: int, store_timestamp_ms: int
) -> BatchRecords | None:
    """Return the records of a batch (its body the request's), `added` behind each one's properties; None if unusual."""
    template = template_of(batch)
    if template is None or batch.sys_flag & _UNUSUAL_BITS:
        return None
    start = _Start(queue_offset, physical_offset, store_timestamp_ms)
    return _encode_alike(batch, template, added, start) or _encode_any(batch, template, added, start)


class _Start(NamedTuple):
    """What the first record is given by the writer of the log."""

    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int


def _encode_alike(batch: Message, template: RecordTemplate, added: bytes, start: _Start) -> BatchRecords | None:
    """Encode members whose sizes and flags are all the same: most batches are such, and take half the time."""
    body, queue_id, born_ms = batch.body, batch.queue_id, batch.born_timestamp_ms
    if len(body) < _MEMBER_HEAD + 2:
        return None
    flag, body_bytes = _unpack_member(body)
    length_at = _MEMBER_HEAD + body_bytes
    if body_bytes <= 0 or length_at + 2 > len(body):
        return None
    raw_bytes = int.from_bytes(body[length_at : length_at + 2], "big")
    members = _member_struct(body_bytes, raw_bytes)
    if len(body) % members.size or len(body) == members.size:
        return None
    heads, bodies, lengths, raws = zip(*members.iter_unpack(body), strict=True)
    all_raw = b"".join(raws)
    if len(set(heads)) > 1 or len(set(lengths)) > 1 or 0 in all_raw or any(word in all_raw for word in _UNUSUAL_WORDS):
        return None
    added_part = added
    if added and raw_bytes:
        ended = all_raw[raw_bytes - 1 :: raw_bytes].count(_SEPARATOR)
        if 0 < ended < len(raws):
            return None
        added_part = added if ended else b"\x02" + added
    properties_bytes = raw_bytes + len(added_part)
    if properties_bytes > PROPERTIES_BYTES_MAX or 0 in added:
        return None
    _, size_bytes, _, sys_flag, born, after_store_time, topic_part = template
    size_bytes += body_bytes + properties_bytes
    tail = topic_part + properties_bytes.to_bytes(2, "big")
    queue_offset, physical_offset, store_ms = start
    # Only the checksum and the two offsets differ from one record to the next.
    size_and_magic, queue_and_flag = _TWO_INTS.pack(size_bytes, MAGIC_V1), _TWO_INTS.pack(queue_id, flag & 0xFFFFFFFF)
    rest = _REST.pack(sys_flag, born_ms, born, store_ms, after_store_time, body_bytes)
    parts: list[bytes] = []
    first_physical_offset, pack = physical_offset, _ALIKE.pack
    for crc, member, raw in zip(map(crc32, bodies), bodies, raws, strict=True):
        prefix = pack(size_and_magic, crc & BODY_CRC_MASK, queue_and_flag, queue_offset, physical_offset, rest)
        parts += (prefix, member, tail, raw, added_part)
        queue_offset += 1
        physical_offset += size_bytes
    return BatchRecords(b"".join(parts), list(range(first_physical_offset, physical_offset, size_bytes)))


@lru_cache(maxsize=1024)
def _member_struct(body_bytes: int, properties_bytes: int) -> struct.Struct:
    return struct.Struct(f">{_MEMBER_HEAD}s{body_bytes}s2s{properties_bytes}s")


def _encode_any(batch: Message, template: RecordTemplate, added: bytes, start: _Start) -> BatchRecords | None:
    """Encode members of any sizes."""
    queue_offset, physical_offset, store_timestamp_ms = start
    body, queue_id, sys_flag, born_ms = batch.body, batch.queue_id, batch.sys_flag, batch.born_timestamp_ms
    if any(word in body for word in _UNUSUAL_WORDS):
        return None
    _, size_without, _, _, born, after_store_time, topic_part = template
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
