"""JSON of bodies, both ways.

In: plain JSON by orjson; what fastjson writes besides (integers and whole objects as keys, `$ref` instead of an
object that was there before) by the loose reader. Out: strict and without a space, because Go takes parts of it
apart as text; nulls left out, integer keys quoted. Only maps keyed by message queues keep Java's form, an object
for a key: old Java and Go read nothing else.
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
    """Return what a body spells; `FormatError` if it is not even loose JSON."""
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
    """Write strict, compact JSON."""
    return orjson.dumps(_without_nulls(value), option=orjson.OPT_NON_STR_KEYS)


def decode_body(kind: type[R], body: bytes, name: str = "body") -> R:
    """Read a record; an empty body is a record without fields."""
    return decode_record(kind, read_body(body) if body else {}, name)


def encode_body(bean: JsonRecord) -> bytes:
    """Write a record."""
    return write_body(encode_record(bean, COMPAT))


def _check_depth(value: Json) -> None:
    """Refuse what Python could not walk through by calling itself: unknown fields are kept and written again."""
    level: list[Json] = [value]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
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
    """Put the object itself where fastjson wrote only the path to it; other forms of path stay as they are."""
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
    # A path to something around itself would make a circle.
    return dict(value) if isinstance(value, dict) and "$ref" not in value and not _is_deep(value) else None


def _is_deep(value: dict[str | int, Json]) -> bool:
    return any(isinstance(child, dict) for child in value.values())


def enum_of(*names: str) -> Codec[str]:
    """An enumeration of Java: its name, or, from C++, its ordinal."""

    def decode(value: Json, path: str) -> str:
        if isinstance(value, str) and value in names:
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 4:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
            return names[value]
        raise BadField(f"{str(value)[:40]!r} is none of {', '.join(names)}", field=path)

    return Codec(decode, lambda value, _: value)


def text_or(default: str) -> Codec[str]:
    """Text that stands for `default` when it is empty."""
    return Codec(lambda value, path: TEXT.decode(value, path) or default, lambda value, _: value)


def _decode_double(value: Json, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadField(f"{str(value)[:40]!r} is no number", field=path)
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
    """A Java map whose keys are message queues."""

    def decode(value: Json, path: str) -> Mapping[MessageQueue, T]:
        if not isinstance(value, dict):
            raise BadField("is not a map", field=path)
        return {_queue_of_key(key, path): codec.decode(child, path) for key, child in value.items()}

    def encode(entries: Mapping[MessageQueue, T], _: object) -> Json:
        members = [
            orjson.dumps(_encode_queue(queue, COMPAT)) + b":" + write_body(codec.encode(value, COMPAT))
            for queue, value in entries.items()
        ]
        # A fragment is put into the text as it is: orjson itself has no objects as keys.
        return cast("Json", orjson.Fragment(b"{" + b",".join(members) + b"}"))

    return Codec(decode, encode)


def _queue_of_key(key: str | int, path: str) -> MessageQueue:
    try:
        return _decode_queue(read_body(str(key).encode()), path)
    except FormatError as error:
        raise BadField(f"a key that is no message queue: {error.problem}", field=path) from None
