"""Heartbeats as the five families of clients write them."""

from __future__ import annotations

import pytest

from orbitlog.errors import FormatError
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.bodies.heartbeat_bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from tests.support.damage import gives_value_or_format_error

JAVA = (
    b'{"clientID":"10.0.0.5@12345#987","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    b'"consumeType":"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING","subscriptionDataSet":['
    b'{"classFilterMode":false,"codeSet":[98],"expressionType":"TAG","subString":"b","subVersion":1700000000000,'
    b'"tagsSet":["b"],"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":0,'
    b'"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}'
)
CPP = (
    b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"G","messageModel":0,'
    b'"subscriptionDataSet":[{"subString":"*","subVersion":"1700000000000","topic":"T"}]}]}\n'
)
GO = (
    b'{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY","subscriptionDataSet":['
    b'{"topic":"T","subString":"b","codeSet":["98"],"subVersion":5,"expressionType":"TAG"}]}],"producerDataSet":[]}'
)


def test_heartbeat_of_java_is_decoded() -> None:
    subscription = SubscriptionData("T", "b", ("b",), (98,), 1700000000000)
    heartbeat = HeartbeatData(
        client_id="10.0.0.5@12345#987",
        producers=(ProducerData("CLIENT_INNER_PRODUCER"),),
        consumers=(ConsumerData("G", subscriptions=(subscription,)),),
    )
    assert decode_body(HeartbeatData, JAVA) == heartbeat
    assert encode_body(heartbeat) == JAVA
    assert subscription.is_tag


def test_heartbeat_of_cpp_is_decoded() -> None:
    heartbeat = decode_body(HeartbeatData, CPP)
    (consumer,) = heartbeat.consumers
    assert heartbeat.producers == ()
    assert (consumer.consume_type, consumer.message_model) == ("CONSUME_PASSIVELY", "BROADCASTING")
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert consumer.subscriptions == (SubscriptionData("T", version=1700000000000),)
    assert consumer.unit_mode is False


def test_heartbeat_of_go_is_decoded() -> None:
    (consumer,) = decode_body(HeartbeatData, GO).consumers
    assert consumer.subscriptions[0].tag_codes == (98,)


def test_empty_expressions_mean_everything() -> None:
    read = decode_body(SubscriptionData, b'{"topic":"T","subString":"","expressionType":"","tagsSet":null}')
    assert (read.expression, read.expression_type, read.tags) == ("*", "TAG", ())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"clientID":1}',
        b'{"clientID":"c","consumerDataSet":[{}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeType":9}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":"T","codeSet":["x"]}]}]}',
    ],
)
def test_invalid_heartbeat_raises(body: bytes) -> None:
    with pytest.raises(FormatError):
        decode_body(HeartbeatData, body)


@pytest.mark.parametrize("body", [JAVA, CPP, GO], ids=["java", "cpp", "go"])
def test_damaged_heartbeat_raises_only_format_errors(body: bytes) -> None:
    gives_value_or_format_error(lambda data: decode_body(HeartbeatData, data), body)
