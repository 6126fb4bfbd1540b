"""Headers of name servers: registration, routes, key-value configs, permissions.

Mirrors Java `RegisterBrokerRequestHeader`, `GetRouteInfoRequestHeader` and their kin. Some spellings are part of the
protocol: a registration has `heartbeatTimeoutMillis`, a heartbeat `heartbeatTimeoutMills`.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.wire.header_codec import Header, boolean, integer, long, text


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PutKvConfigRequest(Header):
    """Set one value (100)."""

    namespace: str = text("namespace")
    key: str = text("key")
    value: str = text("value")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class KvConfigRequest(Header):
    """One key (101, 102)."""

    namespace: str = text("namespace")
    key: str = text("key")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class KvConfigResponse(Header):
    """Its value (101)."""

    value: str | None = text("value", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class NamespaceRequest(Header):
    """All keys of a namespace (219)."""

    namespace: str = text("namespace")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class RegisterBrokerRequest(Header):
    """Register a broker and its topics (103)."""

    broker_name: str = text("brokerName")
    broker_address: str = text("brokerAddr")
    cluster: str = text("clusterName")
    ha_address: str = text("haServerAddr")
    broker_id: int = long("brokerId")
    compressed: bool = boolean("compressed", False)
    body_crc32: int = integer("bodyCrc32", 0)
    heartbeat_timeout_ms: int | None = long("heartbeatTimeoutMillis", None)
    enable_acting_master: bool | None = boolean("enableActingMaster", None)
    zone: str | None = text("__ZONE_NAME", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class RegisterBrokerResponse(Header):
    """The master of a registered broker (103)."""

    ha_address: str | None = text("haServerAddr", None)
    master_address: str | None = text("masterAddr", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class UnregisterBrokerRequest(Header):
    """Unregister a broker (104)."""

    broker_name: str = text("brokerName")
    broker_address: str = text("brokerAddr")
    cluster: str = text("clusterName")
    broker_id: int = long("brokerId")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class QueryDataVersionRequest(Header):
    """Ask whether a registration is needed (322)."""

    broker_name: str = text("brokerName")
    broker_address: str = text("brokerAddr")
    cluster: str = text("clusterName")
    broker_id: int = long("brokerId")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class QueryDataVersionResponse(Header):
    """Whether the name server has another version (322)."""

    changed: bool = boolean("changed")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class BrokerHeartbeatRequest(Header):
    """Heartbeat of a broker (904)."""

    cluster: str = text("clusterName")
    broker_address: str = text("brokerAddr")
    broker_name: str = text("brokerName")
    broker_id: int | None = long("brokerId", None)
    epoch: int | None = integer("epoch", None)
    max_physical_offset: int | None = long("maxOffset", None)
    confirm_physical_offset: int | None = long("confirmOffset", None)
    heartbeat_timeout_ms: int | None = long("heartbeatTimeoutMills", None)
    election_priority: int | None = integer("electionPriority", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class GetRouteInfoRequest(Header):
    """Get the route of a topic (105)."""

    topic: str = text("topic")
    standard_json_only: bool | None = boolean("acceptStandardJsonOnly", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ClusterRequest(Header):
    """One cluster (224)."""

    cluster: str = text("cluster")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class BrokerNameRequest(Header):
    """One broker group (205, 327)."""

    broker_name: str = text("brokerName")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class WipeWritePermissionResponse(Header):
    """Number of topics that lost their write permission (205)."""

    topic_count: int = integer("wipeTopicCount")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class AddWritePermissionResponse(Header):
    """Number of topics that got their write permission back (327)."""

    topic_count: int = integer("addTopicCount")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class DeleteTopicRequest(Header):
    """Delete a topic (215, 216), in one cluster if given."""

    topic: str = text("topic")
    cluster: str | None = text("clusterName", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class TopicRequest(Header):
    """One topic (202, 217, 300)."""

    topic: str = text("topic")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class BrokerMemberGroupRequest(Header):
    """The brokers of one name (901)."""

    cluster: str = text("clusterName")
    broker_name: str = text("brokerName")
