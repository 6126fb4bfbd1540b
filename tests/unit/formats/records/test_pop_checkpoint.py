"""POP check points and acknowledgements, as Apache's broker 5.5.0 wrote them (tests/unit/broker/java_pops)."""

from __future__ import annotations

import pytest

from orbitlog.errors import FormatError
from orbitlog.formats.compat import COMPATS
from orbitlog.formats.records.pop_checkpoint import (
    MESSAGES_MAX,
    CheckPointKey,
    PopAck,
    ack_id,
    check_point_id,
    check_points_of,
    decode_ack,
    decode_check_point,
    encode_ack,
    encode_check_point,
)

COMPAT = COMPATS["5.5"]
POPPED_MS = 1_794_856_572_864
CHECK_POINT = (
    b'{"bm":0,"bn":"interop-broker","c":"Gpop","d":[0,1,2,3,4,5],"it":40000,"n":6,"pt":1794856572864,"q":0,'
    b'"reviveTime":1794856612864,"ro":0,"so":0,"sp":false,"t":"Plain"}'
)
CHECK_POINT_ID = "Plain@0@0@Gpop@1794856572864@interop-broker@ck"
ACK = b'{"ao":3,"bn":"interop-broker","c":"Gpop","pt":1794856572864,"q":0,"so":0,"t":"Plain"}'
ACK_ID = "Plain@0@3@Gpop@1794856572864@interop-broker@ack"
BATCH_ACK = b'{"ao":-1,"aol":[1,2],"bn":"interop-broker","c":"Gpop","pt":1794856572864,"q":0,"so":0,"t":"Plain"}'
BUFFERED_BATCH_ACK = b'{"ao":0,"aol":[0,1,2,3],"c":"Gpop","pt":1794856572864,"q":0,"so":0,"t":"Plain"}'
KEY = CheckPointKey("Plain", "Gpop", 0, 0, POPPED_MS)


def test_check_point_of_java_is_read_and_written_to_the_byte() -> None:
    point = decode_check_point(CHECK_POINT)
    assert point.key == KEY
    assert point.queue_offsets == [0, 1, 2, 3, 4, 5]
    assert point.visible_ms == POPPED_MS + 40_000
    assert encode_check_point(point, COMPAT) == CHECK_POINT
    assert check_point_id(point) == CHECK_POINT_ID
    [own] = check_points_of(KEY, range(6), point.visible_ms, "interop-broker")
    assert own == point


def test_acknowledgements_of_java_name_their_check_point() -> None:
    assert decode_ack(ACK) == PopAck(KEY, (3,))
    assert decode_ack(BATCH_ACK) == PopAck(KEY, (1, 2))
    assert decode_ack(BUFFERED_BATCH_ACK) == PopAck(KEY, (0, 1, 2, 3)), "its buffer writes no broker name"
    assert encode_ack(KEY, 3, "interop-broker", COMPAT) == ACK
    assert ack_id(KEY, 3, "interop-broker") == ACK_ID


def test_acknowledgement_with_the_long_names_of_older_brokers_is_read() -> None:
    old = b'{"ackOffset":3,"consumerGroup":"Gpop","popTime":1794856572864,"queueId":0,"startOffset":0,"topic":"Plain"}'
    assert decode_ack(old) == PopAck(KEY, (3,))


def test_check_point_without_differences_names_consecutive_offsets() -> None:
    old = b'{"bm":0,"c":"G","it":1000,"n":3,"pt":5,"q":1,"ro":0,"so":7,"t":"T"}'
    assert decode_check_point(old).queue_offsets == [7, 8, 9]


def test_check_point_keeps_fields_it_does_not_know() -> None:
    rewritten = CHECK_POINT.replace(b'"so":0', b'"rp":"2","so":0')
    assert encode_check_point(decode_check_point(rewritten), COMPAT) == rewritten


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"0-17",
        b"\xff",
        b"[]",
        CHECK_POINT.replace(b'"n":6', b'"n":5'),
        CHECK_POINT.replace(b'"n":6', b'"n":-1'),
        CHECK_POINT.replace(b'"t":"Plain"', b'"x":1'),
        CHECK_POINT.replace(b'"so":0', b'"so":"a"'),
    ],
)
def test_invalid_check_point_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        decode_check_point(body)


@pytest.mark.parametrize("body", [CHECK_POINT, ACK, BATCH_ACK])
def test_cut_and_flipped_bodies_are_read_or_refused(body: bytes) -> None:
    decode = decode_check_point if body is CHECK_POINT else decode_ack
    for at in range(len(body)):
        for damaged in (body[:at], body[:at] + bytes((body[at] ^ 1,)) + body[at + 1 :]):
            try:
                decode(damaged)
            except FormatError:
                continue


def test_more_messages_than_a_check_point_can_name_get_check_points_of_their_own_key() -> None:
    offsets = list(range(10, 10 + 2 * MESSAGES_MAX + 1))
    points = check_points_of(KEY._replace(start_queue_offset=8), offsets, POPPED_MS + 5, "b")
    assert [point.count for point in points] == [MESSAGES_MAX, MESSAGES_MAX, 1]
    assert [each for point in points for each in point.queue_offsets] == offsets
    assert len({point.key for point in points}) == 3
    assert points[0].start_queue_offset == 8, "receipts name it"
