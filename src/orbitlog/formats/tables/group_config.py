"""Config files that a broker keeps by consumer group: subscriptionGroup, messageRequestMode, consumerFilter.

Mirrors Java `SubscriptionGroupManager`, `MessageRequestModeManager`, `ConsumerFilterManager` and their beans.
Enumerations stay text: a newer broker may have more values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from orbitlog.formats.tables.json_records import (
    BOOL,
    INT,
    LONG,
    TEXT,
    TEXT_KEY,
    Computed,
    JsonFile,
    JsonRecord,
    java,
    json_record,
    list_of,
    map_of,
    optional,
    record,
)
from orbitlog.formats.tables.topic_config import NO_VERSION, DataVersion


@json_record
class ExponentialRetry(JsonRecord):
    """Delays between retries that grow: initial, times the multiplier each time, up to the maximum."""

    initial_ms: int = field(default=5_000, metadata=java("initial", LONG))
    max_ms: int = field(default=7_200_000, metadata=java("max", LONG))
    multiplier: int = field(default=2, metadata=java("multiplier", LONG))


@json_record
class CustomizedRetry(JsonRecord):
    """Delays between retries as a list; None stands for the 18 delay levels."""

    delays_ms: tuple[int, ...] | None = field(default=None, metadata=java("next", optional(list_of(LONG))))


@json_record
class GroupRetryPolicy(JsonRecord):
    """Delays between retries of a group; `type` (CUSTOMIZED, EXPONENTIAL) selects one of the two."""

    type: str = field(default="CUSTOMIZED", metadata=java("type", TEXT))
    exponential: ExponentialRetry | None = field(
        default=None, metadata=java("exponentialRetryPolicy", optional(record(ExponentialRetry)))
    )
    customized: CustomizedRetry | None = field(
        default=None, metadata=java("customizedRetryPolicy", optional(record(CustomizedRetry)))
    )


@json_record
class SimpleSubscription(JsonRecord):
    """One subscription of a group, as fixed by an operator."""

    topic: str | None = field(default=None, metadata=java("topic", optional(TEXT)))
    expression_type: str | None = field(default=None, metadata=java("expressionType", optional(TEXT)))
    expression: str | None = field(default=None, metadata=java("expression", optional(TEXT)))
    version: int = field(default=0, metadata=java("version", LONG))


_NO_POLICY = GroupRetryPolicy()


@json_record
class GroupConfig(JsonRecord):
    """One consumer group: what it may do and how it retries."""

    group: str = field(metadata=java("groupName", TEXT))
    consume_enabled: bool = field(default=True, metadata=java("consumeEnable", BOOL))
    consume_from_min_enabled: bool = field(default=True, metadata=java("consumeFromMinEnable", BOOL))
    consume_broadcast_enabled: bool = field(default=True, metadata=java("consumeBroadcastEnable", BOOL))
    consume_orderly: bool = field(default=False, metadata=java("consumeMessageOrderly", BOOL, since_5x=True))
    retry_queue_count: int = field(default=1, metadata=java("retryQueueNums", INT))
    retry_times_max: int = field(default=16, metadata=java("retryMaxTimes", INT))
    retry_policy: GroupRetryPolicy = field(
        default=_NO_POLICY, metadata=java("groupRetryPolicy", record(GroupRetryPolicy), since_5x=True)
    )
    broker_id: int = field(default=0, metadata=java("brokerId", LONG))
    slow_consume_broker_id: int = field(default=1, metadata=java("whichBrokerWhenConsumeSlowly", LONG))
    notify_ids_changed_enabled: bool = field(default=True, metadata=java("notifyConsumerIdsChangedEnable", BOOL))
    sys_flag: int = field(default=0, metadata=java("groupSysFlag", INT, since_5x=True))
    consume_timeout_minutes: int = field(default=15, metadata=java("consumeTimeoutMinute", INT, since_5x=True))
    subscriptions: tuple[SimpleSubscription, ...] | None = field(
        default=None,
        metadata=java("subscriptionDataSet", optional(list_of(record(SimpleSubscription))), since_5x=True),
    )
    attributes: Mapping[str, str] = field(
        default_factory=dict, metadata=java("attributes", map_of(TEXT_KEY, TEXT), since_5x=True)
    )


@json_record
class GroupTable(JsonRecord):
    """subscriptionGroup.json; `forbidden` (5.x) has by group and topic the bits of what is forbidden."""

    groups: Mapping[str, GroupConfig] = field(
        default_factory=dict, metadata=java("subscriptionGroupTable", map_of(TEXT_KEY, record(GroupConfig)))
    )
    forbidden: Mapping[str, Mapping[str, int]] = field(
        default_factory=dict,
        metadata=java("forbiddenTable", map_of(TEXT_KEY, map_of(TEXT_KEY, INT)), since_5x=True),
    )
    data_version: DataVersion = field(default=NO_VERSION, metadata=java("dataVersion", record(DataVersion)))


SUBSCRIPTION_GROUP = JsonFile("subscriptionGroup.json", GroupTable)
decode_groups = SUBSCRIPTION_GROUP.decode
encode_groups = SUBSCRIPTION_GROUP.encode


@json_record
class RequestMode(JsonRecord):
    """Whether a group pulls or pops a topic, and among how many consumers a queue may be shared."""

    topic: str | None = field(default=None, metadata=java("topic", optional(TEXT)))
    group: str | None = field(default=None, metadata=java("consumerGroup", optional(TEXT)))
    mode: str = field(default="PULL", metadata=java("mode", TEXT))
    pop_share_queue_count: int = field(default=0, metadata=java("popShareQueueNum", INT))


@json_record
class RequestModeTable(JsonRecord):
    """messageRequestMode.json (5.x): by topic, then by group."""

    modes: Mapping[str, Mapping[str, RequestMode]] = field(
        default_factory=dict,
        metadata=java("messageRequestModeMap", map_of(TEXT_KEY, map_of(TEXT_KEY, record(RequestMode)))),
    )


MESSAGE_REQUEST_MODE = JsonFile("messageRequestMode.json", RequestModeTable)
decode_request_modes = MESSAGE_REQUEST_MODE.decode
encode_request_modes = MESSAGE_REQUEST_MODE.encode


@json_record
class BloomData(JsonRecord):
    """The bits of one consumer in a filter bitmap of `bit_count` bits."""

    bit_count: int = field(default=0, metadata=java("bitNum", INT))
    bit_positions: tuple[int, ...] | None = field(default=None, metadata=java("bitPos", optional(list_of(INT))))


@json_record
class FilterData(JsonRecord):
    """A SQL subscription; its bits are set in the bitmaps of messages stored after `born_time_ms` that match."""

    group: str | None = field(default=None, metadata=java("consumerGroup", optional(TEXT)))
    topic: str | None = field(default=None, metadata=java("topic", optional(TEXT)))
    expression: str | None = field(default=None, metadata=java("expression", optional(TEXT)))
    expression_type: str | None = field(default=None, metadata=java("expressionType", optional(TEXT)))
    born_time_ms: int = field(default=0, metadata=java("bornTime", LONG))
    dead_time_ms: int = field(default=0, metadata=java("deadTime", LONG))
    bloom: BloomData | None = field(default=None, metadata=java("bloomFilterData", optional(record(BloomData))))
    client_version: int = field(default=0, metadata=java("clientVersion", LONG))

    COMPUTED: ClassVar[Mapping[str, Computed]] = {"dead": Computed("is_dead")}

    @property
    def is_dead(self) -> bool:
        return self.dead_time_ms >= self.born_time_ms


@json_record
class TopicFilters(JsonRecord):
    """The SQL subscriptions of one topic, by group."""

    topic: str | None = field(default=None, metadata=java("topic", optional(TEXT)))
    filters: Mapping[str, FilterData] = field(
        default_factory=dict, metadata=java("groupFilterData", map_of(TEXT_KEY, record(FilterData)))
    )


@json_record
class FilterTable(JsonRecord):
    """consumerFilter.json: by topic."""

    topics: Mapping[str, TopicFilters] = field(
        default_factory=dict, metadata=java("filterDataByTopic", map_of(TEXT_KEY, record(TopicFilters)))
    )


CONSUMER_FILTER = JsonFile("consumerFilter.json", FilterTable)
decode_filters = CONSUMER_FILTER.decode
encode_filters = CONSUMER_FILTER.encode
