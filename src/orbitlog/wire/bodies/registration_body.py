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
from collections.abc import Callable, Generator, Mapping
from dataclasses import field, replace
from itertools import islice

import orjson

from orbitlog.errors import BadField, FormatError, LimitExceeded, Truncated
from orbitlog.formats.java import utf8_decode
from orbitlog.formats.tables.json_records import (
    TEXT,
    TEXT_KEY,
    JsonRecord,
    decode_record,
    encode_record,
    java,
    json_record,
    list_of,
    map_of,
    optional,
    record,
)
from orbitlog.formats.tables.loose_json import Json
from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig, TopicQueueMapping, TopicTable
from orbitlog.wire.bodies.body_json import COMPAT, decode_request_body, encode_body, read_request_body, write_body

VERSION_3_0_11 = 37
VERSION_5_0_0 = 413
INFLATED_BYTES_MAX = 32 * 1024 * 1024
_VALUES_MAX = 2_000_000
STEP_TOPICS = 100
STEP_MAPPINGS = 50
_INFLATE_STEP_BYTES = 1024 * 1024
_WRAPPER = "topicConfigSerializeWrapper"
_TOPICS = "topicConfigTable"
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

    wrapper: TopicWrapper = field(default=_NO_TOPICS, metadata=java(_WRAPPER, record(TopicWrapper)))
    filter_servers: tuple[str, ...] = field(default=(), metadata=java("filterServerList", list_of(TEXT)))


RegistrationSteps = Generator[int, None, "Registration"]
CheckTopic = Callable[[TopicConfig], object]


def decode_registration(body: bytes, *, compressed: bool, version: int) -> Registration:
    """Decode the registration of a broker of this version."""
    steps = registration_steps(body, compressed=compressed, version=version)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            registration: Registration = end.value
            return registration


def registration_steps(
    body: bytes,
    *,
    compressed: bool,
    version: int,
    inflated_bytes_max: int = INFLATED_BYTES_MAX,
    check: CheckTopic | None = None,
) -> RegistrationSteps:
    """Decode a registration in steps; yield the number of topics after each, and return the registration.

    `check` is called with every topic, and raises an error if the registration is to be refused.
    """
    check = check or (lambda _: None)
    if not body:
        return Registration()
    if version < VERSION_3_0_11:
        return Registration(wrapper=(yield from _wrapper_steps(_read(body), "body", check)))
    # 5.5.0 compresses without setting the flag, which its own name server fails to read. No JSON starts with "x",
    # the first byte of zlib.
    if compressed or body.startswith(_ZLIB_START):
        return (yield from _compressed_steps((yield from _inflate_steps(body, inflated_bytes_max)), version, check))
    value = _read(body)
    wrapper_json = value.pop(_WRAPPER, None) if isinstance(value, dict) else None
    registration = decode_record(Registration, value, "body")
    if wrapper_json is None:
        return registration
    wrapper = yield from _wrapper_steps(wrapper_json, f"body.{_WRAPPER}", check)
    return replace(registration, wrapper=wrapper)


def _read(body: bytes) -> Json:
    return read_request_body(body, values_max=_VALUES_MAX)


def _wrapper_steps(value: Json, path: str, check: CheckTopic) -> Generator[int, None, TopicWrapper]:
    topics_json = value.get(_TOPICS) if isinstance(value, dict) else None
    if not isinstance(topics_json, dict):
        return decode_record(TopicWrapper, value, path)  # raises, or has no topics
    assert isinstance(value, dict)
    del value[_TOPICS]
    wrapper = decode_record(TopicWrapper, value, path)
    topics: dict[str, TopicConfig] = {}
    entries = iter(topics_json.items())
    while part := list(islice(entries, STEP_TOPICS)):
        for name, topic_json in part:
            key = TEXT_KEY.decode(name, path)
            topics[key] = topic = decode_record(TopicConfig, topic_json, f"{path}.{_TOPICS}.{key}")
            check(topic)
        yield len(part)
    return replace(wrapper, topics=topics)


def _inflate_steps(body: bytes, inflated_bytes_max: int) -> Generator[int, None, bytes]:
    """Inflate a body in steps of a megabyte; raise a `FormatError` if it is invalid or too long."""
    inflater = zlib.decompressobj()
    parts: list[bytes] = []
    size, rest = 0, body
    while not inflater.eof:
        try:
            part = inflater.decompress(rest, _INFLATE_STEP_BYTES)
        except zlib.error as error:
            raise BadField(f"invalid zlib data: {error}", field="body") from None
        rest = inflater.unconsumed_tail
        size += len(part)
        if size > inflated_bytes_max:
            raise LimitExceeded(field="inflated body", limit=inflated_bytes_max, got="more")
        if not (part or rest or inflater.eof):
            raise Truncated(field="zlib body", needed=1, got=0, position=len(body))
        parts.append(part)
        yield 0
    return b"".join(parts)


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


def encoding_steps(registration: Registration, *, compressed: bool = False) -> Generator[int, None, bytes]:
    """Encode a registration as `encode_registration` does, in steps; yield the number of topics after each."""
    if compressed:  # cheap for each topic
        yield len(registration.wrapper.topics)
        return encode_registration(registration, compressed=True)
    members: list[bytes] = []
    topics = iter(registration.wrapper.topics.items())
    while part := list(islice(topics, STEP_TOPICS)):
        members += [orjson.dumps(name) + b":" + encode_body(topic) for name, topic in part]
        yield len(part)
    value = encode_record(replace(registration, wrapper=replace(registration.wrapper, topics={})), COMPAT)
    wrapper = value[_WRAPPER]
    assert isinstance(wrapper, dict)
    wrapper[_TOPICS] = orjson.Fragment(b"{" + b",".join(members) + b"}")  # type: ignore[assignment]
    return write_body(value)


def registration_crc(body: bytes) -> int:
    """Return the checksum for the header of REGISTER_BROKER (103)."""
    return zlib.crc32(body) & 0x7FFFFFFF


def _sized(piece: bytes) -> bytes:
    return _LENGTH.pack(len(piece)) + piece


def _compressed_steps(data: bytes, version: int, check: CheckTopic) -> RegistrationSteps:
    pieces = _Pieces(data)
    data_version = decode_request_body(DataVersion, pieces.piece("data version"))
    topics: dict[str, TopicConfig] = {}
    count = pieces.count("topic count")
    for first in range(0, count, STEP_TOPICS):
        step = min(STEP_TOPICS, count - first)
        for _ in range(step):
            topic = _decode_topic(pieces.piece("topic"))
            topics[topic.topic] = topic
            check(topic)
        yield step
    servers = decode_record(
        Registration, {"filterServerList": read_request_body(pieces.piece("filter servers"))}, "body"
    )
    mappings: list[TopicQueueMapping] = []
    if version >= VERSION_5_0_0:
        for number in range(pieces.count("mapping count")):
            mappings.append(decode_request_body(TopicQueueMapping, pieces.piece("mapping")))
            if number % STEP_MAPPINGS == STEP_MAPPINGS - 1:
                yield STEP_MAPPINGS
    wrapper = TopicWrapper(
        topics=topics,
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
    text = f"{topic.topic} {numbers} {topic.filter_type}"
    if not topic.attributes:
        return text  # a 4.9 name server reads five words only
    return f"{text} {write_body({name: value for name, value in topic.attributes.items()}).decode()}"


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
            fields["attributes"] = read_request_body(words[5].encode())
        except FormatError:
            pass  # Java ignores invalid attributes as well
    return decode_record(TopicConfig, fields, "topic")  # type: ignore[arg-type] # every value is JSON
