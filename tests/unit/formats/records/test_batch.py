from __future__ import annotations

import struct

import pytest

from orbitlog.errors import BadField, FormatError, LimitExceeded, Truncated
from orbitlog.formats.hosts import Host
from orbitlog.formats.records import batch
from orbitlog.formats.records.batch import (
    BatchMember,
    InnerBatch,
    decode_batch,
    encode_batch,
    expand_batch,
    inner_batch,
    member_count,
)
from orbitlog.formats.records.message import decode_message, encode_message, make_message

MEMBERS = [
    BatchMember(b"one", b"a\x011\x02", 7),
    BatchMember(b"", b"", -1),
    BatchMember(b"three", b"b\x012"),
]
ENCODED = (
    "0000001d" "00000000" "00000000" "00000007" "00000003" "6f6e65" "0004" "61013102"
    "00000016" "00000000" "00000000" "ffffffff" "00000000" "0000"
    "0000001e" "00000000" "00000000" "00000000" "00000005" "7468726565" "0003" "620132"
)  # fmt: skip


def member_raw(body_length: int, body: bytes = b"", properties_length: int = 0, properties: bytes = b"") -> bytes:
    return struct.pack(">iiiii", 0, 0, 0, 0, body_length) + body + struct.pack(">h", properties_length) + properties


def test_both_directions() -> None:
    assert encode_batch(MEMBERS).hex() == ENCODED
    for kind in (bytes, bytearray, memoryview):
        assert decode_batch(kind(bytes.fromhex(ENCODED))) == MEMBERS


def test_members_are_counted_without_decoding_them() -> None:
    body = encode_batch([BatchMember(b"one", b"K\x01V\x02"), BatchMember(b""), BatchMember(b"x" * 300)])

    assert member_count(body) == 3
    assert member_count(body[:-1]) == 2
    assert member_count(b"") == member_count(bytes(5)) == 1
    assert member_count(b"\xff" * 4000) > 0


def test_size_magic_and_crc_are_not_read() -> None:
    data = bytearray.fromhex(ENCODED)
    data[0:12] = b"\xff" * 12
    assert decode_batch(data) == MEMBERS


def test_every_truncation_is_noticed() -> None:
    data = encode_batch(MEMBERS)
    whole_members = {len(encode_batch(MEMBERS[:count])) for count in (1, 2, 3)}
    for size in range(1, len(data)):
        if size in whole_members:
            assert decode_batch(data[:size]) == MEMBERS[: len(decode_batch(data[:size]))]
        else:
            with pytest.raises(Truncated) as caught:
                decode_batch(data[:size])
            assert caught.value.field == "batch member"


def test_a_batch_has_members() -> None:
    with pytest.raises(BadField, match="no members"):
        decode_batch(b"")
    assert encode_batch([]) == b""


@pytest.mark.parametrize(
    ("raw", "error", "field"),
    [
        (member_raw(-1), BadField, "batch member body length"),
        (member_raw(-(2**31)), BadField, "batch member body length"),
        (member_raw(2**31 - 1), Truncated, "batch member"),
        (member_raw(3, b"ab"), Truncated, "batch member"),
        (member_raw(1, b"a", -1), BadField, "batch member properties"),
        (member_raw(1, b"a", -(2**15)), BadField, "batch member properties"),
        (member_raw(1, b"a", 5, b"1234"), Truncated, "batch member"),
        (b"\0" * 19, Truncated, "batch member"),
    ],
)
def test_lengths_that_cannot_be(raw: bytes, error: type[FormatError], field: str) -> None:
    good = encode_batch(MEMBERS[:1])
    with pytest.raises(error) as caught:
        decode_batch(good + raw)
    assert caught.value.field == field
    assert caught.value.position >= len(good)


def test_what_cannot_be_written() -> None:
    assert decode_batch(encode_batch([BatchMember(b"", b"x" * 32767)]))
    with pytest.raises(LimitExceeded) as caught:
        encode_batch([BatchMember(b"", b"x" * 32768)])
    assert caught.value.field == "properties length"
    with pytest.raises(BadField, match="does not fit"):
        encode_batch([BatchMember(b"", b"", 2**31)])


def test_the_number_of_members_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH_MEMBERS_MAX", 3)
    assert decode_batch(member_raw(0) * 3) == [BatchMember(b"")] * 3
    with pytest.raises(LimitExceeded) as caught:
        decode_batch(member_raw(0) * 4)
    assert caught.value.field == "batch members"


def test_each_member_becomes_a_record_of_its_own() -> None:
    host = Host(bytes(range(16)), 5)
    request = make_message(
        "Topic",
        encode_batch(MEMBERS),
        properties=b"CLUSTER\x01c\x02",
        born_host=host,
        queue_id=3,
        sys_flag=2,
        born_timestamp_ms=11,
        store_timestamp_ms=12,
        reconsume_times=1,
        prepared_transaction_offset=99,
        flag=5,
    )
    records = expand_batch(request)
    assert [(record.body, record.flag, record.properties_raw) for record in records] == [
        (b"one", 7, b"a\x011\x02CLUSTER\x01c\x02"),
        (b"", -1, b"CLUSTER\x01c\x02"),
        (b"three", 0, b"b\x012\x02CLUSTER\x01c\x02"),
    ]
    for record in records:
        assert decode_message(encode_message(record)) == record
        assert record.prepared_transaction_offset == 0
        assert (record.topic, record.queue_id, record.sys_flag) == ("Topic", 3, request.sys_flag)
        assert (record.born_host, record.born_timestamp_ms, record.store_timestamp_ms) == (host, 11, 12)
        assert record.reconsume_times == 1


def test_a_message_that_is_no_batch_is_not_expanded() -> None:
    with pytest.raises(Truncated):
        expand_batch(make_message("Topic", b"just a body"))


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({}, None),
        ({"INNER_NUM": "3"}, None),
        ({"INNER_BASE": "3"}, None),
        ({"INNER_NUM": "1", "INNER_BASE": "0"}, InnerBatch(1, 0)),
        ({"INNER_NUM": "32767", "INNER_BASE": "9223372036854775807"}, InnerBatch(32767, 2**63 - 1)),
    ],
)
def test_inner_batch_is_recognized_by_its_properties(properties: dict[str, str], found: InnerBatch | None) -> None:
    assert inner_batch(properties) == found


@pytest.mark.parametrize(
    ("count", "base"),
    [
        ("0", "0"),
        ("-1", "0"),
        ("32768", "0"),
        ("00000199999", "0"),
        ("x", "0"),
        ("1", "-1"),
        ("1", "x"),
        ("1", "9223372036854775808"),
        ("1", "9999999999999999999"),
        ("1", "1" * 5000),
        ("1" * 5000, "1"),
        ("1 ", "1"),
        ("²", "1"),
    ],
)
def test_an_inner_batch_that_cannot_be(count: str, base: str) -> None:
    with pytest.raises(BadField) as caught:
        inner_batch({"INNER_NUM": count, "INNER_BASE": base})
    assert caught.value.field == "inner batch"
    assert len(str(caught.value)) < 200
