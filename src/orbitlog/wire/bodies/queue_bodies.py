"""Bodies about queues: locks, offset resets, consumer offsets, offset statistics.

Mirrors Java `LockBatchRequestBody`, `ResetOffsetBody`, `ResetOffsetBodyForC`, `GetConsumerStatusBody`,
`TopicStatsTable`, `ConsumeStats`, `ConsumeStatsList`, `QueryConsumeTimeSpanBody`, `QueryCorrectionOffsetBody`,
`QueryConsumeQueueResponseBody`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.tables.json_records import (
    BOOL,
    INT,
    INT_KEY,
    LONG,
    TEXT,
    TEXT_KEY,
    JsonRecord,
    java,
    json_record,
    list_of,
    map_of,
    optional,
    record,
)
from orbitlog.wire.bodies.body_json import DOUBLE, QUEUE, queue_map_of
from orbitlog.wire.bodies.heartbeat_bodies import SubscriptionData


@json_record
class LockRequestBody(JsonRecord):
    """Queues to lock for a client, or to unlock (41, 42)."""

    group: str = field(metadata=java("consumerGroup", TEXT))
    client_id: str = field(metadata=java("clientId", TEXT))
    queues: tuple[MessageQueue, ...] = field(default=(), metadata=java("mqSet", list_of(QUEUE)))
    only_this_broker: bool = field(default=False, metadata=java("onlyThisBroker", BOOL))


@json_record
class LockResponseBody(JsonRecord):
    """Queues that were locked (41)."""

    queues: tuple[MessageQueue, ...] = field(default=(), metadata=java("lockOKMQSet", list_of(QUEUE)))


@json_record
class QueueOffsetTable(JsonRecord):
    """New queue offsets of a group (220, 222)."""

    offsets: Mapping[MessageQueue, int] = field(default_factory=dict, metadata=java("offsetTable", queue_map_of(LONG)))


@json_record
class QueueWithOffset(JsonRecord):
    """A queue and its offset, side by side."""

    topic: str = field(metadata=java("topic", TEXT))
    broker_name: str = field(metadata=java("brokerName", TEXT))
    queue_id: int = field(metadata=java("queueId", INT))
    queue_offset: int = field(metadata=java("offset", LONG))


@json_record
class QueueOffsetList(JsonRecord):
    """The same as a list, for C++ consumers (220)."""

    offsets: tuple[QueueWithOffset, ...] = field(
        default=(), metadata=java("offsetTable", list_of(record(QueueWithOffset)))
    )


@json_record
class ConsumerStatus(JsonRecord):
    """The offsets of one consumer (221), or of each client of a group (223)."""

    queues: Mapping[MessageQueue, int] = field(
        default_factory=dict, metadata=java("messageQueueTable", queue_map_of(LONG))
    )
    clients: Mapping[str, Mapping[MessageQueue, int]] = field(
        default_factory=dict, metadata=java("consumerTable", map_of(TEXT_KEY, queue_map_of(LONG)))
    )


@json_record
class TopicOffset(JsonRecord):
    """The minimum and maximum offset of a queue."""

    min_queue_offset: int = field(default=0, metadata=java("minOffset", LONG))
    max_queue_offset: int = field(default=0, metadata=java("maxOffset", LONG))
    last_update_timestamp_ms: int = field(default=0, metadata=java("lastUpdateTimestamp", LONG))


@json_record
class TopicStats(JsonRecord):
    """The minimum and maximum offset of each queue of a topic (202)."""

    offsets: Mapping[MessageQueue, TopicOffset] = field(
        default_factory=dict, metadata=java("offsetTable", queue_map_of(record(TopicOffset)))
    )
    put_tps: float = field(default=0.0, metadata=java("topicPutTps", DOUBLE))


@json_record
class ConsumeOffset(JsonRecord):
    """The offsets of a group in a queue."""

    broker_queue_offset: int = field(default=0, metadata=java("brokerOffset", LONG))
    consumer_queue_offset: int = field(default=0, metadata=java("consumerOffset", LONG))
    pull_queue_offset: int = field(default=0, metadata=java("pullOffset", LONG))
    last_timestamp_ms: int = field(default=0, metadata=java("lastTimestamp", LONG))


@json_record
class ConsumeStats(JsonRecord):
    """The offsets of a group in each queue (208)."""

    offsets: Mapping[MessageQueue, ConsumeOffset] = field(
        default_factory=dict, metadata=java("offsetTable", queue_map_of(record(ConsumeOffset)))
    )
    consume_tps: float = field(default=0.0, metadata=java("consumeTps", DOUBLE))


@json_record
class ConsumeStatsList(JsonRecord):
    """The offsets of every group (317)."""

    groups: tuple[Mapping[str, tuple[ConsumeStats, ...]], ...] = field(
        default=(), metadata=java("consumeStatsList", list_of(map_of(TEXT_KEY, list_of(record(ConsumeStats)))))
    )
    broker_address: str | None = field(default=None, metadata=java("brokerAddr", optional(TEXT)))
    total_diff: int = field(default=0, metadata=java("totalDiff", LONG))
    total_inflight_diff: int = field(default=0, metadata=java("totalInflightDiff", LONG))


@json_record
class QueueTimeSpan(JsonRecord):
    """The first and last store timestamp of a queue, and that of a group's offset."""

    queue: MessageQueue = field(metadata=java("messageQueue", QUEUE))
    min_timestamp_ms: int = field(default=0, metadata=java("minTimeStamp", LONG))
    max_timestamp_ms: int = field(default=0, metadata=java("maxTimeStamp", LONG))
    consume_timestamp_ms: int = field(default=0, metadata=java("consumeTimeStamp", LONG))
    delay_ms: int = field(default=0, metadata=java("delayTime", LONG))


@json_record
class ConsumeTimeSpans(JsonRecord):
    """Time spans of all queues of a topic (303)."""

    spans: tuple[QueueTimeSpan, ...] = field(
        default=(), metadata=java("consumeTimeSpanSet", list_of(record(QueueTimeSpan)))
    )


@json_record
class CorrectionOffsets(JsonRecord):
    """Queue offsets by queue id (308)."""

    offsets: Mapping[int, int] = field(default_factory=dict, metadata=java("correctionOffsets", map_of(INT_KEY, LONG)))


@json_record
class QueueUnit(JsonRecord):
    """One unit of a consume queue."""

    physical_offset: int = field(default=0, metadata=java("physicOffset", LONG))
    size: int = field(default=0, metadata=java("physicSize", INT))
    tags_code: int = field(default=0, metadata=java("tagsCode", LONG))
    extension: str | None = field(default=None, metadata=java("extendDataJson", optional(TEXT)))
    bit_map: str | None = field(default=None, metadata=java("bitMap", optional(TEXT)))
    matches: bool = field(default=False, metadata=java("eval", BOOL))
    message: str | None = field(default=None, metadata=java("msg", optional(TEXT)))


@json_record
class QueueUnits(JsonRecord):
    """Units of a consume queue (321)."""

    units: tuple[QueueUnit, ...] = field(default=(), metadata=java("queueData", list_of(record(QueueUnit))))
    min_queue_offset: int = field(default=0, metadata=java("minQueueIndex", LONG))
    max_queue_offset: int = field(default=0, metadata=java("maxQueueIndex", LONG))
    subscription: SubscriptionData | None = field(
        default=None, metadata=java("subscriptionData", optional(record(SubscriptionData)))
    )
    filter_data: str | None = field(default=None, metadata=java("filterData", optional(TEXT)))
