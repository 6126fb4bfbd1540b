"""JSON bodies: decoding and encoding.

Decoding: orjson reads plain JSON; the loose reader reads what fastjson writes besides (integers and whole objects as
keys, `$ref` instead of a repeated object). Encoding: strict JSON without spaces, because Go parses parts of it as text;
nulls are omitted, integer keys quoted. Only maps with message queues as keys keep Java's form, an object as key: old
Java and Go read nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
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
    RecordMap,
    decode_record,
    encode_record,
    java,
    json_record,
    table_members,
)
from orbitlog.formats.tables.loose_json import TEXT_CHARACTERS_MAX, Json

R = TypeVar("R", bound=JsonRecord)
T = TypeVar("T")

DEPTH_MAX = 32
LOOSE_REQUEST_BYTES_MAX = 64 * 1024
LOOSE_REQUEST_VALUES_MAX = 8_192
LOOSE_VALUES_MAX = 500_000
"""Values of a response that is not standard JSON: old Java brokers use queues as keys. They take some seconds."""
REQUEST_REFERENCES_MAX = 64
REQUEST_VALUES_MAX = 100_000
COMPAT = COMPATS["5.5"]
_STEP_ENTRIES = 100
_REFERENCE = b'"$ref"'
_STEP = re.compile(r"\.([^.\[\]]++)|\[(\d{1,9}+)\]", re.ASCII)
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_ALL_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def read_body(
    body: bytes, *, loose_bytes_max: int = TEXT_CHARACTERS_MAX, loose_values_max: int = LOOSE_VALUES_MAX
) -> Json:
    """Return the value of a body; raise `FormatError` if it is not valid loose JSON.

    Only up to `loose_bytes_max` bytes and `loose_values_max` values may be other than standard JSON.
    """
    try:
        value = cast("Json", orjson.loads(body))
    except orjson.JSONDecodeError:
        from orbitlog.wire.loose_text import read_loosely  # most bodies are standard JSON

        value = read_loosely(body, bytes_max=loose_bytes_max, values_max=loose_values_max, depth_max=DEPTH_MAX)
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX:
        _check_depth(body)
    if _REFERENCE in body:
        _References(value).resolve()
    return value


def read_request_body(body: bytes, *, values_max: int = REQUEST_VALUES_MAX) -> Json:
    """Return the value of a body that a stranger sent; raise `FormatError` if it is invalid or too much work.

    Values and references are counted before they are read.
    """
    values = body.count(b",") + body.count(b"{") + body.count(b"[")
    if values > values_max:
        raise LimitExceeded(field="values in a body", limit=values_max, got=values)
    references = body.count(_REFERENCE)
    if references > REQUEST_REFERENCES_MAX:
        raise LimitExceeded(field="references in a body", limit=REQUEST_REFERENCES_MAX, got=references)
    return read_body(body, loose_bytes_max=LOOSE_REQUEST_BYTES_MAX, loose_values_max=LOOSE_REQUEST_VALUES_MAX)


def write_body(value: Json) -> bytes:
    """Return strict, compact JSON."""
    return orjson.dumps(_without_nulls(value), option=orjson.OPT_NON_STR_KEYS)


def decode_body(kind: type[R], body: bytes, name: str = "body") -> R:
    """Decode a record; an empty body is a record without fields."""
    return decode_record(kind, read_body(body) if body else {}, name)


def decode_request_body(kind: type[R], body: bytes, name: str = "body", *, values_max: int = REQUEST_VALUES_MAX) -> R:
    """Decode a record that a stranger sent, with limits; an empty body is a record without fields."""
    return decode_record(kind, read_request_body(body, values_max=values_max) if body else {}, name)


def read_entries(body: bytes, path: tuple[str, str]) -> list[Json]:
    """Return the undecoded list of a body that a stranger sent; `path` is the name of the body and of the list."""
    name, field_name = path
    value = read_request_body(body) if body else {}
    if not isinstance(value, dict):
        raise BadField(f"{str(value)[:40]} is not a map", field=name)
    entries = value.get(field_name)
    if not isinstance(entries, list | None):
        raise BadField(f"{str(entries)[:40]} is not a list", field=f"{name}.{field_name}")
    return entries or []


def request_list_steps(
    kind: type[R], body: bytes, path: tuple[str, str], admit: Callable[[int], None]
) -> Generator[int, None, list[R]]:
    """Decode the list of a body that a stranger sent in steps; yield the number of entries after each.

    `path` is that of `read_entries`. `admit` is called with the length of the list, and raises an error if it is too
    long.
    """
    entries = read_entries(body, path)
    admit(len(entries))
    records: list[R] = []
    for number, entry in enumerate(entries):
        records.append(decode_record(kind, entry, f"{'.'.join(path)}[{number}]"))
        if len(records) % _STEP_ENTRIES == 0:
            yield _STEP_ENTRIES
    return records


def encode_body(bean: JsonRecord) -> bytes:
    """Encode a record."""
    return write_body(encode_record(bean, COMPAT))


def encode_table(bean: JsonRecord) -> bytes:
    """Encode a record with a large table, an entry at a time: other threads get their turn between them."""
    members = []
    for name, value in table_members(bean, COMPAT):
        if isinstance(value, RecordMap):
            entries = [write_body(key) + b":" + encode_body(child) for key, child in value.records.items()]
            members.append(write_body(str(name)) + b":{" + b",".join(entries) + b"}")
        elif value is not None:
            members.append(write_body(str(name)) + b":" + write_body(value))
    return b"{" + b",".join(members) + b"}"


def _check_depth(body: bytes) -> None:
    """Raise `LimitExceeded` for deep nesting: unknown fields are kept, and encoding them recurses into each level.

    Works on the text: each pass removes the innermost brackets of all branches, without an object for each.
    """
    brackets = _STRING.sub(b"", body).translate(_ALL_SQUARE, _NOT_BRACKETS)
    for _ in range(DEPTH_MAX):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise LimitExceeded(field="JSON nesting", limit=DEPTH_MAX, got="deeper nesting")


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_nulls(child) for child in value]
    return value


class _References:
    """Replaces each `$ref` of fastjson by the object that it refers to; other forms of path stay as they are.

    Equal references share one object, so that a body cannot refer to a large object many times and have it copied.
    Nothing that decodes a body changes it.
    """

    def __init__(self, root: Json) -> None:
        self._root = root
        self._is_flat: dict[int, bool] = {}  # by id() of objects that were referred to

    def resolve(self) -> None:
        self._resolve_in(self._root, 0)

    def _resolve_in(self, value: Json, depth: int) -> None:
        if depth > DEPTH_MAX:
            return
        if isinstance(value, dict):
            for key, child in value.items():
                if isinstance(child, dict | list):
                    value[key] = self._resolved(child, depth)
        elif isinstance(value, list):
            value[:] = [self._resolved(child, depth) if isinstance(child, dict | list) else child for child in value]

    def _resolved(self, value: Json, depth: int) -> Json:
        if isinstance(value, dict) and len(value) == 1 and isinstance(path := value.get("$ref"), str):
            return self._at_path(path) if path.startswith(("$.", "$[")) else value
        self._resolve_in(value, depth + 1)
        return value

    def _at_path(self, path: str) -> Json:
        value = self._root
        for name, number in _STEP.findall(path[1:]):
            if isinstance(value, dict):
                value = value.get(name)
            elif isinstance(value, list) and number and int(number) < len(value):
                value = value[int(number)]
            else:
                return None
        if not isinstance(value, dict):
            return None
        flat = self._is_flat.get(id(value))
        if flat is None:
            # A path to an object that contains the reference would make a cycle.
            flat = self._is_flat[id(value)] = "$ref" not in value and all(map(_is_plain, value.values()))
        return value if flat else None


def _is_plain(value: Json) -> bool:
    """Return whether a value is a scalar, or a list of scalars."""
    if isinstance(value, list):
        return not any(isinstance(child, dict | list) for child in value)
    return not isinstance(value, dict)


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


def encode_queue(queue: MessageQueue) -> bytes:
    """Return a message queue as JSON, as in the keys of maps."""
    return orjson.dumps(_encode_queue(queue, COMPAT))


QUEUE: Codec[MessageQueue] = Codec(_decode_queue, _encode_queue)


def queue_map_of(codec: Codec[T]) -> Codec[Mapping[MessageQueue, T]]:
    """Return the codec of a Java map whose keys are message queues."""

    def decode(value: Json, path: str) -> Mapping[MessageQueue, T]:
        if not isinstance(value, dict):
            raise BadField("is not a map", field=path)
        return {_queue_of_key(key, path): codec.decode(child, path) for key, child in value.items()}

    def encode(entries: Mapping[MessageQueue, T], _: object) -> Json:
        members = [
            encode_queue(queue) + b":" + write_body(codec.encode(value, COMPAT)) for queue, value in entries.items()
        ]
        # orjson copies a fragment into its output as it is: it has no objects as keys itself.
        return cast("Json", orjson.Fragment(b"{" + b",".join(members) + b"}"))

    return Codec(decode, encode)


def _queue_of_key(key: str | int, path: str) -> MessageQueue:
    try:
        return _decode_queue(read_body(str(key).encode(), loose_bytes_max=LOOSE_REQUEST_BYTES_MAX), path)
    except FormatError as error:
        raise BadField(f"key is not a message queue: {error.problem}", field=path) from None
