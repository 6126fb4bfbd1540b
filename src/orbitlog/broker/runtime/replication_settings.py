"""Settings of replication, under the names of Java's `broker.conf`; keys of Orbitlog itself are marked as such."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbitlog.formats.java import INT_MAX
from orbitlog.settings.setting import AdvisedText, Setting, SettingError, number_between, parse_truth

if TYPE_CHECKING:
    from orbitlog.broker.runtime.broker_settings import BrokerSettings
    from orbitlog.replication.slave_hub import Network

_MIB = 1024 * 1024
_COPIES_MAX = 32
_ENDPOINT = re.compile(r"https?://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}/?")
SLAVE = "SLAVE"


def _role(text: str) -> str:
    if text not in ("ASYNC_MASTER", "SYNC_MASTER", SLAVE):
        raise ValueError("is not one of ASYNC_MASTER, SYNC_MASTER, SLAVE")
    return text


def _ha_address(text: str) -> str:
    host, separator, port = text.rpartition(":")
    if text and not (host and separator and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError("is not host:port")
    return text


def _first_request(text: str) -> str:
    if text not in ("first", "last"):
        raise ValueError("is not one of first, last")
    return text


def _members(text: str) -> tuple[Network, ...]:
    networks = []
    for part in text.replace(";", ",").split(","):
        if not part.strip():
            continue
        try:
            networks.append(ipaddress.ip_network(part.strip()))
        except ValueError:
            raise ValueError(f"contains {part.strip()!r}, which is neither an IP address nor a network") from None
    return tuple(networks)


def _truth_or_nothing(text: str) -> str:
    return str(parse_truth(text)).lower() if text else ""


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    for address in addresses:
        host, separator, port = address.rpartition(":")
        if not (host and separator and port.isdecimal() and 0 < int(port[:6]) < 65536):
            raise ValueError(f"contains {address!r}, which is not host:port")
    return addresses


def _coordinator(text: str) -> str:
    endpoints = text.removeprefix("etcd:").split(",")
    if text and (not text.startswith("etcd:") or not all(map(_ENDPOINT.fullmatch, endpoints))):
        raise ValueError("is not etcd:http://host:port or etcd:https://host:port, with further endpoints after commas")
    return text


BROKER_ROLE = Setting(
    "brokerRole",
    _role,
    "ASYNC_MASTER",
    "`SYNC_MASTER` acknowledges a send when a slave has it; `SLAVE` copies a master, and needs a `brokerId` above 0"
    " ([replication](../replication.md))",
)
HA_PORT = Setting("haListenPort", number_between(0, 65535), 0, "port for slaves; 0 takes listenPort+1, or a free one")
HA_ADDRESS = Setting(
    "brokerIP2", str, "", "address that slaves connect to; without it, the one that clients connect to"
)
HA_MEMBERS: Setting[tuple[Network, ...]] = Setting(
    "haMembers",
    _members,
    (),
    "addresses or networks of slaves that may connect, separated by commas; without it, those of this machine while the"
    " broker listens on loopback (Orbitlog's own key)",
)
HA_HEARTBEAT_MS = Setting(
    "haSendHeartbeatInterval", number_between(100, 600_000), 5_000, "ms without a transfer before a heartbeat"
)
HA_SILENCE_MS = Setting(
    "haHousekeepingInterval", number_between(1_000, 600_000), 20_000, "ms of silence before a slave is disconnected"
)
HA_TRANSFER_BYTES = Setting(
    "haTransferBatchSize", number_between(1024, _MIB), 256 * 1024, "maximum bytes of one transfer to a slave"
)
HA_LAG_BYTES = Setting(
    "haSlaveFallbehindMax",
    number_between(1),
    256 * _MIB,
    "bytes of lag from which a SYNC_MASTER does not wait for a slave",
)
HA_LAG_BYTES_5X = Setting("haMaxGapNotInSync", number_between(1), 256 * _MIB, "the same, under the name of 5.x")
SLAVE_TIMEOUT_MS = Setting("slaveTimeout", number_between(1, 600_000), 3_000, "ms that a send waits for its slaves")
IN_SYNC_REPLICAS = Setting(
    "inSyncReplicas",
    number_between(0, _COPIES_MAX),
    1,
    "copies, the master's included, before a SYNC_MASTER acknowledges; less than 2 counts as 2",
)
SYNC_ALONE = Setting(
    "haCompatSyncDefault",
    parse_truth,
    False,
    "with inSyncReplicas below 2 a SYNC_MASTER acknowledges without a slave, as 5.x does (Orbitlog's own key)",
)
FIRST_REQUEST = Setting(
    "haFirstRequest",
    _first_request,
    "first",
    "segment from which a slave with an empty store is served, and from which one asks a master for its log; Apache's"
    " brokers serve the last (Orbitlog's own key)",
)
FLOW_CONTROL = Setting("haFlowControlEnable", parse_truth, False, "limit the bytes per second that each slave is sent")
FLOW_BYTES = Setting(
    "maxHaTransferByteInSecond",
    number_between(64 * 1024),
    100 * _MIB,
    "bytes per second that each slave is sent at most, with haFlowControlEnable",
)
MASTER_HA_ADDRESS = Setting(
    "haMasterAddress",
    _ha_address,
    "",
    "HA address of the master that a slave follows, `host:port`; without it, the one that the name server knows",
)
OBSERVER = Setting(
    "haObserver",
    parse_truth,
    False,
    "a slave acknowledges nothing, so that a SYNC_MASTER does not count it as a copy (Orbitlog's own key)",
)
TABLE_SYNC_MS = Setting(
    "syncBrokerMetadataPeriod",
    number_between(500, 600_000),
    5_000,
    "ms between copies of the master's topics, groups and offsets by a slave, and between reads of the group's state"
    " from Apache's controller",
)
SLAVE_READ = Setting(
    "slaveReadEnable",
    parse_truth,
    False,
    "suggest to consumers with a large lag that they read from a slave",
)
OFFSET_CHECK_IN_SLAVE = Setting(
    "offsetCheckInSlave",
    parse_truth,
    False,
    "a slave moves consumers whose offset it does not have; without it they wait until it has",
)

COORDINATOR = Setting(
    "replicaCoordinator",
    _coordinator,
    "",
    "etcd that elects the master of this `brokerName`, `etcd:http://host:port,...`; without it roles are fixed:"
    " [failover](../replication.md#how-does-automatic-failover-work) (Orbitlog's own key)",
)
MEMBER_ID = Setting(
    "replicaMemberId",
    number_between(0, INT_MAX),
    0,
    "number of this member of a replica group, from 1 on; its `brokerId` while it is a slave (Orbitlog's own key)",
)
MIN_IN_SYNC = Setting(
    "replicaMinInSync",
    number_between(1, _COPIES_MAX),
    1,
    "members of a replica group, the master included, without which sends are refused (Orbitlog's own key)",
)
PATIENCE_MS = Setting(
    "replicaPatience",
    number_between(500, 600_000),
    5_000,
    "ms after which a master removes a member that lacks messages from the in-sync set (Orbitlog's own key)",
)
LEASE_MS = Setting(
    "replicaLease",
    number_between(2_000, 60_000),
    3_000,
    "ms without a renewal after which a member counts as failed, whole seconds at etcd (Orbitlog's own key)",
)
COORDINATOR_USER = Setting("replicaCoordinatorUser", str, "", "user of etcd (Orbitlog's own key)")
COORDINATOR_PASSWORD = Setting(
    "replicaCoordinatorPassword", str, "", "password of the user of etcd (Orbitlog's own key)"
)
COORDINATOR_CA = Setting(
    "replicaCoordinatorCaFile",
    str,
    "",
    "certificates that verify an https etcd; without it those of the system (Orbitlog's own key)",
)
COORDINATOR_CERTIFICATE = Setting(
    "replicaCoordinatorCertFile", str, "", "client certificate for etcd (Orbitlog's own key)"
)
COORDINATOR_KEY = Setting(
    "replicaCoordinatorKeyFile", str, "", "private key of the client certificate for etcd (Orbitlog's own key)"
)

CONTROLLER_MODE = Setting(
    "enableControllerMode",
    parse_truth,
    False,
    "be a member of a group whose master Apache's controller elects:"
    " [controller mode](../replication.md#how-does-a-broker-join-a-group-of-apaches-controller)",
)
CONTROLLER_ADDRESSES: Setting[Sequence[str]] = Setting(
    "controllerAddr", _addresses, (), "controllers of that group, `host:port;host:port`"
)
CONTROLLER_TIMEOUT_MS = Setting(
    "controllerHeartBeatTimeoutMills",
    number_between(2_000, 600_000),
    10_000,
    "ms without a heartbeat after which the controller elects another master; one is sent each second",
)
ELECTION_PRIORITY = Setting(
    "brokerElectionPriority",
    number_between(0),
    INT_MAX,
    "of members with equally long logs the controller elects the one with the lowest number",
)
ALL_ACKNOWLEDGE = Setting(
    "allAckInSyncStateSet",
    _truth_or_nothing,
    "",
    "with a controller, a send waits for every in-sync member, unless it is set to `false` with inSyncReplicas=1: then"
    " it waits for none. Java's default is `false`",
)
MIN_IN_SYNC_CONTROLLED = Setting(
    "minInSyncReplicas",
    number_between(0, _COPIES_MAX),
    0,
    "with a controller, members without which sends are refused; 0 means 2 in a group of several. Java's default is 1",
)
AUTO_IN_SYNC = Setting(
    "enableAutoInSyncReplicas",
    parse_truth,
    False,
    "with a controller and allAckInSyncStateSet=false, accept sends although fewer than inSyncReplicas are in sync",
)
CATCH_UP_MS = Setting(
    "haMaxTimeSlaveNotCatchup",
    number_between(500, 600_000),
    15_000,
    "with a controller, ms after which a master removes a member that lacks messages from the in-sync set",
)
ASYNC_LEARNER = Setting(
    "asyncLearner", parse_truth, False, "with a controller, copy the log without ever joining the in-sync set"
)

REPLICATION_SETTINGS = (
    CONTROLLER_MODE,
    CONTROLLER_ADDRESSES,
    CONTROLLER_TIMEOUT_MS,
    ELECTION_PRIORITY,
    ALL_ACKNOWLEDGE,
    MIN_IN_SYNC_CONTROLLED,
    AUTO_IN_SYNC,
    CATCH_UP_MS,
    ASYNC_LEARNER,
    BROKER_ROLE,
    HA_PORT,
    HA_ADDRESS,
    HA_MEMBERS,
    HA_HEARTBEAT_MS,
    HA_SILENCE_MS,
    HA_TRANSFER_BYTES,
    HA_LAG_BYTES,
    HA_LAG_BYTES_5X,
    SLAVE_TIMEOUT_MS,
    IN_SYNC_REPLICAS,
    SYNC_ALONE,
    FIRST_REQUEST,
    FLOW_CONTROL,
    FLOW_BYTES,
    MASTER_HA_ADDRESS,
    OBSERVER,
    TABLE_SYNC_MS,
    SLAVE_READ,
    OFFSET_CHECK_IN_SLAVE,
    COORDINATOR,
    MEMBER_ID,
    MIN_IN_SYNC,
    PATIENCE_MS,
    LEASE_MS,
    COORDINATOR_USER,
    COORDINATOR_PASSWORD,
    COORDINATOR_CA,
    COORDINATOR_CERTIFICATE,
    COORDINATOR_KEY,
)


def check_without_group(settings: BrokerSettings) -> None:
    """Raise a `SettingError` for promises that only a group of a controller keeps."""
    if settings[MIN_IN_SYNC_CONTROLLED] > 1:
        problem = (
            f"{MIN_IN_SYNC_CONTROLLED.key}={settings[MIN_IN_SYNC_CONTROLLED]} needs enableControllerMode=true: without"
            " a controller sends are not refused while fewer replicas are in sync"
        )
        advice = "set minInSyncReplicas=1, and inSyncReplicas to the number of copies that a send waits for"
        raise SettingError(AdvisedText(problem, advice), key=MIN_IN_SYNC_CONTROLLED.key)
    if settings[ALL_ACKNOWLEDGE] == "true":
        problem = (
            f"{ALL_ACKNOWLEDGE.key}=true needs enableControllerMode=true: without a controller sends do not wait for"
            " every replica in sync"
        )
        advice = "set allAckInSyncStateSet=false, and inSyncReplicas to the number of copies that a send waits for"
        raise SettingError(AdvisedText(problem, advice), key=ALL_ACKNOWLEDGE.key)
