"""CommitLog record codec: `Message` to bytes and back.

Codecs are functions of their bytes: `decode_message` returns a `Message` or raises a `FormatError` that names the
invalid field. The order of its checks is a contract: the kernels make the same checks in the same order.

Mirrors Java `CommitLog.checkMessageAndReturnSize` and `MessageExtEncoder`, and checks more than they do: the
record's own physical offset, the signs of lengths, the topic's encoding. docs/formats.md shows the bytes;
`message_scan` reads consecutive records.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from orbitlog.errors import BadField, BadMagic, ChecksumMismatch, LengthMismatch, LimitExceeded, Misplaced, Truncated
from orbitlog.formats.hosts import IPV4_HOST_BYTES, IPV6_HOST_BYTES, Host, decode_host
from orbitlog.formats.records import flags
from orbitlog.formats.records.properties import (
    CRC_PROPERTY_START,
    PROPERTIES_BYTES_MAX,
    check_crc_property,
    decode_properties,
    encode_properties,
)
from orbitlog.formats.records.record_layout import (
    BODY_CRC_MASK,
    IPV6_BITS,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    RECORD_PREFIX,
    RECORD_PREFIXES,
    RECORD_START,
    RECORD_TAIL,
    TOPIC_BYTES_MAX_V1,
    TOPIC_BYTES_MAX_V2,
)
from orbitlog.formats.records.record_template import RecordTemplate, Row, make_template, record_parts

# The layout is part of this module's interface: readers of a message need it with the message.
__all__ = [
    "BODY_CRC_MASK",
    "MAGIC_V1",
    "MAGIC_V2",
    "RECORD_BYTES_MIN",
    "RECORD_PREFIX",
    "RECORD_START",
    "RECORD_TAIL",
    "TOPIC_BYTES_MAX_V1",
    "TOPIC_BYTES_MAX_V2",
    "Bytes",
    "MeasuredRecord",
    "Message",
    "assign_fields",
    "decode_message",
    "encode_message",
    "encode_placed",
    "make_message",
    "measure_record",
    "record_version",
]

_PREFIX_IPV4 = RECORD_PREFIX.struct
_SIZE_AND_MAGIC = RECORD_PREFIX.partial("total_size", "magic")
_I16 = RECORD_TAIL.partial("properties_length", start="properties_length")
_ASSIGNED = RECORD_PREFIX.partial("queue_offset", "physical_offset", start="queue_offset")
_STORE_TIME = RECORD_PREFIX.partial("store_timestamp_ms", start="store_timestamp_ms")

_NO_HOST = bytes(IPV4_HOST_BYTES)

Bytes = bytes | bytearray | memoryview


class Message(NamedTuple):
    """One message, its fields in the order of the record.

    A named tuple, not a dataclass: the codec packs and unpacks it whole, which is what makes plain Python fast
    enough for the append path (docs/adr/0002). `properties_raw` is kept as stored, so that a record encodes
    back to its own bytes whatever version wrote it.
    """

    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host_raw: bytes
    store_timestamp_ms: int
    store_host_raw: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties_raw: bytes
    version: int = 1

    @property
    def born_host(self) -> Host:
        return decode_host(self.born_host_raw)

    @property
    def store_host(self) -> Host:
        return decode_host(self.store_host_raw)

    @property
    def properties(self) -> dict[str, str]:
        """Decode the properties; each call creates a new map."""
        return decode_properties(self.properties_raw)

    @property
    def transaction_type(self) -> flags.TransactionType:
        return flags.transaction_type(self.sys_flag)

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole record."""
        hosts = len(self.born_host_raw) + len(self.store_host_raw)
        payload = len(self.body) + len(self.topic.encode()) + len(self.properties_raw)
        return RECORD_BYTES_MIN - 2 * IPV4_HOST_BYTES + hosts + self.version - 1 + payload


def make_message(
    topic: str,
    body: bytes,
    *,
    properties: Mapping[str, str] | bytes = b"",
    born_host: Host | None = None,
    store_host: Host | None = None,
    sys_flag: int = 0,
    **fields: int,
) -> Message:
    """Create a message; CRC, host bits and version are computed, omitted fields are 0."""
    born_raw = born_host.encode() if born_host else _NO_HOST
    store_raw = store_host.encode() if store_host else _NO_HOST
    sys_flag &= ~IPV6_BITS
    sys_flag |= flags.BORN_HOST_IPV6 if len(born_raw) == IPV6_HOST_BYTES else 0
    sys_flag |= flags.STORE_HOST_IPV6 if len(store_raw) == IPV6_HOST_BYTES else 0
    return Message(
        body_crc=crc32(body) & BODY_CRC_MASK,
        queue_id=fields.pop("queue_id", 0),
        flag=fields.pop("flag", 0),
        queue_offset=fields.pop("queue_offset", 0),
        physical_offset=fields.pop("physical_offset", 0),
        sys_flag=sys_flag,
        born_timestamp_ms=fields.pop("born_timestamp_ms", 0),
        born_host_raw=born_raw,
        store_timestamp_ms=fields.pop("store_timestamp_ms", 0),
        store_host_raw=store_raw,
        reconsume_times=fields.pop("reconsume_times", 0),
        prepared_transaction_offset=fields.pop("prepared_transaction_offset", 0),
        body=body,
        topic=topic,
        properties_raw=properties if isinstance(properties, bytes) else encode_properties(properties),
        version=fields.pop("version", record_version(topic)),
        **fields,
    )


