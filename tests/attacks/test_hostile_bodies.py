"""Hostile bodies and headers: refused by size before they are buffered, by count before they are carried out."""

from __future__ import annotations

import struct
from collections.abc import Callable

import orjson
import pytest

from orbitlog.errors import FormatError, LimitExceeded, WireError
from orbitlog.filters.sql_filter import SqlFilter
from orbitlog.formats.tables.loose_json import read_json
from orbitlog.settings.limits import Limits
from orbitlog.testing.running_broker import RunningBroker
from orbitlog.wire.bodies.body_json import decode_request_body, read_body, read_request_body
from orbitlog.wire.bodies.heartbeat_bodies import HeartbeatData
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command_decoding import WireLimits, decode_binary_header, decode_json_header
from orbitlog.wire.frames import REFUSED, FrameDecoder
from orbitlog.wire.request_budgets import RequestBudgets
from tests.support.raw_peer import RawPeer, raw_frame
from tests.support.work_counters import peak_bytes_of, steps_of

MIB = 1024 * 1024
Start = Callable[..., RunningBroker]


def guarded_decoder() -> FrameDecoder:
    return FrameDecoder(limits=WireLimits(budgets=RequestBudgets(Limits(), lambda: 4 * MIB)))


@pytest.mark.parametrize("code", [11, 34, 38, 41, 99_999])
def test_body_over_its_budget_is_never_buffered(code: int) -> None:
    decoder = guarded_decoder()
    frame = raw_frame(code, {}, bytes(15 * MIB))
    frames = []

    def receive() -> None:
        for start in range(0, len(frame), 65536):
            frames.extend(decoder.receive_frames(frame[start : start + 65536]))

    assert peak_bytes_of(receive) < MIB
    assert [kind for kind, _, _ in frames] == [REFUSED]
    assert decoder.receive_frames(raw_frame(28))[0][0] == 0, "the next frame is found"


def test_refused_body_is_answered_and_the_connection_goes_on(start_target: Start) -> None:
    with RawPeer(start_target().broker_address) as peer:
        answer = peer.ask(11, {"topic": "T"}, bytes(2 * MIB))
        assert answer.code == ResponseCode.INVALID_PARAMETER and "plainBodyBytesMax" in answer.remark
        numbers = orjson.loads(peer.ask(28).body)["table"]
    assert int(numbers["limitReached_plainBodyBytesMax"]) == 1


def test_message_over_the_maximum_is_answered_as_illegal(start_target: Start) -> None:
    with RawPeer(start_target().broker_address) as peer:
        assert peer.ask(310, {"a": "g", "b": "T"}, bytes(5 * MIB)).code == ResponseCode.MESSAGE_ILLEGAL


# References, loose JSON, nesting


def test_references_share_one_object() -> None:
    large = {str(number): number for number in range(20_000)}
    body = orjson.dumps({"x": large, "y": [{"$ref": "$.x"}] * 500})
    assert peak_bytes_of(lambda: read_body(body)) < 20 * MIB
    value = read_body(body)
    assert isinstance(value, dict) and isinstance(value["y"], list)
    assert all(each is value["x"] for each in value["y"])


def test_request_with_many_references_is_refused() -> None:
    body = orjson.dumps({"x": {"a": 1}, "y": [{"$ref": "$.x"}] * 65})
    with pytest.raises(LimitExceeded, match="references"):
        read_request_body(body)


def test_reference_to_its_own_container_makes_no_cycle() -> None:
    value = read_body(b'{"a":{"l":[{"$ref":"$.a"}]}}')
    assert value == {"a": {"l": [None]}}


