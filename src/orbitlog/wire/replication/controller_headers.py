"""Headers of requests to Apache's controller, and of its answers. Mirror Java's `protocol.header.controller`."""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.wire.header_codec import Header, boolean, integer, long, text


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ControllerMetadata(Header):
    """Answer to CONTROLLER_GET_METADATA_INFO (1005): the leader of the controllers; empty during an election."""

    leader_id: str = text("controllerLeaderId", "")
    leader_address: str = text("controllerLeaderAddress", "")
    peers: str = text("peers", "")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class NextBrokerIdRequest(Header):
    """Ask for the next free broker id of a group (1012)."""

    cluster: str = text("clusterName")
    broker_name: str = text("brokerName")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class NextBrokerIdResponse(Header):
    """The next free broker id; 1 for the first member."""

    broker_id: int = long("nextBrokerId")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ApplyBrokerIdRequest(Header):
    """Take a broker id (1013). The check code, `address;millis`, lets the same broker repeat the request."""

    cluster: str = text("clusterName")
    broker_name: str = text("brokerName")
    broker_id: int = long("appliedBrokerId")
    check_code: str = text("registerCheckCode")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class RegisterMemberRequest(Header):
    """Register a member and its address with the controller (1003)."""

    cluster: str = text("clusterName")
    broker_name: str = text("brokerName")
    broker_id: int = long("brokerId")
    broker_address: str = text("brokerAddress")
    invoke_time_ms: int = long("invokeTime", 0)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class AlterSyncStateSetRequest(Header):
    """Change the in-sync set as its master (1001); the body has the new set and the epoch of the present one."""

    broker_name: str = text("brokerName")
    master_id: int = long("masterBrokerId")
    master_epoch: int = integer("masterEpoch")
    invoke_time_ms: int = long("invokeTime", 0)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ControllerElectRequest(Header):
    """Ask the controller for an election (1002)."""

    cluster: str = text("clusterName")
    broker_name: str = text("brokerName")
    broker_id: int = long("brokerId")
    designates: bool = boolean("designateElect", default=False)
    invoke_time_ms: int = long("invokeTime", 0)
