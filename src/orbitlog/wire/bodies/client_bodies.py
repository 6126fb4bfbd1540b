"""Bodies about clients: connections, results of direct consumption, broker statistics, queue assignments.

Mirrors Java `ConsumerConnection`, `ProducerConnection`, `ProducerTableInfo`, `ConsumeMessageDirectlyResult`,
`BrokerStatsData`, `QueryAssignmentRequestBody`, `SetMessageRequestModeRequestBody`, `BatchAckMessageRequestBody`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.tables.json_records import (
    BOOL,
    INT,
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
from orbitlog.wire.bodies.body_json import DOUBLE, QUEUE, enum_of
from orbitlog.wire.bodies.heartbeat_bodies import (
    CONSUME_FROM_WHERE,
    CONSUME_TYPES,
    MESSAGE_MODELS,
    SubscriptionData,
)

CONSUME_RESULTS = (*("CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION", "CR_RETURN_NULL"),)
REQUEST_MODES = ("PULL", "POP")


@json_record
class ClientConnection(JsonRecord):
    """One client of a group."""

    client_id: str = field(metadata=java("clientId", TEXT))
    client_address: str = field(metadata=java("clientAddr", TEXT))
    language: str = field(default="JAVA", metadata=java("language", TEXT))
    version: int = field(default=0, metadata=java("version", INT))


@json_record
class ConsumerConnection(JsonRecord):
    """The clients of a consumer group (203)."""

    connections: tuple[ClientConnection, ...] = field(
        default=(), metadata=java("connectionSet", list_of(record(ClientConnection)))
    )
    subscriptions: Mapping[str, SubscriptionData] = field(
        default_factory=dict, metadata=java("subscriptionTable", map_of(TEXT_KEY, record(SubscriptionData)))
    )
    consume_type: str | None = field(default=None, metadata=java("consumeType", optional(enum_of(*CONSUME_TYPES))))
    message_model: str | None = field(default=None, metadata=java("messageModel", optional(enum_of(*MESSAGE_MODELS))))
    consume_from_where: str | None = field(
        default=None, metadata=java("consumeFromWhere", optional(enum_of(*CONSUME_FROM_WHERE)))
    )


@json_record
class ProducerConnection(JsonRecord):
    """The clients of a producer group (204)."""

    connections: tuple[ClientConnection, ...] = field(
        default=(), metadata=java("connectionSet", list_of(record(ClientConnection)))
    )


@json_record
class ProducerInfo(JsonRecord):
    """One producer."""

    client_id: str = field(metadata=java("clientId", TEXT))
    remote_address: str = field(metadata=java("remoteIP", TEXT))
    language: str = field(default="JAVA", metadata=java("language", TEXT))
    version: int = field(default=0, metadata=java("version", INT))
    last_update_timestamp_ms: int = field(default=0, metadata=java("lastUpdateTimestamp", LONG))


@json_record
class ProducerTable(JsonRecord):
    """All producers, by group (328)."""

    groups: Mapping[str, tuple[ProducerInfo, ...]] = field(
        default_factory=dict, metadata=java("data", map_of(TEXT_KEY, list_of(record(ProducerInfo))))
    )


@json_record
class ConsumeDirectlyResult(JsonRecord):
    """The result of consuming one message directly (309); Go sends the result as a number."""

    result: str | None = field(default=None, metadata=java("consumeResult", optional(enum_of(*CONSUME_RESULTS))))
    ordered: bool = field(default=False, metadata=java("order", BOOL))
    auto_commit: bool = field(default=True, metadata=java("autoCommit", BOOL))
    remark: str | None = field(default=None, metadata=java("remark", optional(TEXT)))
    spent_ms: int = field(default=0, metadata=java("spentTimeMills", LONG))


@json_record
class StatsItem(JsonRecord):
    """One statistic over one time window."""

    sum: int = field(default=0, metadata=java("sum", LONG))
    tps: float = field(default=0.0, metadata=java("tps", DOUBLE))
    average: float = field(default=0.0, metadata=java("avgpt", DOUBLE))


_NO_STATS = StatsItem()


@json_record
class BrokerStats(JsonRecord):
    """One statistic over a minute, an hour, a day (315)."""

    minute: StatsItem = field(default=_NO_STATS, metadata=java("statsMinute", record(StatsItem)))
    hour: StatsItem = field(default=_NO_STATS, metadata=java("statsHour", record(StatsItem)))
    day: StatsItem = field(default=_NO_STATS, metadata=java("statsDay", record(StatsItem)))


@json_record
class QueryAssignmentBody(JsonRecord):
    """Query the queues assigned to a client (400)."""

    topic: str = field(metadata=java("topic", TEXT))
    group: str = field(metadata=java("consumerGroup", TEXT))
    client_id: str = field(metadata=java("clientId", TEXT))
    strategy: str | None = field(default=None, metadata=java("strategyName", optional(TEXT)))
    message_model: str = field(default="CLUSTERING", metadata=java("messageModel", enum_of(*MESSAGE_MODELS)))


@json_record
class QueueAssignment(JsonRecord):
    """One queue, and how to consume it."""

    queue: MessageQueue = field(metadata=java("messageQueue", QUEUE))
    mode: str = field(default="PULL", metadata=java("mode", enum_of(*REQUEST_MODES)))


@json_record
class QueueAssignments(JsonRecord):
    """The queues assigned to a client (400)."""

    assignments: tuple[QueueAssignment, ...] = field(
        default=(), metadata=java("messageQueueAssignments", list_of(record(QueueAssignment)))
    )


@json_record
class GroupForbidden(JsonRecord):
    """Whether a group may read a topic (353)."""

    group: str = field(metadata=java("group", TEXT))
    topic: str = field(metadata=java("topic", TEXT))
    readable: bool = field(default=True, metadata=java("readable", BOOL))


@json_record
class BatchAck(JsonRecord):
    """Receipts of one queue; `bits` is base64 of the little-endian bits of acknowledged messages."""

    group: str = field(metadata=java("c", TEXT))
    topic: str = field(metadata=java("t", TEXT))
    retry: str = field(default="0", metadata=java("r", TEXT))
    start_queue_offset: int = field(default=0, metadata=java("so", LONG))
    queue_id: int = field(default=0, metadata=java("q", INT))
    revive_queue_id: int = field(default=0, metadata=java("rq", INT))
    pop_timestamp_ms: int = field(default=0, metadata=java("pt", LONG))
    invisible_ms: int = field(default=0, metadata=java("it", LONG))
    bits: str = field(default="", metadata=java("b", TEXT))


@json_record
class BatchAckBody(JsonRecord):
    """Acknowledge many messages (200151)."""

    broker_name: str | None = field(default=None, metadata=java("brokerName", optional(TEXT)))
    acks: tuple[BatchAck, ...] = field(default=(), metadata=java("acks", list_of(record(BatchAck))))
