"""JSON bodies: decoding and encoding.

Decoding: orjson reads plain JSON; the loose reader reads what fastjson writes besides (integers and whole objects as
keys, `$ref` instead of a repeated object). Encoding: strict JSON without spaces, because Go parses parts of it as text;
nulls are omitted, integer keys quoted. Only maps with message queues as keys keep Java's form, an object as key: old
Java and Go read nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import TypeVar, cast

import orjson

from orbitlog.errors import BadField, FormatError, LimitExceeded
from orbitlog.formats.compat import COMPATS
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.tables.json_records import (
    INT,
    TEXT,
    Codec,
    JsonRecord,
    decode_record,
    encode_record,
    java,
    json_record,
)
from orbitlog.formats.tables.loose_json import TEXT_CHARACTERS_MAX, Json
from orbitlog.wire.loose_text import read_loosely

R = TypeVar("R", bound=JsonRecord)
T = TypeVar("T")

DEPTH_MAX = 32
COMPAT = COMPATS["5.5"]
_REFERENCE = b'"$ref"'
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]", re.ASCII)


def read_body(body: bytes) -> Json:
    """Return the value of a body; raise `FormatError` if it is not valid loose JSON."""
    try:
        value = cast("Json", orjson.loads(body))
    except orjson.JSONDecodeError:
        value = read_loosely(body, characters_max=TEXT_CHARACTERS_MAX, depth_max=DEPTH_MAX)
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX:
        _check_depth(value)
    if _REFERENCE in body:
        _resolve_references(value, value, 0)
    return value


def write_body(value: Json) -> bytes:
    """Return strict, compact JSON."""
    return orjson.dumps(_without_nulls(value), option=orjson.OPT_NON_STR_KEYS)


def decode_body(kind: type[R], body: bytes, name: str = "body") -> R:
    """Decode a record; an empty body is a record without fields."""
    return decode_record(kind, read_body(body) if body else {}, name)


def encode_body(bean: JsonRecord) -> bytes:
    """Encode a record."""
    return write_body(encode_record(bean, COMPAT))


def _check_depth(value: Json) -> None:
    """Raise `LimitExceeded` for deep nesting: unknown fields are kept, and encoding them recurses into each level."""
    level: list[Json] = [value]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return
    raise LimitExceeded(field="JSON nesting", limit=DEPTH_MAX, got="deeper nesting")


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_nulls(child) for child in value]
    return value


def _resolve_references(value: Json, root: Json, depth: int) -> None:
    """Replace each `$ref` of fastjson by the object that it refers to; other forms of path stay as they are."""
    if depth > DEPTH_MAX:
        return
    if isinstance(value, dict):
        for key, child in value.items():
            value[key] = _resolved(child, root, depth)
    elif isinstance(value, list):
        value[:] = [_resolved(child, root, depth) for child in value]


def _resolved(value: Json, root: Json, depth: int) -> Json:
    if isinstance(value, dict) and len(value) == 1 and isinstance(path := value.get("$ref"), str):
        return _at_path(root, path) if path.startswith(("$.", "$[")) else value
    _resolve_references(value, root, depth + 1)
    return value


def _at_path(root: Json, path: str) -> Json:
    value = root
    for name, number in _STEP.findall(path[1:]):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and number and int(number) < len(value):
            value = value[int(number)]
        else:
            return None
    # A path to an object that contains the reference would make a cycle.
    return dict(value) if isinstance(value, dict) and "$ref" not in value and not _is_deep(value) else None


def _is_deep(value: dict[str | int, Json]) -> bool:
    return any(isinstance(child, dict) for child in value.values())


def enum_of(*names: str) -> Codec[str]:
    """Return the codec of a Java enumeration: its name or, from C++, its ordinal."""

    def decode(value: Json, path: str) -> str:
        if isinstance(value, str) and value in names:
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 4:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
            return names[value]
        raise BadField(f"{str(value)[:40]!r} is not one of {', '.join(names)}", field=path)

    return Codec(decode, lambda value, _: value)


def text_or(default: str) -> Codec[str]:
    """Return the codec of a text that is `default` if empty."""
    return Codec(lambda value, path: TEXT.decode(value, path) or default, lambda value, _: value)


def _decode_double(value: Json, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadField(f"{str(value)[:40]!r} is not a number", field=path)
    return float(value)


DOUBLE: Codec[float] = Codec(_decode_double, lambda value, _: value)


@json_record
class _QueueBody(JsonRecord):
    """The JSON form of a message queue."""

    topic: str = field(metadata=java("topic", TEXT))
    broker_name: str = field(metadata=java("brokerName", TEXT))
    queue_id: int = field(metadata=java("queueId", INT))


def _decode_queue(value: Json, path: str) -> MessageQueue:
    body = decode_record(_QueueBody, value, path)
    return MessageQueue(body.topic, body.broker_name, body.queue_id)


def _encode_queue(queue: MessageQueue, _: object) -> Json:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


QUEUE: Codec[MessageQueue] = Codec(_decode_queue, _encode_queue)


def queue_map_of(codec: Codec[T]) -> Codec[Mapping[MessageQueue, T]]:
    """Return the codec of a Java map whose keys are message queues."""

    def decode(value: Json, path: str) -> Mapping[MessageQueue, T]:
        if not isinstance(value, dict):
            raise BadField("is not a map", field=path)
        return {_queue_of_key(key, path): codec.decode(child, path) for key, child in value.items()}

    def encode(entries: Mapping[MessageQueue, T], _: object) -> Json:
        members = [
            orjson.dumps(_encode_queue(queue, COMPAT)) + b":" + write_body(codec.encode(value, COMPAT))
            for queue, value in entries.items()
        ]
        # orjson copies a fragment into its output as it is: it has no objects as keys itself.
        return cast("Json", orjson.Fragment(b"{" + b",".join(members) + b"}"))

    return Codec(decode, encode)


def _queue_of_key(key: str | int, path: str) -> MessageQueue:
    try:
        return _decode_queue(read_body(str(key).encode()), path)
    except FormatError as error:
        raise BadField(f"key is not a message queue: {error.problem}", field=path) from None
