"""Headers of administration requests: topics, groups, statistics, offset resets, users, accounts.

Mirrors Java `CreateTopicRequestHeader`, `ResetOffsetRequestHeader`, `GetConsumeStatsRequestHeader` and their kin.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.wire.header_codec import Header, boolean, integer, long, text


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class CreateTopicRequest(Header):
    """Create or change a topic (17); `attributes` of 5.x have the form `+key=value,-key`."""

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


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class GetTopicConfigRequest(Header):
    """The config of one topic (351)."""

    topic: str = text("topic")
    logical: bool | None = boolean("lo", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class GroupRequest(Header):
    """One group (343, 352)."""

    group: str = text("group")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ProducerGroupRequest(Header):
    """One producer group (204)."""

    group: str = text("producerGroup")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class DeleteGroupRequest(Header):
    """Delete a group (207): the field is `removeOffset` in 4.9, `cleanOffset` in 5.x."""

    group: str = text("groupName")
    remove_offset: bool | None = boolean("removeOffset", None)
    clean_offset: bool | None = boolean("cleanOffset", None)

    @property
    def removes_offsets(self) -> bool:
        return bool(self.remove_offset or self.clean_offset)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ConsumeStatsRequest(Header):
    """Get the lag of a group (208); `topics` are separated by semicolons."""

    group: str = text("consumerGroup")
    topic: str | None = text("topic", None)
    topics: str | None = text("topicList", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class BrokerConsumeStatsRequest(Header):
    """Get the lag of all groups (317)."""

    ordered: bool = boolean("isOrder")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class BrokerConfigResponse(Header):
    """The version of the settings (26)."""

    version: str = text("version")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class TopicGroupRequest(Header):
    """A topic and a group (303)."""

    topic: str = text("topic")
    group: str = text("group")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class QuerySubscriptionRequest(Header):
    """Get the subscription of a group to a topic (345)."""

    group: str = text("group")
    topic: str | None = text("topic", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ResetOffsetRequest(Header):
    """Reset the offsets of a group (222); timestamp -1 means the end."""

    topic: str = text("topic")
    group: str = text("group")
    queue_id: int = integer("queueId", -1)
    queue_offset: int | None = long("offset", None)
    timestamp_ms: int = long("timestamp")
    force: bool = boolean("isForce", False)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class BrokerStatsRequest(Header):
    """One statistic (315)."""

    name: str = text("statsName")
    key: str = text("statsKey")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class CloneGroupOffsetRequest(Header):
    """Copy the offsets of one group to another (314)."""

    source_group: str = text("srcGroup")
    destination_group: str = text("destGroup")
    topic: str | None = text("topic", None)
    offline: bool = boolean("offline", False)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class CorrectionOffsetRequest(Header):
    """Compare the offsets of one group with those of others (308)."""

    topic: str = text("topic")
    compare_group: str = text("compareGroup")
    filter_groups: str | None = text("filterGroups", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class QueryConsumeQueueRequest(Header):
    """Get units of a ConsumeQueue (321)."""

    topic: str = text("topic")
    queue_id: int = integer("queueId", 0)
    index: int = long("index", 0)
    count: int = integer("count", 0)
    group: str | None = text("consumerGroup", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ResumeHalfMessageRequest(Header):
    """Resume the transaction checks of a half message that reached their maximum (323)."""

    topic: str | None = text("topic", None)
    message_id: str | None = text("msgId", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class GroupForbiddenRequest(Header):
    """Get or set whether a group may read a topic (353)."""

    group: str = text("group")
    topic: str = text("topic")
    readable: bool | None = boolean("readable", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class UserRequest(Header):
    """One user (3001 to 3004)."""

    username: str | None = text("username", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ListUsersRequest(Header):
    """List users by name prefix (3005)."""

    filter: str | None = text("filter", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class AclRequest(Header):
    """The ACL of one subject (3006 to 3009)."""

    subject: str | None = text("subject", None)
    policy_type: str | None = text("policyType", None)
    resource: str | None = text("resource", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ListAclsRequest(Header):
    """List ACLs by subject and resource (3010)."""

    subject_filter: str | None = text("subjectFilter", None)
    resource_filter: str | None = text("resourceFilter", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PlainAccountRequest(Header):
    """Create or change an account of `plain_acl.yml` (50), or name one (51); lists are separated by commas."""

    access_key: str = text("accessKey")
    secret_key: str | None = text("secretKey", None)
    white_address: str | None = text("whiteRemoteAddress", None)
    is_admin: bool = boolean("admin", False)
    default_topic_permission: str | None = text("defaultTopicPerm", None)
    default_group_permission: str | None = text("defaultGroupPerm", None)
    topic_permissions: str | None = text("topicPerms", None)
    group_permissions: str | None = text("groupPerms", None)

    def __repr__(self) -> str:
        return f"PlainAccountRequest(access_key={self.access_key!r})"  # never the secret


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class GlobalWhiteAddressesRequest(Header):
    """Replace the global white addresses of a file (53); without a file, of the default one."""

    addresses: str = text("globalWhiteAddrs")
    file: str | None = text("aclFileFullPath", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PlainVersionResponse(Header):
    """The versions of account files (52), as JSON."""

    version: str = text("version")
    all_versions: str | None = text("allAclFileVersion", None)
    broker_name: str = text("brokerName")
    broker_address: str = text("brokerAddr")
    cluster_name: str = text("clusterName")
