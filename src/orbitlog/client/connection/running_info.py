"""Consumer running info for mqadmin `consumerStatus` and dashboards.

Mirrors Java `ConsumerRunningInfo` and `ProcessQueueInfo`; fields without a counterpart here keep their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from orbitlog.client.consumer.group_consumer import Consumer
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
    record,
)
from orbitlog.wire.bodies.body_json import DOUBLE, queue_map_of
from orbitlog.wire.bodies.heartbeat_bodies import SubscriptionData


@json_record
class FeedInfo(JsonRecord):
    """State of one queue of a consumer."""

    commit_queue_offset: int = field(default=0, metadata=java("commitOffset", LONG))
    cached_count: int = field(default=0, metadata=java("cachedMsgCount", INT))
    cached_mebibytes: int = field(default=0, metadata=java("cachedMsgSizeInMiB", INT))
    is_locked: bool = field(default=False, metadata=java("locked", BOOL))
    is_dropped: bool = field(default=False, metadata=java("droped", BOOL))


@json_record
class ConsumeStatus(JsonRecord):
    """Consume rates of one topic: latencies in milliseconds, messages per second."""

    pull_ms: float = field(default=0.0, metadata=java("pullRT", DOUBLE))
    pull_tps: float = field(default=0.0, metadata=java("pullTPS", DOUBLE))
    consume_ms: float = field(default=0.0, metadata=java("consumeRT", DOUBLE))
    consumed_tps: float = field(default=0.0, metadata=java("consumeOKTPS", DOUBLE))
    failed_tps: float = field(default=0.0, metadata=java("consumeFailedTPS", DOUBLE))
    failed_in_hour: int = field(default=0, metadata=java("consumeFailedMsgs", LONG))


@json_record
class RunningInfo(JsonRecord):
    """Body of the response to GET_CONSUMER_RUNNING_INFO."""

    properties: Mapping[str, str] = field(default_factory=dict, metadata=java("properties", map_of(TEXT_KEY, TEXT)))
    subscriptions: tuple[SubscriptionData, ...] = field(
        default=(), metadata=java("subscriptionSet", list_of(record(SubscriptionData)))
    )
    queues: Mapping[MessageQueue, FeedInfo] = field(
        default_factory=dict, metadata=java("mqTable", queue_map_of(record(FeedInfo)))
    )
    statuses: Mapping[str, ConsumeStatus] = field(
        default_factory=dict, metadata=java("statusTable", map_of(TEXT_KEY, record(ConsumeStatus)))
    )


def running_info(consumer: Consumer, name_servers: str) -> RunningInfo:
    """Return the running info of a consumer."""
    ordered = consumer.options.orderly
    data = consumer.heartbeat_data()
    return RunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": name_servers,
            "PROP_CONSUME_TYPE": data.consume_type,
            "PROP_CONSUMEORDERLY": "true" if ordered else "false",
            "PROP_THREADPOOL_CORE_SIZE": "1",
            "PROP_CLIENT_VERSION": "orbitlog",
            "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
        },
        subscriptions=data.subscriptions,
        queues={
            queue: FeedInfo(
                feed.window.commit_offset, len(feed.window), feed.window.size_bytes >> 20, ordered, feed.is_dropped
            )
            for queue, feed in consumer.assignment.feeds.items()
        },
    )
