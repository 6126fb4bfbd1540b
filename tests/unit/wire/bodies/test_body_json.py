from __future__ import annotations

import pytest

from orbitlog.errors import BadField, FormatError, LimitExceeded
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.tables.json_records import LONG
from orbitlog.formats.tables.loose_json import Json
from orbitlog.wire.bodies.body_json import (
    COMPAT,
    DEPTH_MAX,
    DOUBLE,
    QUEUE,
    decode_body,
    enum_of,
    queue_map_of,
    read_body,
    text_or,
    write_body,
)
from orbitlog.wire.bodies.queue_bodies import QueueOffsetTable

LOOSE = [
    (b'{0:"10.0.0.1:10911"}', {0: "10.0.0.1:10911"}),
    (b'{"0":"a"}\n', {"0": "a"}),
    (b"{a:'b'}", {"a": "b"}),
    (b'{{"brokerName":"b","queueId":0}:1}', {'{"brokerName":"b","queueId":0}': 1}),
    (b'{{{"x":1}:2}:3}', {'{"{\\"x\\":1}":2}': 3}),
]


@pytest.mark.parametrize(("body", "value"), LOOSE)
def test_body_of_java_is_decoded(body: bytes, value: object) -> None:
    assert read_body(body) == value


@pytest.mark.parametrize("body", [b"", b"{", b"{]", b"{{}", b"{[]:1}", b"hello", b"\xff\xfe", b'{"a":1e999}'])
def test_invalid_json_raises(body: bytes) -> None:
    with pytest.raises(FormatError):
        read_body(body)


def test_references_are_resolved() -> None:
    shared = {"topic": "T", "tags": ["a"]}
    body = b'{"first":[{"topic":"T","tags":["a"]}],"again":{"$ref":"$.first[0]"},"list":[{"$ref":"$.first[0]"}]}'
    assert read_body(body) == {"first": [shared], "again": shared, "list": [shared]}


@pytest.mark.parametrize("path", ["$.nowhere", "$.first[7]", "$.first.x", "$", "..", "@", "$.again", "", "$.outer"])
def test_invalid_references_become_null(path: str) -> None:
    body = b'{"first":[],"again":{"$ref":"%s"},"outer":{"inner":{"$ref":"$.outer"}}}' % path.encode()
    write_body(read_body(body))


def test_deep_nesting_raises() -> None:
    inside = b"[" * (DEPTH_MAX - 1) + b"]" * (DEPTH_MAX - 1)
    read_body(b'{"a":' + inside + b"}")
    for levels in (DEPTH_MAX + 1, 900, 100_000):
        with pytest.raises(LimitExceeded):
            read_body(b'{"a":' + b"[" * levels + b"1" + b"]" * levels + b"}")


def test_body_is_encoded_as_strict_compact_json() -> None:
    value = {"b": [1, {"x": None}], 0: "ü", "n": None, "t": True, "d": 1.0}
    assert write_body(value) == '{"b":[1,{}],"0":"ü","t":true,"d":1.0}'.encode()  # type: ignore[arg-type]


def test_queue_maps_keep_javas_form() -> None:
    codec = queue_map_of(LONG)
    queues = {MessageQueue("T", "b", 0): 7, MessageQueue("T", 'q"', 1): 8}
    table = QueueOffsetTable(offsets=queues)
    from orbitlog.wire.bodies.body_json import encode_body

    body = encode_body(table)
    assert body == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:7,'
        b'{"brokerName":"q\\"","queueId":1,"topic":"T"}:8}}'
    )
    assert decode_body(QueueOffsetTable, body) == table
    quoted = b'{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":"7"}}'
    assert decode_body(QueueOffsetTable, quoted).offsets == {MessageQueue("T", "b", 0): 7}
    for bad in ({"not json": 1}, {"{}": 1}, {7: 1}, [1], "x"):
        with pytest.raises(BadField):
            codec.decode(bad, "offsetTable")  # type: ignore[arg-type]


def test_queue_codec_drops_unknown_fields_and_names_missing_ones() -> None:
    spelled: dict[str | int, Json] = {"brokerName": "b", "queueId": 1, "topic": "T"}
    assert QUEUE.decode(spelled | {"more": 1}, "q") == MessageQueue("T", "b", 1)
    assert QUEUE.encode(MessageQueue("T", "b", 1), COMPAT) == spelled
    with pytest.raises(BadField, match=r"q\.topic"):
        QUEUE.decode({"brokerName": "b", "queueId": 1}, "q")


def test_enumerations_are_decoded_by_name_and_ordinal() -> None:
    codec = enum_of("ZERO", "ONE")
    assert [codec.decode(value, "e") for value in ("ZERO", 1, "1")] == ["ZERO", "ONE", "ONE"]
    for bad in ("TWO", 2, -1, True, None, "", "9999", 1.0):
        with pytest.raises(BadField, match="is not one of ZERO, ONE"):
            codec.decode(bad, "e")


def test_empty_text_and_doubles() -> None:
    assert [text_or("*").decode(value, "x") for value in ("", "a")] == ["*", "a"]
    assert DOUBLE.decode(3, "d") == 3.0
    for bad in ("3", True, None):
        with pytest.raises(BadField):
            DOUBLE.decode(bad, "d")
