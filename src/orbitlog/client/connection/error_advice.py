"""What to do about the error codes that brokers and name servers answer with."""

from __future__ import annotations

from typing import NamedTuple

from orbitlog.errors import BrokerRefused
from orbitlog.wire.codes import ResponseCode as Code
from orbitlog.wire.command import Command


class Advice(NamedTuple):
    """Whether the same request may succeed later or elsewhere, and what a person can do."""

    retriable: bool
    sentence: str


_ADVICE: dict[int, Advice] = {
    Code.SYSTEM_ERROR: Advice(True, "the broker's log says more"),
    Code.SYSTEM_BUSY: Advice(True, "the broker is overloaded: send more slowly"),
    Code.REQUEST_CODE_NOT_SUPPORTED: Advice(False, "this broker or name server does not know the request"),
    Code.SERVICE_NOT_AVAILABLE: Advice(True, "the broker takes no messages now: its disk may be full"),
    Code.MESSAGE_ILLEGAL: Advice(
        False,
        "the message is over a limit (topic 127 characters, properties 32 KiB, 4 MiB), or a property is wrong",
    ),
    Code.NO_PERMISSION: Advice(False, "the topic, group or user lacks the permission for this"),
    Code.TOPIC_NOT_EXIST: Advice(True, "create the topic, or allow autoCreateTopicEnable at the broker"),
    Code.QUERY_NOT_FOUND: Advice(False, ""),
    Code.SUBSCRIPTION_PARSE_FAILED: Advice(False, "check the filter expression"),
    Code.SUBSCRIPTION_NOT_EXIST: Advice(True, "members of one group must have the same subscriptions"),
    Code.SUBSCRIPTION_NOT_LATEST: Advice(True, "members of one group must have the same subscriptions"),
    Code.SUBSCRIPTION_GROUP_NOT_EXIST: Advice(
        False, "create the group, or allow autoCreateSubscriptionGroup at the broker"
    ),
    Code.VERSION_NOT_SUPPORTED: Advice(False, "the broker is too old for this"),
    Code.FILTER_DATA_NOT_EXIST: Advice(True, "the broker has not heard of the filter yet: heartbeats bring it"),
    Code.FILTER_DATA_NOT_LATEST: Advice(True, "the broker has not heard of the latest filter yet: heartbeats bring it"),
    Code.INVALID_PARAMETER: Advice(False, "change the value that the broker names"),
    Code.CONSUMER_NOT_ONLINE: Advice(True, "no consumer of the group is connected: start one"),
    Code.CONSUME_MSG_TIMEOUT: Advice(True, "the consumer did not answer in time"),
    Code.NO_MESSAGE: Advice(False, "the message is gone, or was never there"),
    Code.POLLING_FULL: Advice(True, "too many wait at the broker: ask again later"),
    Code.BROKER_NOT_EXIST: Advice(False, "look at the name: `orbitlog cluster list` tells which there are"),
    Code.BROADCAST_CONSUMPTION: Advice(False, "brokers keep no offsets of groups that broadcast"),
    Code.FLOW_CONTROL: Advice(True, "the broker holds back: ask more slowly"),
    Code.GO_AWAY: Advice(True, "the server is stopping: another one is asked"),
}
_UNKNOWN = Advice(False, "")


def refusal(answer: Command) -> BrokerRefused:
    """Turn an answer that is not success into the error to raise."""
    advice = _ADVICE.get(answer.code, _UNKNOWN)
    return BrokerRefused(answer.code, answer.remark or "", advice=advice.sentence, retriable=advice.retriable)
