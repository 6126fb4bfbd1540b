from __future__ import annotations

import struct
from zlib import crc32

import pytest

from orbitlog.errors import (
    BadField,
    BadMagic,
    ChecksumMismatch,
    FormatError,
    LengthMismatch,
    LimitExceeded,
    Misplaced,
    Truncated,
)
from orbitlog.formats.hosts import Host, parse_host
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    Message,
    assign_fields,
    decode_message,
    encode_message,
    encode_placed,
    make_message,
    measure_record,
)
from orbitlog.formats.records.properties import encode_properties

# Decoded and encoded again to the same bytes by Java 4.8.0.
GOLDEN_RECORD = bytes.fromhex(
    "0000009DDAA320A73610A6860000000100000007000000000000000500000000000003E80000000000000174876E807B0A0102030000303900000174876E81C8"
    "7F00000100002A9F0000000000000000000000000000000568656C6C6F09546F706963546573740034554E49515F4B4559013041303130323033303444323138"
    "4234414143323030303030303030303030300254414753015461674102"
)
GOLDEN_MESSAGE = Message(
    body_crc=907060870,
    queue_id=1,
    flag=7,
    queue_offset=5,
    physical_offset=1000,
    sys_flag=0,
    born_timestamp_ms=1600000000123,
    born_host_raw=bytes.fromhex("0a01020300003039"),
    store_timestamp_ms=1600000000456,
    store_host_raw=bytes.fromhex("7f00000100002a9f"),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body=b"hello",
    topic="TopicTest",
    properties_raw=b"UNIQ_KEY\x010A01020304D218B4AAC2000000000000\x02TAGS\x01TagA\x02",
)
IPV4 = Host(bytes((10, 0, 0, 1)), 1)
IPV6 = Host(bytes(range(16)), 2)
BODY_LENGTH_POSITION = 84
SYS_FLAG_POSITION = 36


def small_message(topic: str = "T", body: bytes = b"body", **fields: object) -> Message:
    return make_message(topic, body, **{"properties": b"a\x011\x02", "physical_offset": 700, **fields})  # type: ignore[arg-type]


def patched(record: bytes, position: int, code: str, value: int) -> bytes:
    data = bytearray(record)
    struct.pack_into(">" + code, data, position, value)
    return bytes(data)


def test_the_golden_record_both_directions() -> None:
    assert len(GOLDEN_RECORD) == 157
    assert decode_message(GOLDEN_RECORD, physical_offset=1000) == GOLDEN_MESSAGE
    assert encode_message(GOLDEN_MESSAGE) == GOLDEN_RECORD
    assert GOLDEN_MESSAGE.size_bytes == 157


def test_what_the_golden_record_states() -> None:
    assert str(GOLDEN_MESSAGE.born_host) == "10.1.2.3:12345"
    assert str(GOLDEN_MESSAGE.store_host) == "127.0.0.1:10911"
    assert GOLDEN_MESSAGE.properties == {"UNIQ_KEY": "0A01020304D218B4AAC2000000000000", "TAGS": "TagA"}
    assert GOLDEN_MESSAGE.transaction_type is flags.TransactionType.NONE
    assert GOLDEN_MESSAGE.version == 1


def test_make_message_fills_in_what_follows_from_the_rest() -> None:
    made = make_message(
        "TopicTest",
        b"hello",
        properties={"UNIQ_KEY": "0A01020304D218B4AAC2000000000000", "TAGS": "TagA"},
        born_host=parse_host("10.1.2.3:12345"),
        store_host=parse_host("127.0.0.1:10911"),
        queue_id=1,
        flag=7,
        queue_offset=5,
        physical_offset=1000,
        born_timestamp_ms=1600000000123,
        store_timestamp_ms=1600000000456,
    )
    assert made == GOLDEN_MESSAGE
    with pytest.raises(TypeError):
        make_message("T", b"", no_such_field=1)