def record_version(topic: str) -> int:
    """Return the record version for a topic: V1 has one byte for its length, at most 127."""
    return 1 if len(_encode_topic(topic)) <= TOPIC_BYTES_MAX_V1 else 2


MeasuredRecord = tuple[int, Row]
"""A record that is checked and has no physical offset yet: its size in bytes, and its row."""


def measure_record(message: Message) -> MeasuredRecord:
    """Return the record's size and row, after checking that a reader will accept it."""
    crc, queue_id, flag, _, _, sys_flag, born_ms, born, _, stored, times, prepared, body, topic, raw, version = message
    template = _checked_template(flag, sys_flag, born, stored, times, prepared, topic, version)
    if len(raw) > PROPERTIES_BYTES_MAX:
        raise LimitExceeded(field="properties length", limit=PROPERTIES_BYTES_MAX, got=len(raw))
    # The CRC is the message's own, right or wrong: a decoded record encodes back to its bytes.
    row = template, (topic, queue_id), born_ms, crc, body, raw
    return template[1] + len(body) + len(raw), row


# Messages of one producer share a template: without the cache, making it takes as long as the rest of the encoding.
# Its arguments come from clients, so the cache is bounded.
@lru_cache(maxsize=1024)
def _checked_template(  # noqa: PLR0917
    flag: int, sys_flag: int, born: bytes, stored: bytes, times: int, prepared: int, name: str, version: int
) -> RecordTemplate:
    topic = _encode_topic(name)
    if not 0 < len(topic) <= TOPIC_BYTES_MAX_V1 or version != 1:
        _check_long_topic(version, len(topic))
    born_bytes = IPV6_HOST_BYTES if sys_flag & flags.BORN_HOST_IPV6 else IPV4_HOST_BYTES
    store_bytes = IPV6_HOST_BYTES if sys_flag & flags.STORE_HOST_IPV6 else IPV4_HOST_BYTES
    if len(born) != born_bytes or len(stored) != store_bytes:
        raise BadField("address sizes differ from the bits of sysFlag", field="hosts")
    try:
        return make_template(flag, sys_flag, born, stored, times, prepared, topic, version)
    except struct.error as error:
        raise _out_of_range(error) from None


def encode_placed(measured: MeasuredRecord, queue_offset: int, physical_offset: int, store_timestamp_ms: int) -> bytes:
    """Return the record's bytes with the three fields that are assigned when the record is appended."""
    _, (template, queue, born_ms, body_crc, body, properties) = measured
    try:
        return b"".join(
            record_parts(
                template,
                queue[1],
                queue_offset,
                physical_offset,
                born_ms,
                store_timestamp_ms,
                body_crc,
                body,
                len(body),
                properties,
                len(properties),
            )
        )
    except struct.error as error:
        raise _out_of_range(error) from None


def _out_of_range(error: struct.error) -> BadField:
    return BadField(f"a number does not fit its field ({error})", field="record")


def encode_message(message: Message) -> bytes:
    """Return the record's bytes, after checking that a reader will accept them."""
    return encode_placed(
        measure_record(message), message.queue_offset, message.physical_offset, message.store_timestamp_ms
    )


def _encode_topic(topic: str) -> bytes:
    try:
        return topic.encode()
    except UnicodeEncodeError:
        raise BadField("holds a lone surrogate, which UTF-8 cannot", field="topic") from None


def _check_long_topic(version: int, topic_length: int) -> None:
    if version not in (1, 2):
        raise BadField(f"{version} is neither 1 nor 2", field="record version")
    if topic_length == 0:
        raise BadField("is empty", field="topic")
    limit = TOPIC_BYTES_MAX_V1 if version == 1 else TOPIC_BYTES_MAX_V2
    if topic_length > limit:
        raise LimitExceeded(field="topic length", limit=limit, got=topic_length)


def assign_fields(
    record: bytearray | memoryview,
    position: int,
    *,
    queue_offset: int,
    physical_offset: int,
    store_timestamp_ms: int,
) -> None:
    """Overwrite the three fields that are assigned when a record is appended."""
    born_is_ipv6 = record[position + _SYS_FLAG_LOW_BYTE] & flags.BORN_HOST_IPV6
    _ASSIGNED.pack_into(record, position + _QUEUE_OFFSET, queue_offset, physical_offset)
    store_time_position = _STORE_TIME_IPV6 if born_is_ipv6 else _STORE_TIME_IPV4
    _STORE_TIME.pack_into(record, position + store_time_position, store_timestamp_ms)


