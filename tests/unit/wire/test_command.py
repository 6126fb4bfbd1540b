from __future__ import annotations

import pytest

from orbitlog.errors import WireError
from orbitlog.wire.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    LANGUAGES,
    PROTOCOL_VERSION,
    Command,
    Serialization,
    encode_command,
    response_to,
)

JSON_TEXT = b'{"code":105,"language":"PYTHON","version":409,"opaque":1,"flag":0,"extFields":{"topic":"TopicTest"}}'
JSON_FRAME = bytes.fromhex("0000006800000064") + JSON_TEXT
BINARY_FRAME = bytes.fromhex(
    "0000002d 01000029 0069 03 0199 00000001 00000000 00000000 000000140005 746f706963 00000009 546f70696354657374"
)


def route_query(serialization: Serialization) -> Command:
    return Command(105, 1, ext_fields={"topic": "TopicTest"}, version=409, serialization=serialization)


def test_json_frame_has_exact_bytes() -> None:
    assert encode_command(route_query(Serialization.JSON)) == JSON_FRAME


def test_binary_frame_has_exact_bytes() -> None:
    assert encode_command(route_query(Serialization.BINARY)) == BINARY_FRAME


def test_empty_remark_is_written_and_null_is_omitted() -> None:
    assert b'"remark":"","extFields"' in encode_command(Command(0, remark=""))
    assert b"remark" not in encode_command(Command(0))


def test_body_follows_the_header_and_counts_in_the_total() -> None:
    frame = encode_command(Command(34, body=b"\x00\xff"))
    assert frame.endswith(b"}\x00\xff")
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert int.from_bytes(frame[4:8]) == len(frame) - 8 - 2


@pytest.mark.parametrize("serialization", Serialization)
def test_response_has_opaque_and_serialization_of_its_request(serialization: Serialization) -> None:
    request = Command(11, -7, FLAG_ONEWAY, version=317, language="GO", serialization=serialization)
    response = response_to(request, 17, "no such topic", {"a": "1"}, b"x")
    assert (response.opaque, response.flag, response.serialization) == (-7, FLAG_RESPONSE, serialization)
    assert (response.code, response.remark, response.ext_fields, response.body) == (
        17,
        "no such topic",
        {"a": "1"},
        b"x",
    )
    assert (response.version, response.language) == (PROTOCOL_VERSION, "PYTHON")
    assert response.is_response
    assert not response.is_oneway


def test_responses_do_not_share_their_fields() -> None:
    first, second = response_to(Command(1), 0), response_to(Command(1), 0)
    first.ext_fields["a"] = "b"
    assert second.ext_fields == {}


def test_unpaired_surrogate_can_be_encoded() -> None:
    assert rb'"a":"\ud800"' in encode_command(Command(0, ext_fields={"a": "\ud800"}))
    assert encode_command(Command(0, ext_fields={"a": "\ud800"}, serialization=1)).endswith(b"a\0\0\0\x01?")


def test_header_over_the_limit_raises() -> None:
    with pytest.raises(WireError, match="header of 16777295 bytes"):
        encode_command(Command(0, ext_fields={"a": "x" * 2**24}, version=1, language="GO"))
    with pytest.raises(WireError, match="name of 32768 bytes"):
        encode_command(Command(0, ext_fields={"a" * 32768: ""}, serialization=1))


def test_java_ordinals_of_languages() -> None:
    assert (LANGUAGES.index("JAVA"), LANGUAGES.index("GO"), LANGUAGES.index("NODE_JS")) == (0, 9, 13)
