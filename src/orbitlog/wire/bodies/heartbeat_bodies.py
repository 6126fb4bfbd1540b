"""Heartbeats of clients, and their subscriptions.

Mirrors Java `HeartbeatData`, `ConsumerData`, `ProducerData`, `SubscriptionData`, `CheckClientRequestBody`. C++ writes
enumerations as ordinals and versions as text and leaves empty lists out; Go writes codes as text.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import field, replace

from orbitlog.formats.tables.json_records import (
    BOOL,
    INT,
    LONG,
    TEXT,
    JsonRecord,
    decode_record,
    java,
    json_record,
    list_of,
    optional,
    record,
)
from orbitlog.formats.tables.loose_json import Json
from orbitlog.wire.bodies.body_json import enum_of, read_request_body, text_or

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
TAG = "TAG"
SQL92 = "SQL92"
ALL = "*"
_STEP_ENTRIES = 20
"""Subscriptions in a step; each takes some ten microseconds."""


@json_record
class SubscriptionData(JsonRecord):
    """The subscription of a group to a topic."""

    topic: str = field(metadata=java("topic", TEXT))
    expression: str = field(default=ALL, metadata=java("subString", text_or(ALL)))
    tags: tuple[str, ...] = field(default=(), metadata=java("tagsSet", list_of(TEXT)))
    tag_codes: tuple[int, ...] = field(default=(), metadata=java("codeSet", list_of(INT)))
    version: int = field(default=0, metadata=java("subVersion", LONG))
    expression_type: str = field(default=TAG, metadata=java("expressionType", text_or(TAG)))
    class_filter: bool = field(default=False, metadata=java("classFilterMode", BOOL))

    @property
    def is_tag(self) -> bool:
        return self.expression_type == TAG


@json_record
class ConsumerData(JsonRecord):
    """One consumer group of a client."""

    group: str = field(metadata=java("groupName", TEXT))
    consume_type: str = field(default="CONSUME_PASSIVELY", metadata=java("consumeType", enum_of(*CONSUME_TYPES)))
    message_model: str = field(default="CLUSTERING", metadata=java("messageModel", enum_of(*MESSAGE_MODELS)))
    consume_from_where: str = field(
        default="CONSUME_FROM_LAST_OFFSET", metadata=java("consumeFromWhere", enum_of(*CONSUME_FROM_WHERE))
    )
    subscriptions: tuple[SubscriptionData, ...] = field(
        default=(), metadata=java("subscriptionDataSet", list_of(record(SubscriptionData)))
    )
    unit_mode: bool = field(default=False, metadata=java("unitMode", BOOL))


@json_record
class ProducerData(JsonRecord):
    """One producer group of a client."""

    group: str = field(metadata=java("groupName", TEXT))


@json_record
class HeartbeatData(JsonRecord):
    """The heartbeat of a client, with its groups (34)."""

    client_id: str = field(metadata=java("clientID", TEXT))
    producers: tuple[ProducerData, ...] = field(
        default=(), metadata=java("producerDataSet", list_of(record(ProducerData)))
    )
    consumers: tuple[ConsumerData, ...] = field(
        default=(), metadata=java("consumerDataSet", list_of(record(ConsumerData)))
    )
    fingerprint: int = field(default=0, metadata=java("heartbeatFingerprint", INT))
    without_subscriptions: bool = field(default=False, metadata=java("withoutSub", BOOL))


def heartbeat_steps(body: bytes) -> Generator[int, None, HeartbeatData]:
    """Decode a heartbeat in steps; yield the number of groups and subscriptions after each."""
    value = read_request_body(body) if body else {}
    entries = value.get("consumerDataSet") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(entries, list):
        return decode_record(HeartbeatData, value, "heartbeat")
    data = decode_record(HeartbeatData, {**value, "consumerDataSet": []}, "heartbeat")
    consumers: list[ConsumerData] = []
    for number, entry in enumerate(entries):
        consumers.append((yield from _consumer_steps(entry, f"heartbeat.consumerDataSet[{number}]")))
    return replace(data, consumers=tuple(consumers))


def _consumer_steps(entry: Json, path: str) -> Generator[int, None, ConsumerData]:
    subscriptions = entry.get("subscriptionDataSet") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(subscriptions, list) or len(subscriptions) <= _STEP_ENTRIES:
        consumer = decode_record(ConsumerData, entry, path)
        yield 1 + len(consumer.subscriptions)
        return consumer
    decoded: list[SubscriptionData] = []
    for start in range(0, len(subscriptions), _STEP_ENTRIES):
        part = {**entry, "subscriptionDataSet": subscriptions[start : start + _STEP_ENTRIES]}
        consumer = decode_record(ConsumerData, part, path)
        decoded += consumer.subscriptions
        yield _STEP_ENTRIES
    return replace(consumer, subscriptions=tuple(decoded))


@json_record
class CheckClientRequestBody(JsonRecord):
    """Check whether a filter expression compiles (46)."""

    client_id: str | None = field(default=None, metadata=java("clientId", optional(TEXT)))
    group: str | None = field(default=None, metadata=java("group", optional(TEXT)))
    subscription: SubscriptionData | None = field(
        default=None, metadata=java("subscriptionData", optional(record(SubscriptionData)))
    )
    namespace: str | None = field(default=None, metadata=java("namespace", optional(TEXT)))


@json_record
class GroupSubscription(JsonRecord):
    """The subscription of a group to a topic (345)."""

    group: str = field(metadata=java("group", TEXT))
    topic: str | None = field(default=None, metadata=java("topic", optional(TEXT)))
    subscription: SubscriptionData | None = field(
        default=None, metadata=java("subscriptionData", optional(record(SubscriptionData)))
    )
