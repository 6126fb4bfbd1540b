"""Topics and groups to be made or changed together. Mirrors Java `CreateTopicListRequestBody` and its twin."""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitlog.formats.group_config import GroupConfig
from orbitlog.formats.json_records import JsonRecord, java, list_of, record
from orbitlog.formats.topic_config import TopicConfig


@dataclass(frozen=True, slots=True)
class TopicConfigList(JsonRecord):
    """Topics to be made or changed together (18)."""

    topics: tuple[TopicConfig, ...] = field(default=(), metadata=java("topicConfigList", list_of(record(TopicConfig))))


@dataclass(frozen=True, slots=True)
class GroupConfigList(JsonRecord):
    """Groups to be made or changed together (225)."""

    groups: tuple[GroupConfig, ...] = field(default=(), metadata=java("groupConfigList", list_of(record(GroupConfig))))