@pytest.mark.parametrize(("body", "crc"), [(b"", 0), (b"a", 1756872259), (b"Hello RocketMQ", 1774740973)])
def test_the_body_crc_has_31_bits(body: bytes, crc: int) -> None:
    message = small_message(body=body)
    assert message.body_crc == crc
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("store_host", [IPV4, IPV6])
@pytest.mark.parametrize("born_host", [IPV4, IPV6])
def test_every_mix_of_hosts_and_versions(born_host: Host, store_host: Host, version: int) -> None:
    message = small_message(
        born_host=born_host, store_host=store_host, sys_flag=0x700 | flags.BORN_HOST_IPV6, version=version
    )
    assert bool(message.sys_flag & flags.BORN_HOST_IPV6) == born_host.is_ipv6
    assert bool(message.sys_flag & flags.STORE_HOST_IPV6) == store_host.is_ipv6
    assert message.sys_flag & 0x700 == 0x700
    record = encode_message(message)
    extra = 12 * born_host.is_ipv6 + 12 * store_host.is_ipv6 + version - 1
    assert len(record) == message.size_bytes == RECORD_BYTES_MIN + extra + len(b"Tbodya\x011\x02")
    decoded = decode_message(record, physical_offset=700)
    assert decoded == message
    assert (decoded.born_host, decoded.store_host) == (born_host, store_host)


def test_the_smallest_record() -> None:
    """One byte of topic; every field that was left out, and the CRC of nothing, is zero."""
    record = encode_message(make_message("T", b""))
    assert record.hex() == "0000005cdaa320a7" + "00" * 80 + "01" + "54" + "0000"
    assert decode_message(record) == make_message("T", b"")
    assert len(record) == RECORD_BYTES_MIN + 1


def test_the_smallest_record_of_version_2() -> None:
    record = encode_message(make_message("T", b"", version=2))
    assert record.hex() == "0000005ddaa320ab" + "00" * 80 + "0001" + "54" + "0000"
    assert decode_message(record).version == 2


@pytest.mark.parametrize(
    ("topic_bytes", "version"), [(1, 1), (126, 1), (127, 1), (1, 2), (127, 2), (128, 2), (254, 2), (255, 2)]
)
def test_topic_lengths_that_fit(topic_bytes: int, version: int) -> None:
    message = small_message("t" * topic_bytes, version=version)
    record = encode_message(message)
    assert struct.unpack_from(">I", record, 4)[0] == (MAGIC_V1 if version == 1 else MAGIC_V2)
    assert decode_message(record) == message


def test_a_long_topic_chooses_version_2_by_its_bytes() -> None:
    assert [make_message("t" * size, b"").version for size in (127, 128)] == [1, 2]
    assert [make_message("中" * size, b"").version for size in (42, 43)] == [1, 2]
    assert decode_message(encode_message(make_message("中" * 85, b""))).topic == "中" * 85


@pytest.mark.parametrize(("topic_bytes", "version", "limit"), [(128, 1, 127), (256, 2, 255), (40000, 2, 255)])
def test_topic_lengths_that_do_not_fit(topic_bytes: int, version: int, limit: int) -> None:
    with pytest.raises(LimitExceeded) as caught:
        encode_message(small_message("t" * topic_bytes, version=version))
    assert (caught.value.field, caught.value.limit) == ("topic length", limit)


