"""Bodies about routes, clusters and members of a broker group.

Mirrors Java `TopicRouteData`, `QueueData`, `BrokerData`, `ClusterInfo`, `BrokerMemberGroup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar

from orbitlog.errors import LimitExceeded
from orbitlog.formats.tables.json_records import (
    BOOL,
    INT,
    LONG_KEY,
    TEXT,
    TEXT_KEY,
    Codec,
    Computed,
    JsonRecord,
    java,
    json_record,
    list_of,
    map_of,
    optional,
    record,
)
from orbitlog.formats.tables.loose_json import Json

if TYPE_CHECKING:
    from orbitlog.formats.tables.topic_config import TopicQueueMapping

MASTER_ID = 0
ROUTE_QUEUES_MAX = 500_000
"""Queues of one topic at all brokers; clients create an object for each."""
ROUTE_BROKERS_MAX = 10_000
"""Brokers of one topic; clients connect to each of them."""
_INT_DIGITS = 10


def _mapping_codec() -> Codec[TopicQueueMapping]:
    """Return the codec of static topics; imported late, since few clusters have any."""
    from orbitlog.formats.tables.topic_config import TopicQueueMapping

    return record(TopicQueueMapping)


def _decode_mapping(value: Json, path: str) -> TopicQueueMapping:
    return _mapping_codec().decode(value, path)


_MAPPING: Codec[TopicQueueMapping] = Codec(
    _decode_mapping, lambda mapping, compat: _mapping_codec().encode(mapping, compat)
)


@json_record
class QueueData(JsonRecord):
    """The queues of one topic at one broker group. Up to 4.8, and in Go today, the flag is called topicSynFlag."""

    broker_name: str = field(metadata=java("brokerName", TEXT))
    read_queue_count: int = field(default=0, metadata=java("readQueueNums", INT))
    write_queue_count: int = field(default=0, metadata=java("writeQueueNums", INT))
    permission: int = field(default=0, metadata=java("perm", INT))
    sys_flag: int = field(default=0, metadata=java("topicSysFlag", INT))

    COMPUTED: ClassVar[Mapping[str, Computed]] = {"topicSynFlag": Computed("sys_flag")}


@json_record
class BrokerData(JsonRecord):
    """The brokers of one name: addresses by id, 0 is the master."""

    broker_name: str = field(metadata=java("brokerName", TEXT))
    cluster: str | None = field(default=None, metadata=java("cluster", optional(TEXT)))
    addresses: Mapping[int, str] = field(default_factory=dict, metadata=java("brokerAddrs", map_of(LONG_KEY, TEXT)))
    enable_acting_master: bool = field(default=False, metadata=java("enableActingMaster", BOOL))
    zone: str | None = field(default=None, metadata=java("zoneName", optional(TEXT)))


@json_record
class TopicRoute(JsonRecord):
    """The route of a topic: its brokers and queues (105)."""

    brokers: tuple[BrokerData, ...] = field(default=(), metadata=java("brokerDatas", list_of(record(BrokerData))))
    queues: tuple[QueueData, ...] = field(default=(), metadata=java("queueDatas", list_of(record(QueueData))))
    filter_servers: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict, metadata=java("filterServerTable", map_of(TEXT_KEY, list_of(TEXT)))
    )
    order_topic_conf: str | None = field(default=None, metadata=java("orderTopicConf", optional(TEXT)))
    mappings: Mapping[str, TopicQueueMapping] | None = field(
        default=None,
        metadata=java("topicQueueMappingByBroker", optional(map_of(TEXT_KEY, _MAPPING))),
    )


def require_listable(route: TopicRoute) -> None:
    """Raise `LimitExceeded` for more brokers or queues than a client should list, whatever a peer has registered."""
    count = sum(len(broker.addresses) for broker in route.brokers)
    if count > ROUTE_BROKERS_MAX:
        raise LimitExceeded(field="brokers of a route", limit=ROUTE_BROKERS_MAX, got=count)
    count = sum(max(queue.read_queue_count, queue.write_queue_count, 0) for queue in route.queues)
    for part in (route.order_topic_conf or "").split(";"):
        number = part.rpartition(":")[2]
        count += int(number) if number.isdecimal() and len(number) <= _INT_DIGITS else 0
    if count > ROUTE_QUEUES_MAX:
        raise LimitExceeded(field="queues of a route", limit=ROUTE_QUEUES_MAX, got=count)


@json_record
class ClusterInfo(JsonRecord):
    """Every broker of every cluster (106)."""

    brokers: Mapping[str, BrokerData] = field(
        default_factory=dict, metadata=java("brokerAddrTable", map_of(TEXT_KEY, record(BrokerData)))
    )
    clusters: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict, metadata=java("clusterAddrTable", map_of(TEXT_KEY, list_of(TEXT)))
    )


@json_record
class BrokerMembers(JsonRecord):
    """The brokers of one name, in the form that brokers request."""

    cluster: str | None = field(default=None, metadata=java("cluster", optional(TEXT)))
    broker_name: str | None = field(default=None, metadata=java("brokerName", optional(TEXT)))
    addresses: Mapping[int, str] = field(default_factory=dict, metadata=java("brokerAddrs", map_of(LONG_KEY, TEXT)))


@json_record
class BrokerMemberGroup(JsonRecord):
    """The response to GET_BROKER_MEMBER_GROUP (901)."""

    members: BrokerMembers = field(metadata=java("brokerMemberGroup", record(BrokerMembers)))
