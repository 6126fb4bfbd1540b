"""Batch fast path: encodes the records of a batch request without an object for each member.

The bytes are those of `expand_batch` and `encode_placed`; a differential test compares them. Batches with anything
that needs a decision for each member, and invalid ones, return None and take the slow path.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.batch import BATCH_MEMBER
from orbitlog.formats.records.message import BODY_CRC_MASK, RECORD_PREFIX, Message
from orbitlog.formats.records.properties import PROPERTIES_BYTES_MAX
from orbitlog.formats.records.record_template import RecordTemplate, record_parts, template_of

_unpack_member = BATCH_MEMBER.partial("flag", "body_length").unpack_from
_MEMBER_HEAD = BATCH_MEMBER.size_bytes
_SEPARATOR = ord(props.PROPERTY_END)
# sysFlag bits of batches that take the slow path.
_SLOW_PATH_BITS = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6 | flags.TRANSACTION_MASK | flags.INNER_BATCH
# Properties of members that take the slow path; a value that contains such a word takes it as well, without harm.
_SLOW_PATH_WORDS = (
    props.DELAY.encode(),
    props.INNER_NUM.encode(),
    props.CRC32.encode(),
    props.INNER_MULTI_DISPATCH.encode(),
)
# Members of equal sizes: everything of the prefix but the CRC and the two offsets is the same in all their records.
_FIRST, _MIDDLE = ("total_size", "magic"), ("queue_id", "flag")
_LAST = tuple(field.name for field in RECORD_PREFIX.fields[7:])
_PREFIX_BYTES = RECORD_PREFIX.size_bytes
_unpack_equal_parts = RECORD_PREFIX.partial(_FIRST, _MIDDLE, _LAST).unpack_from
_pack_equal = RECORD_PREFIX.partial(_FIRST, "body_crc", _MIDDLE, "queue_offset", "physical_offset", _LAST).pack
assert _LAST[0] == "sys_flag"


class BatchRecords(NamedTuple):
    """Consecutive records and the physical offset of each."""

    raw: bytes
    physical_offsets: list[int]


def encode_records(
    batch: Message, added: bytes, queue_offset: int, physical_offset: int, store_timestamp_ms: int
) -> BatchRecords | None:
    """Return the records of a batch, `added` appended to the properties of each; None if it needs the slow path.

    The body of `batch` is that of the request.
    """
    template = template_of(batch)
    if template is None or batch.sys_flag & _SLOW_PATH_BITS:
        return None
    start = _Start(queue_offset, physical_offset, store_timestamp_ms)
    return _encode_equal_sizes(batch, template, added, start) or _encode_any_sizes(batch, template, added, start)


class _Start(NamedTuple):
    """The fields that are assigned to the first record."""

    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int


def _encode_equal_sizes(batch: Message, template: RecordTemplate, added: bytes, start: _Start) -> BatchRecords | None:
    """Encode members that all have the same sizes and flag, as most batches have, in half the time.

    The first record is encoded; the others are copies of it with their own CRC, offsets, body and properties.
    """
    body, born_ms, queue_id = batch.body, batch.born_timestamp_ms, batch.queue_id
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
    if len(set(heads)) > 1 or len(set(lengths)) > 1 or _needs_slow_path(all_raw):
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
    queue_offset, physical_offset, store_ms = start
    size_bytes = template.size_bytes + body_bytes + properties_bytes
    shared = template if flag == template.flag else template._replace(flag=flag)
    record = b"".join(
        record_parts(
            shared,
            queue_id,
            queue_offset,
            physical_offset,
            born_ms,
            store_ms,
            0,
            bodies[0],
            body_bytes,
            raws[0] + added_part,
            properties_bytes,
        )
    )
    first, middle, last = _unpack_equal_parts(record)
    tail = record[_PREFIX_BYTES + body_bytes : size_bytes - properties_bytes]
    parts: list[bytes] = []
    for crc, member, raw in zip(map(crc32, bodies), bodies, raws, strict=True):
        prefix = _pack_equal(first, crc & BODY_CRC_MASK, middle, queue_offset, physical_offset, last)
        parts += (prefix, member, tail, raw, added_part)
        queue_offset += 1
        physical_offset += size_bytes
    return BatchRecords(b"".join(parts), list(range(start.physical_offset, physical_offset, size_bytes)))


@lru_cache(maxsize=1024)
def _member_struct(body_bytes: int, properties_bytes: int) -> struct.Struct:
    return struct.Struct(f">{_MEMBER_HEAD}s{body_bytes}s2s{properties_bytes}s")


def _encode_any_sizes(batch: Message, template: RecordTemplate, added: bytes, start: _Start) -> BatchRecords | None:
    body, born_ms = batch.body, batch.born_timestamp_ms
    queue_offset, physical_offset, store_ms = start
    parts: list[bytes] = []
    physical_offsets: list[int] = []
    queue_id, size_without, shared_flag = batch.queue_id, template.size_bytes, template.flag
    position, end = 0, len(body)
    while position + _MEMBER_HEAD <= end:
        flag, body_bytes = _unpack_member(body, position)
        body_start = position + _MEMBER_HEAD
        body_end = body_start + body_bytes
        properties_start = body_end + 2
        if body_bytes <= 0 or properties_start > end:
            return None
        position = properties_start + (body[body_end] << 8 | body[body_end + 1])  # the length: big-endian, unsigned
        properties = body[properties_start:position]
        if properties and properties[-1] != _SEPARATOR and added:
            properties += b"\x02"
        properties += added
        properties_bytes = len(properties)
        if properties_bytes > PROPERTIES_BYTES_MAX:
            return None
        if flag != shared_flag:
            template, shared_flag = template._replace(flag=flag), flag
        member = body[body_start:body_end]
        parts += record_parts(
            template,
            queue_id,
            queue_offset,
            physical_offset,
            born_ms,
            store_ms,
            crc32(member) & BODY_CRC_MASK,
            member,
            body_bytes,
            properties,
            properties_bytes,
        )
        physical_offsets.append(physical_offset)
        queue_offset += 1
        physical_offset += size_without + body_bytes + properties_bytes
    # Properties are the last of five parts. One search over all is cheaper than one for each member.
    if position != end or len(physical_offsets) < 2 or _needs_slow_path(b"".join(parts[4::5])):
        return None
    return BatchRecords(b"".join(parts), physical_offsets)


def _needs_slow_path(all_properties: bytes) -> bool:
    return 0 in all_properties or any(word in all_properties for word in _SLOW_PATH_WORDS)