def test_properties_have_a_limit() -> None:
    longest = small_message(properties=b"x" * 32767)
    assert decode_message(encode_message(longest)) == longest
    with pytest.raises(LimitExceeded) as caught:
        encode_message(small_message(properties=b"x" * 32768))
    assert (caught.value.field, caught.value.limit) == ("properties length", 32767)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (small_message(""), "topic"),
        (small_message("", version=2), "topic"),
        (small_message()._replace(topic="\ud83d"), "topic"),
        (small_message(version=3), "record version"),
        (small_message(version=0), "record version"),
        (small_message(queue_id=2**31), "record"),
        (small_message(physical_offset=2**63), "record"),
        (small_message(born_timestamp_ms=-(2**63) - 1), "record"),
        (small_message(sys_flag=2**31), "record"),
        (small_message()._replace(sys_flag=flags.BORN_HOST_IPV6), "hosts"),
        (small_message()._replace(born_host_raw=b"1234567"), "hosts"),
        (small_message(born_host=IPV6)._replace(sys_flag=flags.STORE_HOST_IPV6), "hosts"),
        (small_message(store_host=IPV6)._replace(sys_flag=flags.BORN_HOST_IPV6), "hosts"),
        (small_message(born_host=IPV6, store_host=IPV6)._replace(sys_flag=0), "hosts"),
    ],
)
def test_what_no_reader_would_accept_is_not_written(message: Message, field: str) -> None:
    with pytest.raises(BadField) as caught:
        encode_message(message)
    assert caught.value.field == field


def test_a_topic_that_utf8_cannot_hold_is_refused_when_made() -> None:
    with pytest.raises(BadField, match="surrogate"):
        make_message("topic\ud83d", b"")


@pytest.mark.parametrize("born_host", [IPV4, IPV6])
def test_the_writer_of_the_log_fills_in_three_fields(born_host: Host) -> None:
    message = small_message(born_host=born_host, store_host=IPV6)
    buffer = bytearray(b"before" + encode_message(message) + b"after")
    assign_fields(buffer, 6, queue_offset=-1, physical_offset=2**40, store_timestamp_ms=1600000000456)
    assert decode_message(buffer, 6) == message._replace(
        queue_offset=-1, physical_offset=2**40, store_timestamp_ms=1600000000456
    )
    assert (buffer[:6], buffer[-5:]) == (b"before", b"after")


@pytest.mark.parametrize("position", [0, 1, 37])
def test_three_ways_to_feed_a_record(position: int) -> None:
    for trailing in (b"", b"\0" * 9, GOLDEN_RECORD):
        data = bytes(range(position)) + GOLDEN_RECORD + trailing
        for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(b"xy" + data))[2:]):
            assert decode_message(buffer, position, physical_offset=1000) == GOLDEN_MESSAGE
    decoded = decode_message(memoryview(bytearray(GOLDEN_RECORD)))
    assert {type(decoded.body), type(decoded.properties_raw), type(decoded.born_host_raw)} == {bytes}


def test_decoding_keeps_no_hold_of_the_buffer() -> None:
    buffer = bytearray(GOLDEN_RECORD)
    decoded = decode_message(buffer)
    buffer.clear()
    assert decoded == GOLDEN_MESSAGE


def test_every_truncation_error_states_the_missing_bytes() -> None:
    for got in range(len(GOLDEN_RECORD)):
        with pytest.raises(Truncated) as caught:
            decode_message(b"xyz" + GOLDEN_RECORD[:got], 3)
        error = caught.value
        assert (error.field, error.position, error.got) == ("record", 3, got)
        assert error.needed == (8 if got < 8 else 157)


def test_a_position_beyond_the_bytes() -> None:
    with pytest.raises(Truncated) as caught:
        decode_message(GOLDEN_RECORD, 200)
    assert (caught.value.needed, caught.value.got, caught.value.position) == (8, -43, 200)


# Each check has its own error, and an earlier one wins over a later.
V1 = encode_message(small_message(born_host=IPV4, store_host=IPV4))
V2 = encode_message(small_message("t" * 130))
TOPIC_POSITION_V1 = BODY_LENGTH_POSITION + 4 + len(b"body")


