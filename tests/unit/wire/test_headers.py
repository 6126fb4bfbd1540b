"""Every header of the table, both ways; the spellings of the protocol; the two hot ones field by field."""

from __future__ import annotations

import dataclasses
import types
import typing

import pytest

from orbitlog.errors import BadRequest
from orbitlog.wire.admin_headers import CreateTopicRequest, DeleteGroupRequest, ResetOffsetRequest
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.consume_headers import PullMessageRequest, PullMessageResponse, QueryMessageRequest
from orbitlog.wire.header_codec import Header, NoHeader
from orbitlog.wire.headers import HEADERS, decode_request_header
from orbitlog.wire.nameserver_headers import BrokerHeartbeatRequest, RegisterBrokerRequest
from orbitlog.wire.send_headers import SendMessageRequest, SendMessageResponse, SendMessageV2Request


def kinds() -> list[type[Header]]:
    seen = {kind for headers in HEADERS.values() for kind in headers}
    return sorted(seen, key=lambda kind: kind.__name__)


def sample(kind: type[Header], *, everything: bool) -> Header:
    """A header with a value in each field, or only in those without a default."""
    types_of = typing.get_type_hints(kind)
    given: dict[str, object] = {}
    for number, each in enumerate(dataclasses.fields(kind)):  # type: ignore[arg-type]
        if everything or each.default is dataclasses.MISSING:
            wanted = types_of[each.name]
            kinds_of = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
            given[each.name] = {str: f"text{number}", int: number + 1, bool: True, float: 1.5}[kinds_of[0]]
    return kind(**given)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_each_header_is_encoded_and_decoded(kind: type[Header]) -> None:
    for everything in (True, False):
        header = sample(kind, everything=everything)
        fields = header.to_ext_fields()
        assert kind.from_ext_fields(fields) == header
        assert all(type(value) is str for value in fields.values())


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_each_missing_required_field_raises(kind: type[Header]) -> None:
    fields = sample(kind, everything=False).to_ext_fields()
    required = [each for each in dataclasses.fields(kind) if each.default is dataclasses.MISSING]  # type: ignore[arg-type]
    missed = 0
    for name in fields:
        try:
            kind.from_ext_fields({key: value for key, value in fields.items() if key != name})
        except BadRequest as error:
            assert error.field == name
            missed += 1
    assert missed == len(required)


def test_every_code_is_in_the_table() -> None:
    tiers = """10 310 320 34 35 38 11 14 15 30 36 29 31 41 42 46 40 103 104 105 37 324 325 12 33 32 39 326 106 206 216
    100 101 102 219 205 224 304 319 318 17 215 200 201 207 202 208 203 204 28 26 25 21 300 222 305 351 307 303 317 314
    220 221 315 309 3001 3010 217 322 901 904 361 400 401 200050 200051 200052 200053 200054 200055 200151 370 18 225
    343 345 353"""
    assert {int(code) for code in tiers.split()} <= set(HEADERS)
    assert set(HEADERS) <= set(map(int, RequestCode))


def test_a_request_finds_its_header() -> None:
    request = Command(RequestCode.GET_MIN_OFFSET, ext_fields={"topic": "T", "queueId": "1"})
    assert decode_request_header(request).to_ext_fields() == {"topic": "T", "queueId": "1"}
    assert decode_request_header(Command(RequestCode.HEART_BEAT)) == NoHeader()


def test_send_v2_has_one_letter_names() -> None:
    fields = {"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "-1", "f": "4", "g": "1700000000000", "h": "0"}
    assert SendMessageV2Request.from_ext_fields(fields) == SendMessageV2Request(
        producer_group="P",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_count=4,
        queue_id=-1,
        sys_flag=4,
        born_timestamp_ms=1700000000000,
        flag=0,
    )
    more = {"i": "KEYS\x01k\x02", "j": "2", "k": "true", "l": "0", "m": "TRUE", "n": "broker-a"}
    header = SendMessageV2Request.from_ext_fields({**fields, **more})
    assert (header.properties, header.reconsume_times, header.unit_mode) == ("KEYS\x01k\x02", 2, True)
    assert (header.max_reconsume_times, header.batch, header.broker_name) == (0, True, "broker-a")
    assert header.to_ext_fields() == {**fields, **more, "m": "true"}


def test_absent_max_reconsume_times_is_not_zero() -> None:
    header = sample(SendMessageRequest, everything=False)
    assert isinstance(header, SendMessageRequest)
    assert header.max_reconsume_times is None
    assert "maxReconsumeTimes" not in header.to_ext_fields()


@pytest.mark.parametrize("name", "degfhjl")
def test_send_with_an_invalid_number_raises(name: str) -> None:
    fields = sample(SendMessageV2Request, everything=True).to_ext_fields()
    for text in ("x", "", "1_0", "²", "99999999999999999999"):
        with pytest.raises(BadRequest, match=f"<{name}> is no"):
            SendMessageV2Request.from_ext_fields({**fields, name: text})


@pytest.mark.parametrize("name", ["queueId", "queueOffset", "maxMsgNums", "sysFlag", "subVersion", "maxMsgBytes"])
def test_pull_with_an_invalid_number_raises(name: str) -> None:
    fields = sample(PullMessageRequest, everything=True).to_ext_fields()
    with pytest.raises(BadRequest, match=f"<{name}> is no"):
        PullMessageRequest.from_ext_fields({**fields, name: "x"})


def test_responses_have_the_fields_that_clients_parse() -> None:
    sent = SendMessageResponse(message_id="ID", queue_id=1, queue_offset=2, region="DefaultRegion", trace="true")
    assert sent.to_ext_fields() == {
        "msgId": "ID",
        "queueId": "1",
        "queueOffset": "2",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    pulled = PullMessageResponse(suggested_broker_id=0, next_queue_offset=5, min_queue_offset=1, max_queue_offset=9)
    assert pulled.to_ext_fields() == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "5",
        "minOffset": "1",
        "maxOffset": "9",
    }


def test_misspelled_names_of_the_protocol_are_kept() -> None:
    assert "heartbeatTimeoutMillis" in sample(RegisterBrokerRequest, everything=True).to_ext_fields()
    assert "heartbeatTimeoutMills" in sample(BrokerHeartbeatRequest, everything=True).to_ext_fields()
    assert "proxyFrowardClientId" in sample(PullMessageRequest, everything=True).to_ext_fields()
    assert "_UNIQUE_KEY_QUERY" in sample(QueryMessageRequest, everything=True).to_ext_fields()
    for name in ("removeOffset", "cleanOffset"):
        assert DeleteGroupRequest.from_ext_fields({"groupName": "G", name: "true"}).removes_offsets
    assert not DeleteGroupRequest.from_ext_fields({"groupName": "G"}).removes_offsets


def test_defaults_of_administration() -> None:
    reset = ResetOffsetRequest.from_ext_fields({"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"})
    assert (reset.queue_id, reset.queue_offset, reset.timestamp_ms) == (-1, None, -1)
    topic = {"topic": "T", "readQueueNums": "8", "writeQueueNums": "8", "perm": "6"}
    assert CreateTopicRequest.from_ext_fields(topic).ordered is False


def test_codes_have_javas_numbers() -> None:
    assert (RequestCode.SEND_MESSAGE_V2, RequestCode.BATCH_ACK_MESSAGE) == (310, 200151)
    assert (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.GO_AWAY) == (17, 1500)
