from __future__ import annotations

import struct
import zlib

import pytest

from orbitlog.errors import BadField, FormatError, LimitExceeded, Truncated
from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig, TopicQueueMapping
from orbitlog.wire.bodies import registration_body
from orbitlog.wire.bodies.registration_body import (
    Registration,
    TopicWrapper,
    decode_registration,
    encode_registration,
    encoding_steps,
    registration_crc,
)
from tests.support.damage import gives_value_or_format_error

TOPICS = {
    "T": TopicConfig("T", 8, 4, 6),
    "%RETRY%g": TopicConfig("%RETRY%g", 1, 1, 6, "MULTI_TAG", attributes={"a b": "c"}),
}
MAPPING = TopicQueueMapping(topic="T", broker_name="b", total_queue_count=8, current_queue_ids={0: 1})
WHOLE = Registration(
    wrapper=TopicWrapper(topics=TOPICS, data_version=DataVersion(3, 1700000000000), mappings={"T": MAPPING}),
    filter_servers=("10.0.0.1:1",),
)


def sized(piece: bytes) -> bytes:
    return struct.pack(">i", len(piece)) + piece


def test_both_forms_are_encoded_and_decoded() -> None:
    for compressed in (False, True):
        body = encode_registration(WHOLE, compressed=compressed)
        assert decode_registration(body, compressed=compressed, version=479) == WHOLE


def test_compressed_form_of_4x_has_no_mappings() -> None:
    pieces = [
        sized(b'{"counter":3,"timestamp":5}'),
        struct.pack(">i", 1),
        sized(b"T 8 4 6 SINGLE_TAG"),
        sized(b"[]"),
    ]
    body = zlib.compress(b"".join(pieces), 9)
    read = decode_registration(body, compressed=True, version=409)
    assert read.wrapper.topics == {"T": TopicConfig("T", 8, 4, 6)}
    assert read.wrapper.data_version == DataVersion(3, 5)
    with pytest.raises(Truncated, match="mapping count"):
        decode_registration(body, compressed=True, version=413)


def test_registration_of_5x_is_decoded() -> None:
    body = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"stateVersion":0,'
        b'"timestamp":2},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1},"topicConfigTable":{'
        b'"T":{"attributes":{},"order":true,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T",'
        b'"topicSysFlag":2,"writeQueueNums":8}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
    )
    read = decode_registration(body, compressed=False, version=513)
    assert read.wrapper.topics["T"].ordered
    assert read.wrapper.topics["T"].sys_flag == 2
    assert read.wrapper.data_version == DataVersion(1, 2)


def test_registration_of_old_brokers_is_decoded() -> None:
    body = b'{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"T":{"topicName":"T"}}}'
    assert list(decode_registration(body, compressed=False, version=36).wrapper.topics) == ["T"]


def test_compressed_body_without_flag_is_decoded() -> None:
    body = encode_registration(WHOLE, compressed=True)
    assert decode_registration(body, compressed=False, version=513) == WHOLE


def test_empty_body_has_no_topics() -> None:
    assert decode_registration(b"", compressed=True, version=479) == Registration()


def test_zip_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_body, "INFLATED_BYTES_MAX", 1_000_000)
    bomb = zlib.compress(bytes(50_000_000), 9)
    with pytest.raises(LimitExceeded):
        decode_registration(bomb, compressed=True, version=479)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (struct.pack(">i", -1), "length -1 is negative"),
        (struct.pack(">i", 2**31 - 1), "needs 2147483647 bytes"),
        (sized(b"{}") + struct.pack(">i", 2**31 - 1), "over the limit"),
        (sized(b"{}") + struct.pack(">i", 1) + sized(b"T 8 4"), "a topic has at least five"),
        (sized(b"{}") + struct.pack(">i", 1) + sized(b"T x 4 6 SINGLE_TAG"), "readQueueNums"),
        (sized(b"{}") + struct.pack(">i", 0) + sized(b"{}"), "not a list"),
        (b"\0", "needs 4 bytes"),
    ],
)
def test_forged_lengths_and_texts_raise(content: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        decode_registration(zlib.compress(content), compressed=True, version=409)


def test_invalid_attributes_are_ignored() -> None:
    pieces = [sized(b"{}"), struct.pack(">i", 1), sized(b"T 8 4 6 SINGLE_TAG {oops"), sized(b"[]")]
    read = decode_registration(zlib.compress(b"".join(pieces)), compressed=True, version=409)
    assert read.wrapper.topics["T"].attributes == {}


def test_damaged_body_raises_only_format_errors() -> None:
    plain = encode_registration(WHOLE)
    gives_value_or_format_error(lambda data: decode_registration(data, compressed=False, version=479), plain)
    inside = zlib.decompress(encode_registration(WHOLE, compressed=True))
    gives_value_or_format_error(
        lambda data: decode_registration(zlib.compress(data, 1), compressed=True, version=479), inside
    )
    packed = encode_registration(WHOLE, compressed=True)
    gives_value_or_format_error(lambda data: decode_registration(data, compressed=True, version=479), packed)


def test_registration_encoded_in_steps_has_the_same_bytes() -> None:
    for compressed in (False, True):
        steps = encoding_steps(WHOLE, compressed=compressed)
        counts = []
        while True:
            try:
                counts.append(next(steps))
            except StopIteration as end:
                assert end.value == encode_registration(WHOLE, compressed=compressed)
                break
        assert sum(counts) == len(WHOLE.wrapper.topics)


def test_checksum_has_31_bits() -> None:
    assert registration_crc(b"hello") == 907060870
    assert registration_crc(b"a") == 1756872259


def test_invalid_wrapper_names_its_field() -> None:
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","perm":"six"}}}}'
    with pytest.raises(BadField, match=r"topicConfigTable\.T\.perm"):
        decode_registration(body, compressed=False, version=479)
