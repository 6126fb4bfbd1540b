"""Headers of consumer requests: pulls, offsets, groups, message queries, and requests of a broker to consumers.

Mirrors Java `PullMessageRequestHeader`, `QueryConsumerOffsetRequestHeader`, `ConsumerSendMsgBackRequestHeader` and
their kin. Pulls are the hot path: hand-written code, not the declarations, decodes their header and encodes their
response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orbitlog.wire.header_codec import (
    Header,
    boolean,
    integer,
    long,
    missing,
    parse_int,
    parse_long,
    parse_numbers,
    text,
)


@dataclass(slots=True)
class PullMessageRequest(Header):
    """Pull messages of a queue from an offset (11, 361).

    Bits of `sys_flag`: 1 commit `commit_queue_offset`, 2 wait for messages up to `suspend_timeout_ms`, 4 use
    `subscription` instead of the registered one, 8 class filter, 16 lite pull.
    """

    group: str = text("consumerGroup")
    topic: str = text("topic")
    queue_id: int = integer("queueId")
    queue_offset: int = long("queueOffset")
    message_count_max: int = integer("maxMsgNums")
    sys_flag: int = integer("sysFlag")
    commit_queue_offset: int = long("commitOffset")
    suspend_timeout_ms: int = long("suspendTimeoutMillis")
    subscription_version: int = long("subVersion")
    subscription: str | None = text("subscription", None)
    expression_type: str | None = text("expressionType", None)
    message_bytes_max: int | None = integer("maxMsgBytes", None)
    request_source: int | None = integer("requestSource", None)
    proxy_forward_client_id: str | None = text("proxyFrowardClientId", None)

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str]) -> PullMessageRequest:
        get = ext_fields.get
        try:
            numbers = parse_numbers(
                (ext_fields["queueId"], ext_fields["maxMsgNums"], ext_fields["sysFlag"]),
                ("queueId", "maxMsgNums", "sysFlag"),
            )
            queue_id, message_count_max, sys_flag = numbers
            return cls(
                ext_fields["consumerGroup"],
                ext_fields["topic"],
                queue_id,
                parse_long(ext_fields["queueOffset"], "queueOffset"),
                message_count_max,
                sys_flag,
                parse_long(ext_fields["commitOffset"], "commitOffset"),
                parse_long(ext_fields["suspendTimeoutMillis"], "suspendTimeoutMillis"),
                parse_long(ext_fields["subVersion"], "subVersion"),
                get("subscription"),
                get("expressionType"),
                None if (limit := get("maxMsgBytes")) is None else parse_int(limit, "maxMsgBytes"),
                None if (source := get("requestSource")) is None else parse_int(source, "requestSource"),
                get("proxyFrowardClientId"),
            )
        except KeyError as error:
            raise missing(error.args[0]) from None


@dataclass(slots=True)
class PullMessageResponse(Header):
    """The offset of the next pull (11, 361); clients also read it with the codes 19, 20 and 21."""

    suggested_broker_id: int = long("suggestWhichBrokerId")
    next_queue_offset: int = long("nextBeginOffset")
    min_queue_offset: int = long("minOffset")
    max_queue_offset: int = long("maxOffset")
    offset_delta: int | None = long("offsetDelta", None)
    topic_sys_flag: int | None = integer("topicSysFlag", None)
    group_sys_flag: int | None = integer("groupSysFlag", None)
    forbidden_type: int | None = integer("forbiddenType", None)

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str]) -> PullMessageResponse:
        get = ext_fields.get
        try:
            return cls(
                parse_long(ext_fields["suggestWhichBrokerId"], "suggestWhichBrokerId"),
                parse_long(ext_fields["nextBeginOffset"], "nextBeginOffset"),
                parse_long(ext_fields["minOffset"], "minOffset"),
                parse_long(ext_fields["maxOffset"], "maxOffset"),
                None if (delta := get("offsetDelta")) is None else parse_long(delta, "offsetDelta"),
                None if (topic_flag := get("topicSysFlag")) is None else parse_int(topic_flag, "topicSysFlag"),
                None if (group_flag := get("groupSysFlag")) is None else parse_int(group_flag, "groupSysFlag"),
                None if (forbidden := get("forbiddenType")) is None else parse_int(forbidden, "forbiddenType"),
            )
        except KeyError as error:
            raise missing(error.args[0]) from None

    def to_ext_fields(self) -> dict[str, str]:
        ext_fields = {
            "suggestWhichBrokerId": str(self.suggested_broker_id),
            "nextBeginOffset": str(self.next_queue_offset),
            "minOffset": str(self.min_queue_offset),
            "maxOffset": str(self.max_queue_offset),
        }
        for name, value in (
            ("offsetDelta", self.offset_delta),
            ("topicSysFlag", self.topic_sys_flag),
            ("groupSysFlag", self.group_sys_flag),
            ("forbiddenType", self.forbidden_type),
        ):
            if value is not None:
                ext_fields[name] = str(value)
        return ext_fields


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class QueryConsumerOffsetRequest(Header):
    """Get the committed offset of a group in a queue (14)."""

    group: str = text("consumerGroup")
    topic: str = text("topic")
    queue_id: int = integer("queueId")
    set_zero_if_not_found: bool | None = boolean("setZeroIfNotFound", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class QueueOffsetResponse(Header):
    """One queue offset (14, 29, 30, 31)."""

    queue_offset: int = long("offset")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class UpdateConsumerOffsetRequest(Header):
    """Commit the offset of a group in a queue (15)."""

    group: str = text("consumerGroup")
    topic: str = text("topic")
    queue_id: int = integer("queueId")
    commit_queue_offset: int = long("commitOffset")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class SearchOffsetRequest(Header):
    """Find the queue offset of a store timestamp (29)."""

    topic: str = text("topic")
    queue_id: int = integer("queueId")
    timestamp_ms: int = long("timestamp")
    boundary_type: str | None = text("boundaryType", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class GetMaxOffsetRequest(Header):
    """Get the offset of the next message of a queue (30)."""

    topic: str = text("topic")
    queue_id: int = integer("queueId")
    committed: bool = boolean("committed", True)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class TopicQueueRequest(Header):
    """One queue (31, 32)."""

    topic: str = text("topic")
    queue_id: int = integer("queueId")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class TimestampResponse(Header):
    """The store timestamp of the oldest message of a queue, -1 if it is empty (32)."""

    timestamp_ms: int = long("timestamp")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ViewMessageRequest(Header):
    """Get a message by its physical offset (33)."""

    physical_offset: int = long("offset")
    topic: str | None = text("topic", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class QueryMessageRequest(Header):
    """Messages by key (12)."""

    topic: str = text("topic")
    key: str = text("key")
    count_max: int = integer("maxNum")
    begin_timestamp_ms: int = long("beginTimestamp")
    end_timestamp_ms: int = long("endTimestamp")
    unique_key: bool = boolean("_UNIQUE_KEY_QUERY", False)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class QueryMessageResponse(Header):
    """How current the index is (12)."""

    index_timestamp_ms: int = long("indexLastUpdateTimestamp")
    index_physical_offset: int = long("indexLastUpdatePhyoffset")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class HeartbeatResponse(Header):
    """Support of heartbeat V2, in 5.x (34)."""

    supports_v2: bool | None = boolean("IS_SUPPORT_HEART_BEAT_V2", None)
    subscription_changed: bool | None = boolean("IS_SUB_CHANGE", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class UnregisterClientRequest(Header):
    """Unregister a client (35); C++ sends an empty string for an absent group."""

    client_id: str = text("clientID")
    producer_group: str | None = text("producerGroup", None)
    consumer_group: str | None = text("consumerGroup", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class SendBackRequest(Header):
    """Redeliver a message later (36)."""

    physical_offset: int = long("offset")
    group: str = text("group")
    delay_level: int = integer("delayLevel")
    origin_message_id: str | None = text("originMsgId", None)
    origin_topic: str | None = text("originTopic", None)
    unit_mode: bool = boolean("unitMode", False)
    max_reconsume_times: int | None = integer("maxReconsumeTimes", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ConsumerGroupRequest(Header):
    """One consumer group (38, 40, 203)."""

    group: str = text("consumerGroup")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ResetConsumerRequest(Header):
    """A broker resets the offsets of a consumer (220)."""

    topic: str = text("topic")
    group: str = text("group")
    timestamp_ms: int = long("timestamp")
    force: bool = boolean("isForce")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ConsumerStatusRequest(Header):
    """Get the offsets of a consumer from itself (221, 223)."""

    topic: str = text("topic")
    group: str = text("group")
    client_address: str | None = text("clientAddr", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ConsumerRunningInfoRequest(Header):
    """Get the running info of a consumer (307)."""

    group: str = text("consumerGroup")
    client_id: str = text("clientId")
    with_stacks: bool = boolean("jstackEnable", False)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ConsumeDirectlyRequest(Header):
    """Have a consumer consume one message now (309)."""

    group: str = text("consumerGroup")
    client_id: str | None = text("clientId", None)
    message_id: str | None = text("msgId", None)
    broker_name: str | None = text("brokerName", None)
    topic: str | None = text("topic", None)
    topic_sys_flag: int | None = integer("topicSysFlag", None)
    group_sys_flag: int | None = integer("groupSysFlag", None)
