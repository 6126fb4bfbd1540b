"""Lists of topics and groups to create or change.

Mirrors Java `CreateTopicListRequestBody`, `SubscriptionGroupList`.
"""

from __future__ import annotations

from dataclasses import field

from orbitlog.formats.tables.group_config import GroupConfig
from orbitlog.formats.tables.json_records import JsonRecord, java, json_record, list_of, record
from orbitlog.formats.tables.topic_config import TopicConfig


@json_record
class TopicConfigList(JsonRecord):
    """Topics to create or change (18)."""

    topics: tuple[TopicConfig, ...] = field(default=(), metadata=java("topicConfigList", list_of(record(TopicConfig))))


@json_record
class GroupConfigList(JsonRecord):
    """Groups to create or change (225)."""

    groups: tuple[GroupConfig, ...] = field(default=(), metadata=java("groupConfigList", list_of(record(GroupConfig))))