@pytest.mark.parametrize(
    ("record", "error", "field"),
    [
        (patched(V1, 4, "I", 0), BadMagic, "magic"),
        (patched(V1, 4, "I", 0xCBD43194), BadMagic, "magic"),
        (patched(V1, 4, "I", 0xDAA320A8), BadMagic, "magic"),
        (patched(V1[:50], 4, "I", 0), BadMagic, "magic"),
        (patched(V1, 0, "i", 0), BadField, "total size"),
        (patched(V1, 0, "i", -1), BadField, "total size"),
        (patched(V1, 0, "i", -(2**31)), BadField, "total size"),
        (patched(V1, 0, "i", 90), BadField, "total size"),
        (patched(V1[:50], 0, "i", 90), BadField, "total size"),
        (patched(V1[:50], 0, "i", 91), Truncated, "record"),
        (patched(V1, 0, "i", 91), BadField, "body length"),
        (patched(V1, 0, "i", len(V1) + 1), Truncated, "record"),
        (patched(V1, 0, "i", 2**31 - 1), Truncated, "record"),
        (patched(V1, 0, "i", len(V1) - 1), LengthMismatch, "record"),
        (patched(V1, 28, "q", 701), Misplaced, "physical offset"),
        (patched(V1, BODY_LENGTH_POSITION, "i", -1), BadField, "body length"),
        (patched(V1, BODY_LENGTH_POSITION, "i", 2**31 - 1), BadField, "body length"),
        (patched(V1, BODY_LENGTH_POSITION, "i", len(V1)), BadField, "body length"),
        (patched(V1, BODY_LENGTH_POSITION, "i", len(V1) - 88), BadField, "body length"),
        (patched(V1, BODY_LENGTH_POSITION, "i", len(V1) - 88 - 2), BadField, "body length"),
        (patched(V1, BODY_LENGTH_POSITION, "i", len(V1) - 88 - 3), BadField, "topic length"),
        (patched(V2, BODY_LENGTH_POSITION, "i", len(V2) - 88 - 3), BadField, "body length"),
        (patched(V1, TOPIC_POSITION_V1, "B", 0), BadField, "topic length"),
        (patched(V1, TOPIC_POSITION_V1, "B", 0x80), BadField, "topic length"),
        (patched(V1, TOPIC_POSITION_V1, "B", 0xFF), BadField, "topic length"),
        (patched(V1, TOPIC_POSITION_V1, "B", 127), BadField, "topic length"),
        (patched(V1, TOPIC_POSITION_V1, "B", 7), BadField, "topic length"),
        (patched(V1, TOPIC_POSITION_V1, "B", 6), BadField, "topic length"),
        (patched(V1, TOPIC_POSITION_V1, "B", 5), LengthMismatch, "record"),
        (patched(V2, TOPIC_POSITION_V1, "h", 0), BadField, "topic length"),
        (patched(V2, TOPIC_POSITION_V1, "h", -1), BadField, "topic length"),
        (patched(V2, TOPIC_POSITION_V1, "h", 256), BadField, "topic length"),
        (patched(V2, TOPIC_POSITION_V1, "h", 32767), BadField, "topic length"),
        (patched(V1, TOPIC_POSITION_V1 + 2, "h", 3), LengthMismatch, "record"),
        (patched(V1, TOPIC_POSITION_V1 + 2, "h", -1), LengthMismatch, "record"),
        (patched(V1, TOPIC_POSITION_V1 + 2, "h", 32767), LengthMismatch, "record"),
        (patched(V1, 8, "i", 1), ChecksumMismatch, "body"),
        (patched(V1, 8, "I", crc32(b"body") | 0x80000000), ChecksumMismatch, "body"),
        (patched(V1, TOPIC_POSITION_V1 - 1, "B", 0), ChecksumMismatch, "body"),
        (patched(V1, TOPIC_POSITION_V1 + 1, "B", 0xFF), BadField, "topic"),
        # Two errors at once: the first in the order of checks is reported.
        (patched(patched(V1, 4, "I", 1), 0, "i", -1), BadMagic, "magic"),
        (patched(patched(V1, 0, "i", 1), 28, "q", 1), BadField, "total size"),
        (patched(patched(V1, 28, "q", 1), BODY_LENGTH_POSITION, "i", -1), Misplaced, "physical offset"),
        (patched(patched(V1, BODY_LENGTH_POSITION, "i", -1), 8, "i", 1), BadField, "body length"),
        (patched(patched(V1, 8, "i", 1), TOPIC_POSITION_V1 + 1, "B", 0xFF), ChecksumMismatch, "body"),
    ],
)
def test_each_check_has_its_error(record: bytes, error: type[FormatError], field: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode_message(b"\xee" * 5 + record, 5, physical_offset=700)
    assert type(caught.value) is error
    assert (caught.value.field, caught.value.position) == (field, 5)


def test_host_bits_that_the_record_has_no_room_for() -> None:
    smallest = encode_message(make_message("T", b""))
    for bits, counted in ((0x10, 103), (0x20, 103), (0x30, 115)):
        with pytest.raises(LengthMismatch) as caught:
            decode_message(patched(smallest, SYS_FLAG_POSITION, "i", bits))
        assert (caught.value.stated, caught.value.counted) == (92, counted)


@pytest.mark.parametrize(("total_size", "error"), [(102, LengthMismatch), (103, BadField), (104, BadField)])
def test_host_bits_that_leave_room_for_nothing_else(total_size: int, error: type[FormatError]) -> None:
    head = patched(
        patched(encode_message(make_message("T", b""))[:88], 0, "i", total_size), SYS_FLAG_POSITION, "i", 0x10
    )
    with pytest.raises(FormatError) as caught:
        decode_message(head.ljust(total_size, b"\0"))
    assert type(caught.value) is error


def test_errors_carry_what_was_found() -> None:
    with pytest.raises(Misplaced) as misplaced:
        decode_message(V1, physical_offset=0)
    assert (misplaced.value.stated, misplaced.value.actual) == (700, 0)
    with pytest.raises(BadMagic) as magic:
        decode_message(patched(V1, 4, "I", 0xCBD43194))
    assert magic.value.got == 0xCBD43194
    with pytest.raises(ChecksumMismatch) as checksum:
        decode_message(patched(V1, 8, "i", 1))
    assert (checksum.value.stored, checksum.value.computed) == (1, crc32(b"body") & 0x7FFFFFFF)
    with pytest.raises(LengthMismatch) as length:
        decode_message(b"xyz" + patched(V1, TOPIC_POSITION_V1 + 2, "h", 5), 3)
    assert (length.value.stated, length.value.counted) == (len(V1), len(V1) + 1)


def test_a_reader_may_leave_out_the_crc_and_the_offset() -> None:
    wrong_crc = patched(V1, 8, "i", 1)
    assert decode_message(wrong_crc, check_crc=False).body_crc == 1
    assert decode_message(V1).physical_offset == 700
    assert encode_message(decode_message(wrong_crc, check_crc=False)) == wrong_crc


def test_properties_are_kept_as_stored() -> None:
    for raw in (b"", b"a\x011", b"a\x011\x02", b"\x02\x02", b"\xff", b"a\x01\x02"):
        message = small_message(properties=raw)
        assert decode_message(encode_message(message)).properties_raw == raw
    assert small_message(properties={"a": "1", "b": "2"}).properties_raw == encode_properties({"a": "1", "b": "2"})
    message = small_message()
    assert message.properties == message.properties
    assert message.properties is not message.properties


@pytest.mark.parametrize("topic", ["T", "L" * 200])
def test_a_placed_record_has_the_fields_that_the_place_decides(topic: str) -> None:
    message = make_message(topic, b"body", properties={"KEYS": "k"}, queue_id=3)
    measured = measure_record(message)
    record = encode_placed(measured, 5, 700, 9)
    placed = message._replace(queue_offset=5, physical_offset=700, store_timestamp_ms=9)
    assert len(record) == measured[0] == message.size_bytes
    assert record == encode_message(placed)
    assert decode_message(record, physical_offset=700) == placed