@pytest.mark.parametrize("size", [70_000, 1_000_000])
@pytest.mark.parametrize(
    ("start", "repeated", "end"),
    [(b"[", b"1,", b"1]"), (b"'", b"\\n", b"'"), (b"'", b"aa", b"'")],
    ids=["list", "escapes", "text"],
)
def test_long_loose_body_is_refused_without_work(size: int, start: bytes, repeated: bytes, end: bytes) -> None:
    body = b'{clientID:"c",x:' + start + repeated * (size // 2) + end + b"}"

    def decode() -> None:
        with pytest.raises(LimitExceeded):
            decode_request_body(HeartbeatData, body)

    decode()  # the first call imports the reader of loose JSON
    assert steps_of(decode) < 500


def test_long_loose_header_is_refused_without_work() -> None:
    header = b"{code:34,extFields:{" + b",".join(b"a%d:1" % number for number in range(10_000)) + b"}}"

    def decode() -> None:
        with pytest.raises(WireError):
            decode_json_header(header, b"", WireLimits())

    assert steps_of(decode) < 2_000


def test_depth_of_wide_body_is_judged_without_an_object_for_each_list() -> None:
    body = b"[" + b"[]," * 500_000 + b"[]]"
    assert steps_of(lambda: read_body(body)) < 200
    with pytest.raises(LimitExceeded):
        read_body(b"[" * 33 + b"]" * 33)


def test_beans_in_keys_of_beans_do_not_double_the_text() -> None:
    text = "{" * 20 + '"a":1' + "}:1" * 19 + "}"

    def read() -> None:
        with pytest.raises(FormatError):
            read_json(text)

    assert peak_bytes_of(read) < MIB


def test_binary_header_counts_entries_with_an_empty_key() -> None:
    entries = struct.pack(">hi", 0, 0) * 10_000
    header = struct.pack(">hbhii", 28, 0, 0, 1, 0) + struct.pack(">i", 0) + struct.pack(">i", len(entries)) + entries

    def decode() -> None:
        with pytest.raises(WireError, match="more than 1024 ext fields"):
            decode_binary_header(header, b"", WireLimits())

    assert steps_of(decode) < 40_000


def test_number_of_many_digits_is_read_once() -> None:
    filtered = SqlFilter("a > 1.5")
    for text in ("1" * 200_000 + "x", "0x" + "f" * 200_000 + "y", "." + "1" * 200_000 + "z"):
        # With n * n attempts this would not return within an hour.
        assert not filtered.matches({"a": text})


# Counts inside bodies


@pytest.mark.parametrize(
    ("code", "fields", "body", "limit"),
    [
        (
            34,
            {},
            {"clientID": "c", "producerDataSet": [{"groupName": f"g{n}"} for n in range(1_001)]},
            "heartbeatGroups",
        ),
        (34, {}, {"clientID": "c" * 1_025}, "clientIdCharacters"),
        (
            34,
            {},
            {
                "clientID": "c",
                "consumerDataSet": [
                    {
                        "groupName": "g",
                        "subscriptionDataSet": [
                            {"topic": f"t{n}", "subString": "a = 1 OR " * 1_500 + "b = 2", "expressionType": "SQL92"}
                            for n in range(4)
                        ],
                    }
                ],
            },
            "heartbeatSqlCharacters",
        ),
        (
            41,
            {},
            {
                "consumerGroup": "g",
                "clientId": "c",
                "mqSet": [{"topic": "T", "brokerName": "b", "queueId": n} for n in range(4_097)],
            },
            "lockQueues",
        ),
        (208, {"consumerGroup": "g", "topicList": ";".join(f"t{n}" for n in range(1_001))}, None, "consumeStatsTopics"),
        (
            308,
            {"topic": "T", "compareGroup": "g", "filterGroups": ",".join(f"g{n}" for n in range(1_001))},
            None,
            "consumeStatsTopics",
        ),
        (
            200151,
            {},
            {
                "brokerName": "b",
                "acks": [
                    {"c": "g", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": "/" * 4_096}
                    for _ in range(8)
                ],
            },
            "batchAckBitsBytes",
        ),
    ],
)
def test_request_with_too_many_parts_is_refused(
    start_target: Start, code: int, fields: dict[str, str], body: object, limit: str
) -> None:
    with RawPeer(start_target().broker_address) as peer:
        answer = peer.ask(code, fields, b"" if body is None else orjson.dumps(body))
        numbers = orjson.loads(peer.ask(28).body)["table"]
    assert answer.code == ResponseCode.INVALID_PARAMETER and f"({limit}Max)" in answer.remark, answer
    assert numbers[f"limitReached_{limit}Max"] == "1"


def test_offset_of_a_queue_that_does_not_exist_is_refused(start_target: Start) -> None:
    with RawPeer(start_target().broker_address) as peer:
        fields = {"consumerGroup": "g", "topic": "TBW102", "commitOffset": "1"}
        assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"queueId": "7"}).code == ResponseCode.SUCCESS
        refused = peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"queueId": "8"})
    assert refused.code == ResponseCode.INVALID_PARAMETER and "out of range" in refused.remark
