"""Offset tables: the consumption progress in consumerOffset, lmqConsumerOffset, delayOffset and consumerOrderInfo.

Keys `topic@group` are split into a `TopicGroup`; values are queue offsets of the next message. Mirrors Java
`ConsumerOffsetManager`, `LmqConsumerOffsetManager`, `DelayOffsetSerializeWrapper`, `ConsumerOrderInfoManager` (5.5:
`QueueLevelConsumerManager`). Offsets of broadcast consumers have no file: the broker commits them to
consumerOffset.json under the group `<group>@broadcast`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, NamedTuple

from orbitlog.formats.java import hash_map_order
from orbitlog.formats.tables.json_records import (
    INT,
    INT_KEY,
    LONG,
    LONG_KEY,
    TEXT,
    Codec,
    Computed,
    JsonFile,
    JsonRecord,
    Key,
    java,
    json_record,
    list_of,
    map_of,
    optional,
    record,
)
from orbitlog.formats.tables.topic_config import NO_VERSION, DataVersion

_SEPARATOR = "@"
# Initial capacities of Java's HashMap of groups and HashSet of topics: they decide the order of groupTopicMap.
_GROUP_MAP_CAPACITY = 128
_TOPIC_SET_CAPACITY = 8


class TopicGroup(NamedTuple):
    """A topic and a group. A topic never contains an `@`; a group may, and is empty if the key has none."""

    topic: str
    group: str

    def __str__(self) -> str:
        return f"{self.topic}{_SEPARATOR}{self.group}" if self.group else self.topic


def parse_topic_group(key: str) -> TopicGroup:
    """Split `topic@group` at its first `@`."""
    topic, _, group = key.partition(_SEPARATOR)
    return TopicGroup(topic, group)


TOPIC_GROUP_KEY: Key[TopicGroup] = Key(lambda key, _: parse_topic_group(str(key)), str)

QueueOffsets = Mapping[TopicGroup, Mapping[int, int]]
_BY_QUEUE = map_of(INT_KEY, LONG)
# Sorted when it is encoded, in the thread that saves the table: a copy of it is taken on the event loop.
_SORTED_BY_QUEUE: Codec[Mapping[int, int]] = Codec(
    _BY_QUEUE.decode, lambda offsets, compat: _BY_QUEUE.encode(dict(sorted(offsets.items())), compat)
)
_QUEUE_OFFSETS: Codec[QueueOffsets] = map_of(TOPIC_GROUP_KEY, _SORTED_BY_QUEUE)


@json_record
class ConsumerOffsets(JsonRecord):
    """consumerOffset.json: by topic, group and queue id the next queue offset to consume (and, 5.x, to pull)."""

    offsets: QueueOffsets = field(default_factory=dict, metadata=java("offsetTable", _QUEUE_OFFSETS))
    pull_offsets: QueueOffsets = field(
        default_factory=dict, metadata=java("pullOffsetTable", _QUEUE_OFFSETS, since_5x=True)
    )
    data_version: DataVersion = field(
        default=NO_VERSION, metadata=java("dataVersion", record(DataVersion), since_5x=True)
    )

    COMPUTED: ClassVar[Mapping[str, Computed]] = {"groupTopicMap": Computed("topics_by_group", since_5x=True)}

    @property
    def topics_by_group(self) -> dict[str, list[str]]:
        """The topics of each group, in the order of Java's HashMap; groups with an `@` are not in it."""
        topics: dict[str, list[str]] = {}
        for topic, group in self.offsets:
            if group and _SEPARATOR not in group:
                topics.setdefault(group, []).append(topic)
        return {
            group: hash_map_order(topics[group], capacity=_TOPIC_SET_CAPACITY)
            for group in hash_map_order(topics, capacity=_GROUP_MAP_CAPACITY)
        }


