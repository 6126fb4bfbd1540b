"""Broker registration: the topics that a broker sends to a name server, plain or compressed.

Compressed, the body is one zlib stream of

    length i32, data version as JSON | topic count i32 | for each: length i32, text | length i32, filter servers as JSON
    | from version 413 (5.0): mapping count i32 | for each: length i32, JSON

The text of a topic is `name readQueues writeQueues perm filterType [attributes as JSON]`: `order` and the system
flag are lost. Mirrors Java `RegisterBrokerBody`, `TopicConfigAndMappingSerializeWrapper`, `TopicConfig.encode`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import field

from orbitlog.errors import BadField, FormatError, LimitExceeded, Truncated
from orbitlog.formats.java import utf8_decode
from orbitlog.formats.records.compression import inflate_body
from orbitlog.formats.records.flags import COMPRESSED
from orbitlog.formats.tables.json_records import (
    TEXT,
    TEXT_KEY,
    JsonRecord,
    decode_record,
    java,
    json_record,
    list_of,
    map_of,
    optional,
    record,
)
from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig, TopicQueueMapping, TopicTable
from orbitlog.wire.bodies.body_json import decode_body, encode_body, read_body, write_body

VERSION_3_0_11 = 37
VERSION_5_0_0 = 413
INFLATED_BYTES_MAX = 64 * 1024 * 1024
_LENGTH = struct.Struct(">i")
_LEVEL = 9
_ZLIB_START = b"x"


@json_record
class TopicWrapper(TopicTable):
    """The topics of a broker and their data version; also static topics (5.x)."""

    mapping_version: DataVersion | None = field(
        default=None, metadata=java("mappingDataVersion", optional(record(DataVersion)))
    )
    mappings: Mapping[str, TopicQueueMapping] = field(
        default_factory=dict,
        metadata=java("topicQueueMappingInfoMap", map_of(TEXT_KEY, record(TopicQueueMapping)), since_5x=True),
    )


_NO_TOPICS = TopicWrapper()


@json_record
class Registration(JsonRecord):
    """The body of REGISTER_BROKER (103)."""

    wrapper: TopicWrapper = field(
        default=_NO_TOPICS, metadata=java("topicConfigSerializeWrapper", record(TopicWrapper))
    )
    filter_servers: tuple[str, ...] = field(default=(), metadata=java("filterServerList", list_of(TEXT)))


def decode_registration(body: bytes, *, compressed: bool, version: int) -> Registration:
    """Decode the registration of a broker of this version."""
    if not body:
        return Registration()
    if version < VERSION_3_0_11:
        return Registration(wrapper=decode_body(TopicWrapper, body))
    # 5.5.0 compresses without setting the flag, which its own name server fails to read. No JSON starts with "x",
    # the first byte of zlib.
    if not compressed and not body.startswith(_ZLIB_START):
        return decode_body(Registration, body)
    return _decode_compressed(_Pieces(inflate_body(body, COMPRESSED, limit=INFLATED_BYTES_MAX)), version)


def encode_registration(registration: Registration, *, compressed: bool = False) -> bytes:
    """Encode a registration; the compressed form is that of version 413 and later."""
    if not compressed:
        return encode_body(registration)
    wrapper = registration.wrapper
    pieces = [_sized(encode_body(wrapper.data_version)), _LENGTH.pack(len(wrapper.topics))]
    pieces += [_sized(_topic_text(topic).encode()) for topic in wrapper.topics.values()]
    pieces += [_sized(write_body(list(registration.filter_servers))), _LENGTH.pack(len(wrapper.mappings))]
    pieces += [_sized(encode_body(mapping)) for mapping in wrapper.mappings.values()]
    return zlib.compress(b"".join(pieces), _LEVEL)


def registration_crc(body: bytes) -> int:
    """Return the checksum for the header of REGISTER_BROKER (103)."""
    return zlib.crc32(body) & 0x7FFFFFFF


def _sized(piece: bytes) -> bytes:
    return _LENGTH.pack(len(piece)) + piece


def _decode_compressed(pieces: _Pieces, version: int) -> Registration:
    data_version = decode_body(DataVersion, pieces.piece("data version"))
    topics = [_decode_topic(pieces.piece("topic")) for _ in range(pieces.count("topic count"))]
    servers = decode_record(Registration, {"filterServerList": read_body(pieces.piece("filter servers"))}, "body")
    mappings: list[TopicQueueMapping] = []
    if version >= VERSION_5_0_0:
        mappings = [
            decode_body(TopicQueueMapping, pieces.piece("mapping")) for _ in range(pieces.count("mapping count"))
        ]
    wrapper = TopicWrapper(
        topics={topic.topic: topic for topic in topics},
        data_version=data_version,
        mappings={mapping.topic: mapping for mapping in mappings if mapping.topic is not None},
    )
    return Registration(wrapper=wrapper, filter_servers=servers.filter_servers)


class _Pieces:
    """Reads counts and sized pieces from a buffer, with bounds checks."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self, name: str) -> int:
        count = self._length(name)
        if count > (len(self._data) - self._position) // _LENGTH.size:
            raise LimitExceeded(field=name, limit=len(self._data), got=count, position=self._position)
        return count

    def piece(self, name: str) -> bytes:
        length = self._length(name)
        start = self._position
        self._position += length
        if self._position > len(self._data):
            raise Truncated(field=name, needed=length, got=len(self._data) - start, position=start)
        return self._data[start : self._position]

    def _length(self, name: str) -> int:
        start = self._position
        if start + _LENGTH.size > len(self._data):
            raise Truncated(field=name, needed=_LENGTH.size, got=len(self._data) - start, position=start)
        (length,) = _LENGTH.unpack_from(self._data, start)
        if length < 0:
            raise BadField(f"length {length} is negative", field=name, position=start)
        self._position = start + _LENGTH.size
        return int(length)


def _topic_text(topic: TopicConfig) -> str:
    numbers = f"{topic.read_queue_count} {topic.write_queue_count} {topic.permission}"
    attributes = write_body({name: value for name, value in topic.attributes.items()}).decode()
    return f"{topic.topic} {numbers} {topic.filter_type} {attributes}"


def _decode_topic(text: bytes) -> TopicConfig:
    words = utf8_decode(text).split(" ", 5)
    if len(words) < 5:
        raise BadField(f"{words[0][:40]!r} has {len(words)} words; a topic has at least five", field="topic")
    name, read_queues, write_queues, permission, filter_type = words[:5]
    fields: dict[str | int, object] = {
        "topicName": name,
        "readQueueNums": read_queues,
        "writeQueueNums": write_queues,
        "perm": permission,
        "topicFilterType": filter_type,
    }
    if len(words) > 5:
        try:
            fields["attributes"] = read_body(words[5].encode())
        except FormatError:
            pass  # Java ignores invalid attributes as well
    return decode_record(TopicConfig, fields, "topic")  # type: ignore[arg-type] # every value is JSON
