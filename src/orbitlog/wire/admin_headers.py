"""Headers of administration: topics, groups, statistics, resets, users. Tiers C, D and E.

Mirrors Java `CreateTopicRequestHeader`, `ResetOffsetRequestHeader`, `GetConsumeStatsRequestHeader` and their kin.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.wire.header_codec import Header, boolean, integer, long, text


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicRequest(Header):
    """A topic made or changed (17); `attributes` of 5.x look like `+key=value,-key`."""

    topic: str = text("topic")
    default_topic: str | None = text("defaultTopic", None)
    read_queue_count: int = integer("readQueueNums")
    write_queue_count: int = integer("writeQueueNums")
    permission: int = integer("perm")
    filter_type: str | None = text("topicFilterType", None)
    sys_flag: int | None = integer("topicSysFlag", None)
    ordered: bool = boolean("order", False)
    attributes: str | None = text("attributes", None)
    force: bool = boolean("force", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicConfigRequest(Header):
    """The config of one topic (351)."""

    topic: str = text("topic")
    logical: bool | None = boolean("lo", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest(Header):
    """One group (343, 352)."""

    group: str = text("group")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerGroupRequest(Header):
    """One producer group (204)."""

    group: str = text("producerGroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupRequest(Header):
    """A group to be deleted (207): 4.9 says `removeOffset`, 5.x `cleanOffset`."""

    group: str = text("groupName")
    remove_offset: bool | None = boolean("removeOffset", None)
    clean_offset: bool | None = boolean("cleanOffset", None)

    @property
    def removes_offsets(self) -> bool:
        return bool(self.remove_offset or self.clean_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatsRequest(Header):
    """How far a group is behind (208); `topics` are separated by semicolons."""

    group: str = text("consumerGroup")
    topic: str | None = text("topic", None)
    topics: str | None = text("topicList", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConsumeStatsRequest(Header):
    """How far all groups are behind (317)."""

    ordered: bool = boolean("isOrder")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigResponse(Header):
    """The version of the settings (26)."""

    version: str = text("version")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGroupRequest(Header):
    """A topic and a group (303)."""

    topic: str = text("topic")
    group: str = text("group")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySubscriptionRequest(Header):
    """What a group subscribes to in a topic (345)."""

    group: str = text("group")
    topic: str | None = text("topic", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetRequest(Header):
    """A group is to consume from elsewhere (222); timestamp -1 means the end."""

    topic: str = text("topic")
    group: str = text("group")
    queue_id: int = integer("queueId", -1)
    queue_offset: int | None = long("offset", None)
    timestamp_ms: int = long("timestamp")
    force: bool = boolean("isForce", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatsRequest(Header):
    """One statistic (315)."""

    name: str = text("statsName")
    key: str = text("statsKey")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneGroupOffsetRequest(Header):
    """The offsets of one group given to another (314)."""

    source_group: str = text("srcGroup")
    destination_group: str = text("destGroup")
    topic: str | None = text("topic", None)
    offline: bool = boolean("offline", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionOffsetRequest(Header):
    """Offsets of one group held against others (308)."""

    topic: str = text("topic")
    compare_group: str = text("compareGroup")
    filter_groups: str | None = text("filterGroups", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeQueueRequest(Header):
    """Units of a queue (321)."""

    topic: str = text("topic")
    queue_id: int = integer("queueId", 0)
    index: int = long("index", 0)
    count: int = integer("count", 0)
    group: str | None = text("consumerGroup", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeHalfMessageRequest(Header):
    """A half message that was given up is to be asked about again (323)."""

    topic: str | None = text("topic", None)
    message_id: str | None = text("msgId", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForbiddenRequest(Header):
    """May a group read a topic (353)."""

    group: str = text("group")
    topic: str = text("topic")
    readable: bool | None = boolean("readable", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRequest(Header):
    """One user (3001 to 3004)."""

    username: str | None = text("username", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListUsersRequest(Header):
    """Users whose name begins so (3005)."""

    filter: str | None = text("filter", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRequest(Header):
    """The rules of one subject (3006 to 3009)."""

    subject: str | None = text("subject", None)
    policy_type: str | None = text("policyType", None)
    resource: str | None = text("resource", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAclsRequest(Header):
    """Rules by subject and resource (3010)."""

    subject_filter: str | None = text("subjectFilter", None)
    resource_filter: str | None = text("resourceFilter", None)
