"""Plain lists and tables: topics, groups, clients, key-value tables.

Mirrors Java `TopicList`, `GroupList`, `GetConsumerListByGroupResponseBody`, `KVTable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from orbitlog.formats.tables.json_records import (
    TEXT,
    TEXT_KEY,
    JsonRecord,
    java,
    json_record,
    list_of,
    map_of,
    optional,
)


@json_record
class TopicList(JsonRecord):
    """Topics; the broker with the address, if given, has more (206, 224, 304, 305, 343)."""

    topics: tuple[str, ...] = field(default=(), metadata=java("topicList", list_of(TEXT)))
    broker_address: str | None = field(default=None, metadata=java("brokerAddr", optional(TEXT)))


@json_record
class GroupList(JsonRecord):
    """Groups (300)."""

    groups: tuple[str, ...] = field(default=(), metadata=java("groupList", list_of(TEXT)))


@json_record
class ConsumerList(JsonRecord):
    """Client ids of a group (38)."""

    client_ids: tuple[str, ...] = field(default=(), metadata=java("consumerIdList", list_of(TEXT)))


@json_record
class KvTable(JsonRecord):
    """Keys and values (28, 103, 219)."""

    table: Mapping[str, str] = field(default_factory=dict, metadata=java("table", map_of(TEXT_KEY, TEXT)))
