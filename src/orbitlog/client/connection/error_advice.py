"""Advice for the error codes of brokers and name servers."""

from __future__ import annotations

from typing import NamedTuple

from orbitlog.errors import BrokerRefused
from orbitlog.wire.codes import ResponseCode as Code
from orbitlog.wire.command import Command


class Advice(NamedTuple):
    """Whether the same request may succeed later or at another broker, and what a user can do."""

    retriable: bool
    sentence: str


_ADVICE: dict[int, Advice] = {
    Code.SYSTEM_ERROR: Advice(True, "see the broker's log"),
    Code.SYSTEM_BUSY: Advice(True, "the broker is overloaded: send more slowly"),
    Code.REQUEST_CODE_NOT_SUPPORTED: Advice(False, "this broker or name server does not support the request"),
    Code.SERVICE_NOT_AVAILABLE: Advice(True, "the broker accepts no messages now: its disk may be full"),
    Code.MESSAGE_ILLEGAL: Advice(
        False,
        "the message is over a limit (topic 127 characters, properties 32 KiB, 4 MiB), or a property is invalid",
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
    Code.FILTER_DATA_NOT_EXIST: Advice(
        True, "the broker has not received the filter yet: the next heartbeat contains it"
    ),
    Code.FILTER_DATA_NOT_LATEST: Advice(True, "the broker has an older filter: the next heartbeat updates it"),
    Code.INVALID_PARAMETER: Advice(False, "correct the value named by the broker"),
    Code.CONSUMER_NOT_ONLINE: Advice(True, "no consumer of the group is connected: start one"),
    Code.CONSUME_MSG_TIMEOUT: Advice(True, "the consumer did not answer in time"),
    Code.NO_MESSAGE: Advice(False, "the message was deleted, or never existed"),
    Code.POLLING_FULL: Advice(True, "too many pending requests at the broker: retry later"),
    Code.BROKER_NOT_EXIST: Advice(False, "check the broker name: `orbitlog cluster list` lists all brokers"),
    Code.BROADCAST_CONSUMPTION: Advice(False, "brokers keep no offsets of broadcasting groups"),
    Code.FLOW_CONTROL: Advice(True, "the broker applies flow control: send requests more slowly"),
    Code.GO_AWAY: Advice(True, "the server is shutting down: retry at another one"),
}
_UNKNOWN = Advice(False, "")
_REQUEST_ID_CHARACTERS_MAX = 64  # it comes from a server, and is shown


def refusal(response: Command) -> BrokerRefused:
    """Return the error to raise for a response with an error code."""
    advice = _ADVICE.get(response.code, _UNKNOWN)
    return BrokerRefused(
        response.code,
        response.remark or "",
        advice=advice.sentence,
        retriable=advice.retriable,
        request_id=response.ext_fields.get("requestId", "")[:_REQUEST_ID_CHARACTERS_MAX],
    )
