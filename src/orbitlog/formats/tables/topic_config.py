"""Config files that a broker keeps by topic: topics.json, topicQueueMapping.json, timermetrics, transactionMetrics.

Mirrors Java `TopicConfigManager`, `TopicQueueMappingManager`, `TimerMetrics`, `TransactionMetrics` and the beans
they write. `DataVersion` is here because topics.json is the first file that has one; half of the other files also do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from orbitlog.formats.tables.json_records import (
    BOOL,
    INT,
    INT_KEY,
    LONG,
    TEXT,
    TEXT_KEY,
    JsonFile,
    JsonRecord,
    java,
    json_record,
    list_of,
    map_of,
    optional,
    record,
)

PERMISSION_READ = 4
PERMISSION_WRITE = 2
PERMISSION_INHERIT = 1


@json_record
class DataVersion(JsonRecord):
    """Version of a table: a counter of changes, the time of the last one, the controller's state (5.x)."""

    counter: int = field(default=0, metadata=java("counter", LONG))
    timestamp_ms: int = field(default=0, metadata=java("timestamp", LONG))
    state_version: int = field(default=0, metadata=java("stateVersion", LONG, since_5x=True))


NO_VERSION = DataVersion()


@json_record
class TopicConfig(JsonRecord):
    """One topic: its queue counts and permission."""

    topic: str = field(metadata=java("topicName", TEXT))
    read_queue_count: int = field(default=16, metadata=java("readQueueNums", INT))
    write_queue_count: int = field(default=16, metadata=java("writeQueueNums", INT))
    permission: int = field(default=PERMISSION_READ | PERMISSION_WRITE, metadata=java("perm", INT))
    filter_type: str = field(default="SINGLE_TAG", metadata=java("topicFilterType", TEXT))
    sys_flag: int = field(default=0, metadata=java("topicSysFlag", INT))
    ordered: bool = field(default=False, metadata=java("order", BOOL))
    attributes: Mapping[str, str] = field(
        default_factory=dict, metadata=java("attributes", map_of(TEXT_KEY, TEXT), since_5x=True)
    )


@json_record
class TopicTable(JsonRecord):
    """topics.json."""

    topics: Mapping[str, TopicConfig] = field(
        default_factory=dict, metadata=java("topicConfigTable", map_of(TEXT_KEY, record(TopicConfig)))
    )
    data_version: DataVersion = field(default=NO_VERSION, metadata=java("dataVersion", record(DataVersion)))


TOPICS = JsonFile("topics.json", TopicTable)
decode_topics = TOPICS.decode
encode_topics = TOPICS.encode


@json_record
class QueueMappingItem(JsonRecord):
    """One stretch of a static topic's logical queue: which physical queue holds it, from which queue offset."""

    generation: int = field(default=0, metadata=java("gen", INT))
    queue_id: int = field(default=0, metadata=java("queueId", INT))
    broker_name: str | None = field(default=None, metadata=java("bname", optional(TEXT)))
    logic_queue_offset: int = field(default=0, metadata=java("logicOffset", LONG))
    start_queue_offset: int = field(default=0, metadata=java("startOffset", LONG))
    end_queue_offset: int = field(default=-1, metadata=java("endOffset", LONG))
    start_time_ms: int = field(default=-1, metadata=java("timeOfStart", LONG))
    end_time_ms: int = field(default=-1, metadata=java("timeOfEnd", LONG))


@json_record
class TopicQueueMapping(JsonRecord):
    """A static topic as this broker sees it; keys are logical queue ids."""

    topic: str | None = field(default=None, metadata=java("topic", optional(TEXT)))
    broker_name: str | None = field(default=None, metadata=java("bname", optional(TEXT)))
    scope: str = field(default="__global__", metadata=java("scope", TEXT))
    total_queue_count: int = field(default=0, metadata=java("totalQueues", INT))
    epoch: int = field(default=0, metadata=java("epoch", LONG))
    dirty: bool = field(default=False, metadata=java("dirty", BOOL))
    current_queue_ids: Mapping[int, int] = field(default_factory=dict, metadata=java("currIdMap", map_of(INT_KEY, INT)))
    hosted_queues: Mapping[int, tuple[QueueMappingItem, ...]] = field(
        default_factory=dict, metadata=java("hostedQueues", map_of(INT_KEY, list_of(record(QueueMappingItem))))
    )


@json_record
class TopicQueueMappingTable(JsonRecord):
    """topicQueueMapping.json (5.x)."""

    mappings: Mapping[str, TopicQueueMapping] = field(
        default_factory=dict, metadata=java("topicQueueMappingInfoMap", map_of(TEXT_KEY, record(TopicQueueMapping)))
    )
    data_version: DataVersion = field(default=NO_VERSION, metadata=java("dataVersion", record(DataVersion)))


TOPIC_QUEUE_MAPPING = JsonFile("topicQueueMapping.json", TopicQueueMappingTable)
decode_topic_queue_mapping = TOPIC_QUEUE_MAPPING.decode
encode_topic_queue_mapping = TOPIC_QUEUE_MAPPING.encode


@json_record
class TopicCount(JsonRecord):
    """Number of pending messages of a topic, and when it last changed."""

    count: int = field(default=0, metadata=java("count", LONG))
    timestamp_ms: int = field(default=0, metadata=java("timeStamp", LONG))


@json_record
class TimerMetrics(JsonRecord):
    """timermetrics (5.x): messages on the timer wheel, by topic."""

    counts: Mapping[str, TopicCount] = field(
        default_factory=dict, metadata=java("timingCount", map_of(TEXT_KEY, record(TopicCount)))
    )
    data_version: DataVersion = field(default=NO_VERSION, metadata=java("dataVersion", record(DataVersion)))


TIMER_METRICS = JsonFile("timermetrics", TimerMetrics, pretty=False)
decode_timer_metrics = TIMER_METRICS.decode
encode_timer_metrics = TIMER_METRICS.encode


@json_record
class TransactionMetrics(JsonRecord):
    """transactionMetrics (5.x): half messages without an outcome, by topic."""

    counts: Mapping[str, TopicCount] = field(
        default_factory=dict, metadata=java("transactionCount", map_of(TEXT_KEY, record(TopicCount)))
    )
    data_version: DataVersion = field(default=NO_VERSION, metadata=java("dataVersion", record(DataVersion)))


TRANSACTION_METRICS = JsonFile("transactionMetrics", TransactionMetrics, pretty=False)
decode_transaction_metrics = TRANSACTION_METRICS.decode
encode_transaction_metrics = TRANSACTION_METRICS.encode
