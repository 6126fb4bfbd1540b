"""Batch encoder: encodes the records of a batch request with a kernel, the twin of `formats.records.batch_records`.

One pass over the members: each is checked to be within the request, its CRC is computed, and its record is written
after the one before. A member that is not eligible or invalid ends the pass; plain Python then encodes or refuses the
batch.
"""

from __future__ import annotations

from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.batch import BATCH_MEMBER
from orbitlog.formats.records.batch_records import BatchRecords, encode_records
from orbitlog.formats.records.message import RECORD_PREFIX, Message
from orbitlog.formats.records.properties import PROPERTIES_BYTES_MAX
from orbitlog.formats.records.record_template import record_parts, template_of
from orbitlog.kernels.arrays import np
from orbitlog.kernels.jit import inlined, kernel
from orbitlog.kernels.unaligned import (
    body_crc,
    copy_bytes,
    load_half_word,
    load_i32,
    load_u8,
    load_u16,
    store_i32,
    store_i64,
)

_HEAD = BATCH_MEMBER.size_bytes
_FLAG, _BODY_LENGTH = BATCH_MEMBER.position("flag"), BATCH_MEMBER.position("body_length")
_PREFIX = RECORD_PREFIX.size_bytes
_BODY_CRC, _RECORD_FLAG, _QUEUE_OFFSET, _PHYSICAL_OFFSET, _RECORD_BODY_LENGTH = (
    RECORD_PREFIX.position(name) for name in ("body_crc", "flag", "queue_offset", "physical_offset", "body_length")
)
_SEPARATOR = ord(props.PROPERTY_END)
# The first four bytes of property names that need the slow path.
_DELAY = int.from_bytes(props.DELAY.encode()[:4], "little")
_INNER_NUM = int.from_bytes(props.INNER_NUM.encode()[:4], "little")
_CRC32 = int.from_bytes(props.CRC32.encode()[:4], "little")
_SLOW_PATH_BITS = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6 | flags.TRANSACTION_MASK | flags.INNER_BATCH
_MEMBERS_MAX = 4096
_NOT_ELIGIBLE, _NO_ROOM = -1, -2
_ROOM_MIN = 64 * 1024


@inlined
def _are_eligible(source, first, end):
    """Return whether properties contain neither a zero byte nor the start of a name that needs the slow path."""
    for at in range(first, end - 3):
        word = load_half_word(source, at)
        if word == _DELAY or word == _INNER_NUM or word == _CRC32 or (word & np.uint32(0xFF)) == 0:
            return False
    for at in range(max(first, end - 3), end):
        if load_u8(source, at) == 0:
            return False
    return True


@kernel
def put_records(members, shared, added_bytes, queue_offset, physical_offset, records, places):
    """Write the records of all members; return their bytes and count, or a negative reason and the count so far.

    `shared` is a record's prefix, the topic with its length, and the properties added to each member.
    """
    source, end = members.ctypes.data, np.int64(members.shape[0])
    constant, target, room = shared.ctypes.data, records.ctypes.data, np.int64(records.shape[0])
    topic_bytes = np.int64(shared.shape[0]) - _PREFIX - added_bytes
    position, written, count = np.int64(0), np.int64(0), np.int64(0)
    while position < end:
        if count == places.shape[0] or position + _HEAD + 2 > end:
            return _NOT_ELIGIBLE, count
        body_bytes = np.int64(load_i32(source, position + _BODY_LENGTH))
        if body_bytes <= 0 or position + _HEAD + body_bytes + 2 > end:
            return _NOT_ELIGIBLE, count
        body_start = position + _HEAD
        first = body_start + body_bytes + 2
        raw_bytes = np.int64(load_u16(source, first - 2))
        following = first + raw_bytes
        if following > end:
            return _NOT_ELIGIBLE, count
        if not _are_eligible(source, first, following):
            return _NOT_ELIGIBLE, count
        separator = 1 if added_bytes > 0 and raw_bytes > 0 and load_u8(source, following - 1) != _SEPARATOR else 0
        properties_bytes = raw_bytes + separator + added_bytes
        size = _PREFIX + body_bytes + topic_bytes + 2 + properties_bytes
        if properties_bytes > PROPERTIES_BYTES_MAX:
            return _NOT_ELIGIBLE, count
        if written + size > room:
            return _NO_ROOM, count
        copy_bytes(target, written, constant, np.int64(0), np.int64(_PREFIX))
        store_i32(target, written, np.int32(size))
        store_i32(target, written + _BODY_CRC, body_crc(source, body_start, body_bytes))
        store_i32(target, written + _RECORD_FLAG, load_i32(source, position + _FLAG))
        store_i64(target, written + _QUEUE_OFFSET, queue_offset + count)
        store_i64(target, written + _PHYSICAL_OFFSET, physical_offset + written)
        store_i32(target, written + _RECORD_BODY_LENGTH, np.int32(body_bytes))
        places[count] = physical_offset + written
        at = written + _PREFIX
        copy_bytes(target, at, source, body_start, body_bytes)
        at += body_bytes
        copy_bytes(target, at, constant, np.int64(_PREFIX), topic_bytes)
        at += topic_bytes
        records[at] = properties_bytes >> 8
        records[at + 1] = properties_bytes & 0xFF
        at += 2
        copy_bytes(target, at, source, first, raw_bytes)
        at += raw_bytes
        if separator:
            records[at] = _SEPARATOR
            at += 1
        copy_bytes(target, at, constant, _PREFIX + topic_bytes, added_bytes)
        written += size
        count += 1
        position = following
    return written, count


class BatchEncoder:
    """Encodes batches into a buffer that is reused; for one thread."""

    def __init__(self) -> None:
        self._places = np.empty(_MEMBERS_MAX, np.int64)
        self._make_room(_ROOM_MIN)

    def _make_room(self, size_bytes: int) -> None:
        self._records = np.empty(size_bytes, np.uint8)
        self._view = self._records.data

    def load(self) -> None:
        """Load the kernel: the first call compiles it or reads compiled code from the cache."""
        shared = np.frombuffer(bytes(_PREFIX + 2), np.uint8)
        put_records(np.frombuffer(b"", np.uint8), shared, 0, 0, 0, self._records, self._places)

    def encode_records(
        self, batch: Message, added: bytes, queue_offset: int, physical_offset: int, store_timestamp_ms: int
    ) -> BatchRecords | None:
        """Return what its twin in `formats` returns."""
        template = template_of(batch)
        if template is None or template.sys_flag & _SLOW_PATH_BITS or 0 in added:
            return None
        # A record without body and properties: the kernel copies all of it but the length of properties at its end.
        born_ms = batch.born_timestamp_ms
        record = b"".join(record_parts(template, batch.queue_id, 0, 0, born_ms, store_timestamp_ms, 0, b"", 0, b"", 0))
        members = np.frombuffer(batch.body, np.uint8)
        shared = np.frombuffer(record[:-2] + added, np.uint8)
        size, count = put_records(
            members, shared, len(added), queue_offset, physical_offset, self._records, self._places
        )
        if size == _NO_ROOM and len(self._records) < 2 * len(members):
            self._make_room(2 * len(members))
            size, count = put_records(
                members, shared, len(added), queue_offset, physical_offset, self._records, self._places
            )
        if size <= 0 or count < 2:
            return encode_records(batch, added, queue_offset, physical_offset, store_timestamp_ms)
        return BatchRecords(bytes(self._view[:size]), self._places[:count].tolist())