_QUEUE_OFFSET = RECORD_PREFIX.position("queue_offset")
_SYS_FLAG_LOW_BYTE = RECORD_PREFIX.position("sys_flag") + 3
_STORE_TIME_IPV4 = RECORD_PREFIX.position("store_timestamp_ms")
_STORE_TIME_IPV6 = _STORE_TIME_IPV4 + IPV6_HOST_BYTES - IPV4_HOST_BYTES


def decode_message(
    buffer: Bytes, position: int = 0, *, physical_offset: int | None = None, check_crc: bool = True
) -> Message:
    """Return the message at `position`; with `physical_offset`, the record must state that offset.

    A property CRC (`__CRC32#`) is checked if `physical_offset` is given: it covers the record as it is in the log.
    Brokers change records on their way to a client.
    """
    available = len(buffer) - position
    if available < RECORD_PREFIX.size_bytes:
        raise _short_prefix(buffer, position, available)
    fields = _PREFIX_IPV4.unpack_from(buffer, position)
    total_size, magic = fields[0], fields[1]
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise BadMagic(field="magic", got=magic, position=position)
    if total_size < RECORD_BYTES_MIN:
        raise BadField(f"{total_size} is less than any record has", field="total size", position=position)
    if total_size > available:
        raise Truncated(field="record", needed=total_size, got=available, position=position)
    if physical_offset is not None and fields[6] != physical_offset:
        raise Misplaced(field="physical offset", stated=fields[6], actual=physical_offset, position=position)
    prefix = _PREFIX_IPV4
    if fields[7] & IPV6_BITS:
        prefix = RECORD_PREFIXES[fields[7] & IPV6_BITS].struct
        if total_size < prefix.size + RECORD_TAIL.size_bytes:
            raise LengthMismatch(
                field="record", stated=total_size, counted=prefix.size + RECORD_TAIL.size_bytes, position=position
            )
        fields = prefix.unpack_from(buffer, position)
    body_start = position + prefix.size
    message = _decode_payload(buffer, fields, body_start, position + total_size, check_crc)
    if check_crc and physical_offset is not None and message.properties_raw[-20:-11] == CRC_PROPERTY_START:
        _check_property_crc(buffer, position, total_size)
    return message


def _decode_payload(buffer: Bytes, fields: tuple[int, ...], body_start: int, end: int, check_crc: bool) -> Message:
    """Decode body, topic and properties, which must fill the record exactly."""
    version = 1 if fields[1] == MAGIC_V1 else 2
    position = end - fields[0]
    body_length = fields[14]
    body_end = body_start + body_length
    if body_length < 0 or body_end + version + 2 > end:
        raise BadField(f"{body_length} does not fit the record", field="body length", position=position)
    topic_start = body_end + version
    topic_length = buffer[body_end] if version == 1 else _I16.unpack_from(buffer, body_end)[0]
    topic_end = topic_start + topic_length
    if not 0 < topic_length <= (TOPIC_BYTES_MAX_V1 if version == 1 else TOPIC_BYTES_MAX_V2) or topic_end + 2 > end:
        raise BadField(f"{topic_length} is out of range", field="topic length", position=position)
    properties_length = _I16.unpack_from(buffer, topic_end)[0]
    if topic_end + 2 + properties_length != end or properties_length < 0:
        counted = topic_end + 2 + properties_length - position
        raise LengthMismatch(field="record", stated=fields[0], counted=counted, position=position)
    body = bytes(buffer[body_start:body_end])
    if check_crc and crc32(body) & BODY_CRC_MASK != fields[2]:
        raise ChecksumMismatch(field="body", stored=fields[2], computed=crc32(body) & BODY_CRC_MASK, position=position)
    try:
        topic = str(buffer[topic_start:topic_end], "utf-8")
    except UnicodeDecodeError:
        raise BadField("is not UTF-8", field="topic", position=position) from None
    return Message._make((*fields[2:14], body, topic, bytes(buffer[topic_end + 2 : end]), version))


def _check_property_crc(buffer: Bytes, position: int, total_size: int) -> None:
    with memoryview(buffer) as view, view[position : position + total_size] as record:
        try:
            check_crc_property(record)
        except ChecksumMismatch as error:
            raise ChecksumMismatch(
                field=error.field, stored=error.stored, computed=error.computed, position=position
            ) from None


def _short_prefix(buffer: Bytes, position: int, available: int) -> BadMagic | BadField | Truncated:
    """Return the error for fewer bytes than a prefix has, by the same order of checks."""
    if available < _SIZE_AND_MAGIC.size:
        return Truncated(field="record", needed=_SIZE_AND_MAGIC.size, got=available, position=position)
    total_size, magic = _SIZE_AND_MAGIC.unpack_from(buffer, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return BadMagic(field="magic", got=magic, position=position)
    if total_size < RECORD_BYTES_MIN:
        return BadField(f"{total_size} is less than any record has", field="total size", position=position)
    return Truncated(field="record", needed=total_size, got=available, position=position)
