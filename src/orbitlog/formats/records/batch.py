"""Batches: the members that a client packs into the body of one request, and their records.

A member is `size, magic, crc, flag, body, properties`; the broker ignores the first three. Each member becomes a
separate record without a mark of the batch. Mirrors Java `MessageDecoder.encodeMessage` and
`MessageExtBatchEncoder`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

from orbitlog.errors import BadField, LimitExceeded, Truncated
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records import properties as names
from orbitlog.formats.records.message import BODY_CRC_MASK, Bytes, Message
from orbitlog.formats.records.properties import PROPERTIES_BYTES_MAX, join_properties

BATCH_MEMBER = Layout(
    "Batch member (request body), fixed prefix",
    Field("total_size", "i32", "bytes of the member, this field included; not read"),
    Field("magic", "i32", "0; not read"),
    Field("body_crc", "i32", "0; not read"),
    Field("flag", "i32", "the application's own flag"),
    Field("body_length", "i32", "then the body, properties length (i16) and properties"),
)
_PROPERTIES_LENGTH = struct.Struct(">h")
MEMBER_BYTES_MIN = BATCH_MEMBER.size_bytes + _PROPERTIES_LENGTH.size
BATCH_MEMBERS_MAX = 1_000_000
_SHORT_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True)
class BatchMember:
    body: bytes
    properties_raw: bytes = b""
    flag: int = 0


def member_count(body: bytes, count_max: int = BATCH_MEMBERS_MAX) -> int:
    """Return the number of members of a batch, up to `count_max` and the first that is truncated; at least 1."""
    count, position, end = 0, 0, len(body)
    while end - position >= MEMBER_BYTES_MIN and count < count_max:
        length = BATCH_MEMBER.struct.unpack_from(body, position)[4]
        position += BATCH_MEMBER.size_bytes + max(length, 0)
        if end - position < _PROPERTIES_LENGTH.size:
            break
        position += _PROPERTIES_LENGTH.size + max(_PROPERTIES_LENGTH.unpack_from(body, position)[0], 0)
        count += 1
    return max(count, 1)


def encode_batch(members: list[BatchMember]) -> bytes:
    """Join members into the body of a batch request."""
    return b"".join(part for each in members for part in batch_member_parts(each.body, each.properties_raw, each.flag))


def batch_member_parts(body: bytes, properties_raw: bytes, flag: int = 0) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the byte strings of one member, to be joined."""
    body_bytes, properties_bytes = len(body), len(properties_raw)
    if properties_bytes > PROPERTIES_BYTES_MAX:
        raise LimitExceeded(field="properties length", limit=PROPERTIES_BYTES_MAX, got=properties_bytes)
    total_size = MEMBER_BYTES_MIN + body_bytes + properties_bytes
    try:
        head = BATCH_MEMBER.struct.pack(total_size, 0, 0, flag, body_bytes)
    except struct.error as error:
        raise BadField(f"a number does not fit its field ({error})", field="batch member") from None
    return head, body, _PROPERTIES_LENGTH.pack(properties_bytes), properties_raw


def decode_batch(body: Bytes) -> list[BatchMember]:
    """Split the body of a batch request into its members."""
    members = list(_scan_members(body))
    if not members:
        raise BadField("has no members", field="batch")
    return members


def _scan_members(body: Bytes) -> Iterator[BatchMember]:
    position = count = 0
    while position < len(body):
        count += 1
        if count > BATCH_MEMBERS_MAX:
            raise LimitExceeded(field="batch members", limit=BATCH_MEMBERS_MAX, got=count)
        _need(body, position, BATCH_MEMBER.size_bytes)
        flag, body_length = BATCH_MEMBER.struct.unpack_from(body, position)[3:]
        body_start = position + BATCH_MEMBER.size_bytes
        if body_length < 0:
            raise BadField(f"{body_length} is negative", field="batch member body length", position=position)
        _need(body, body_start, body_length + _PROPERTIES_LENGTH.size)
        body_end = body_start + body_length
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(body, body_end)
        if properties_length < 0:
            raise BadField(f"{properties_length} is negative", field="batch member properties", position=position)
        properties_start = body_end + _PROPERTIES_LENGTH.size
        _need(body, properties_start, properties_length)
        position = properties_start + properties_length
        yield BatchMember(bytes(body[body_start:body_end]), bytes(body[properties_start:position]), flag)


def _need(body: Bytes, position: int, size: int) -> None:
    if len(body) - position < size:
        raise Truncated(field="batch member", needed=size, got=len(body) - position, position=position)


def expand_batch(batch: Message) -> list[Message]:
    """Turn a batch message (its body the request's) into the records to append.

    Each member gets its own body, CRC and flag, and its properties followed by the batch's; the rest is the batch's.
    Queue offsets and physical offsets are assigned when they are appended.
    """
    return [
        batch._replace(
            body=member.body,
            body_crc=crc32(member.body) & BODY_CRC_MASK,
            flag=member.flag,
            properties_raw=join_properties(member.properties_raw, batch.properties_raw),
            prepared_transaction_offset=0,
        )
        for member in decode_batch(batch.body)
    ]


@dataclass(frozen=True, slots=True)
class InnerBatch:
    """Properties of a 5.x record that contains many messages (sysFlag INNER_BATCH)."""

    message_count: int
    base_queue_offset: int


def inner_batch(properties: dict[str, str]) -> InnerBatch | None:
    """Return INNER_NUM and INNER_BASE; None if the record is not an inner batch."""
    count, base = properties.get(names.INNER_NUM), properties.get(names.INNER_BASE)
    if count is None or base is None:
        return None
    if count.isdecimal() and len(count) <= 5 and base.isdecimal() and len(base) <= 19:
        found = InnerBatch(int(count), int(base))
        if 0 < found.message_count <= _SHORT_MAX and found.base_queue_offset <= LONG_MAX:
            return found
    raise BadField(f"{names.INNER_NUM}={count[:20]}, {names.INNER_BASE}={base[:20]}", field="inner batch")
