"""What users give to a send: checked before anything leaves, and spelled as official clients spell it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orbitlog.client.connection.checked_input import bodies_list, time_limit
from orbitlog.client.producer.outgoing import (
    BODY_BYTES_MAX,
    batch_request,
    compressed,
    make_batch,
    make_outgoing,
    send_request,
)
from orbitlog.errors import ClientError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records.batch import decode_batch
from orbitlog.formats.records.compression import inflate_body
from orbitlog.formats.records.properties import decode_properties

QUEUE = MessageQueue("Orders", "a", 3)


def test_what_is_given_becomes_properties() -> None:
    message = make_outgoing(
        "Orders", "ü", "ID", tags="new", keys=["k1", "k2"], user_properties={"colour": "red"}, ordered_by="order 42"
    )
    header, body = send_request(message, QUEUE, "group")
    assert body == "ü".encode() and header.queue_id == 3 and header.broker_name == "a"
    assert decode_properties((header.properties or "").encode()) == {
        "colour": "red",
        "KEYS": "k1 k2",
        "TAGS": "new",
        "__SHARDINGKEY": "order 42",
        "UNIQ_KEY": "ID",
        "WAIT": "true",
    }


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"delay": 1, "delay_level": 1}, "give one of"),
        ({"delay_level": 0}, "levels are 1 to 18"),
        ({"delay_level": 19}, "levels are 1 to 18"),
        ({"deliver_at": datetime(2030, 1, 1)}, "needs a time zone"),
        ({"user_properties": {"TAGS": "x"}}, "TAGS is reserved"),
        ({"body": bytes(BODY_BYTES_MAX + 1)}, "over the limit of 4194304"),
        ({"body": ""}, "needs a body"),
        ({"body": 5}, "bytes or str, not int; encode objects as JSON"),
        ({"body": [1, 2]}, "bytes or str, not list"),
        ({"body": None}, "bytes or str, not NoneType"),
        ({"body": "\ud800"}, "not encodable as UTF-8"),
        ({"keys": 42}, "keys must be a list of str, not int"),
        ({"keys": [42]}, "a key must be a str, not int: 42"),
        ({"keys": ["a b"]}, "'a b' is empty or contains a space"),
        ({"tags": ["A"]}, "a tag must be a str, not list"),
        ({"tags": "A || B"}, "a message has one tag"),
        ({"ordered_by": 42}, "ordered_by must be a str, not int"),
        ({"user_properties": {"price": 7}}, "property price must be a str, not int: 7"),
        ({"user_properties": ["price"]}, "a mapping of str to str"),
        ({"user_properties": {"a": "b\x02c"}}, "property 'a' holds a separator"),
        ({"user_properties": {"a": "b" * 32_768}}, "over the limit of 32767"),
        ({"delay": float("inf")}, "delay must be a number of seconds, not inf"),
        ({"delay": "5"}, "delay must be a number of seconds, not '5'"),
        ({"deliver_at": 5}, "deliver_at must be a datetime, not int"),
    ],
)
def test_invalid_arguments_raise_client_error(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        make_outgoing("Orders", given.pop("body", b"x"), "ID", **given)


def test_a_topic_that_cannot_be_is_refused() -> None:
    with pytest.raises(ClientError, match=r"^topic: 'no topic!' has characters other than"):
        make_outgoing("no topic!", b"x", "ID")


def test_bytes_of_every_kind_are_a_body() -> None:
    assert [make_outgoing("T", body, "ID").body for body in (b"ab", bytearray(b"ab"), memoryview(b"ab"), "ab")] == [
        b"ab"
    ] * 4  # type: ignore[list-item]


def test_one_body_is_not_mistaken_for_a_batch() -> None:
    with pytest.raises(ClientError, match="a list of bodies"):
        bodies_list("abc")
    assert bodies_list(iter(["a", "b"])) == ["a", "b"]


@pytest.mark.parametrize("limit", [0, -1, None, "3", float("inf"), True])
def test_a_time_limit_is_a_number_of_seconds(limit: Any) -> None:
    with pytest.raises(ClientError, match=r"invalid timeout|number of seconds"):
        time_limit(limit)


def test_a_batch_has_no_empty_members() -> None:
    with pytest.raises(ClientError, match="needs a body"):
        make_batch("Orders", [b"x", b""], ["ONE", "TWO"])


def test_timestamp_is_shown_in_milliseconds() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    assert make_outgoing("T", b"x", "ID", deliver_at=moment).properties["TIMER_DELIVER_MS"] == "1893456000000"
    soon = int(make_outgoing("T", b"x", "ID", delay=timedelta(hours=1)).properties["TIMER_DELIVER_MS"])
    assert abs(soon - datetime.now(UTC).timestamp() * 1000 - 3_600_000) < 60_000


def test_a_body_that_gets_no_smaller_stays_as_it_is() -> None:
    small = compressed(make_outgoing("T", bytes(5000), "ID"))
    assert len(small.body) < 100 and inflate_body(small.body, small.sys_flag) == bytes(5000)
    noise = make_outgoing("T", bytes(range(256)), "ID")
    assert compressed(noise) is noise


def test_messages_of_a_batch_share_all_but_body_and_id() -> None:
    messages = make_batch("T", ["one", b"two"], ["ID0", "ID1"], tags="t", user_properties={"a": "<id>"})
    header, body = batch_request(messages, QUEUE, "group", "ALL")
    assert header.batch
    members = decode_batch(body)
    assert [member.body for member in members] == [b"one", b"two"]
    shared = {"a": "<id>", "TAGS": "t", "WAIT": "true"}
    found = [decode_properties(member.properties_raw) for member in members]
    assert found == [{**shared, "UNIQ_KEY": "ID0"}, {**shared, "UNIQ_KEY": "ID1"}]
    with pytest.raises(ClientError, match="at least one body"):
        make_batch("T", [], [])
    with pytest.raises(ClientError, match="1 entries of keys for 2 bodies"):
        make_batch("T", ["one", "two"], ["ID0", "ID1"], keys=["k"])
    with pytest.raises(ClientError, match="must be a list"):
        make_batch("T", ["one", "two"], ["ID0", "ID1"], keys="ab")
    with pytest.raises(ClientError, match="split it"):
        make_batch("T", [bytes(BODY_BYTES_MAX // 2)] * 2, ["ID0", "ID1"])