CONSUMER_OFFSET = JsonFile("consumerOffset.json", ConsumerOffsets)
decode_consumer_offsets = CONSUMER_OFFSET.decode
encode_consumer_offsets = CONSUMER_OFFSET.encode


@json_record
class LmqConsumerOffsets(ConsumerOffsets):
    """lmqConsumerOffset.json: used instead of consumerOffset.json if light queues (%LMQ%) are enabled."""

    lmq_offsets: Mapping[TopicGroup, int] = field(
        default_factory=dict, metadata=java("lmqOffsetTable", map_of(TOPIC_GROUP_KEY, LONG))
    )


LMQ_CONSUMER_OFFSET = JsonFile("lmqConsumerOffset.json", LmqConsumerOffsets)
decode_lmq_consumer_offsets = LMQ_CONSUMER_OFFSET.decode
encode_lmq_consumer_offsets = LMQ_CONSUMER_OFFSET.encode


@json_record
class DelayOffsets(JsonRecord):
    """delayOffset.json: by delay level (1 to 18) the next queue offset of SCHEDULE_TOPIC_XXXX to deliver."""

    offsets: Mapping[int, int] = field(default_factory=dict, metadata=java("offsetTable", map_of(INT_KEY, LONG)))
    data_version: DataVersion = field(
        default=NO_VERSION, metadata=java("dataVersion", record(DataVersion), since_5x=True)
    )


DELAY_OFFSET = JsonFile("delayOffset.json", DelayOffsets)
decode_delay_offsets = DELAY_OFFSET.decode
encode_delay_offsets = DELAY_OFFSET.encode


@json_record
class OrderInfo(JsonRecord):
    """The last batch that ordered POP consumption took from one queue, and what became of it.

    `packed_queue_offsets` is Java's list: the first queue offset, then distances to it. Bit n of
    `committed_bits` is set when message n of the batch is acknowledged.
    """

    pop_time_ms: int = field(default=0, metadata=java("popTime", LONG))
    invisible_time_ms: int | None = field(default=None, metadata=java("i", optional(LONG)))
    packed_queue_offsets: tuple[int, ...] | None = field(default=None, metadata=java("o", optional(list_of(LONG))))
    next_visible_times_ms: Mapping[int, int] | None = field(
        default=None, metadata=java("ot", optional(map_of(LONG_KEY, LONG)))
    )
    consumed_counts: Mapping[int, int] | None = field(
        default=None, metadata=java("oc", optional(map_of(LONG_KEY, INT)))
    )
    last_consume_timestamp_ms: int = field(default=0, metadata=java("l", LONG))
    committed_bits: int = field(default=0, metadata=java("cm", LONG))
    attempt_id: str | None = field(default=None, metadata=java("a", optional(TEXT)))

    @property
    def queue_offsets(self) -> tuple[int, ...]:
        """The queue offsets of the batch."""
        if not self.packed_queue_offsets:
            return ()
        first, *distances = self.packed_queue_offsets
        return (first, *(first + distance for distance in distances))


@json_record
class ConsumerOrderInfo(JsonRecord):
    """consumerOrderInfo.json (5.x): by topic, group and queue id the batch in flight."""

    table: Mapping[TopicGroup, Mapping[int, OrderInfo]] = field(
        default_factory=dict, metadata=java("table", map_of(TOPIC_GROUP_KEY, map_of(INT_KEY, record(OrderInfo))))
    )
    consumption_level: str = field(default="QUEUE", metadata=java("orderedConsumptionLevel", TEXT))

    COMPUTED: ClassVar[Mapping[str, Computed]] = {"orderInfoCount": Computed("topic_group_count")}

    @property
    def topic_group_count(self) -> int:
        return len(self.table)


CONSUMER_ORDER_INFO = JsonFile("consumerOrderInfo.json", ConsumerOrderInfo)
decode_consumer_order_info = CONSUMER_ORDER_INFO.decode
encode_consumer_order_info = CONSUMER_ORDER_INFO.encode
