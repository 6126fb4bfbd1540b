"""Group options: settings of a broker as limits of its replica group, and combinations that are refused."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable

from orbitlog.access.access_settings import ACL_ENABLE, AUTHENTICATION
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime import replication_settings as ha_keys
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.replication.group.coordinator import open_coordinator
from orbitlog.replication.group.etcd_coordinator import EtcdCoordinator
from orbitlog.replication.group.etcd_gateway import EtcdAccess
from orbitlog.replication.group.member_context import GroupLimits
from orbitlog.replication.group.member_driver import DriverLimits
from orbitlog.replication.slave_hub import LOOPBACK, Network
from orbitlog.settings.limits import HA_CONNECTIONS
from orbitlog.settings.listen_exposure import host_in_url
from orbitlog.settings.setting import AdvisedText, SettingError

_POLL_S = 0.5
_REDIAL_S = 0.3
_CONTROLLED_PAUSE_S = 1.0
_ASYNC = "ASYNC_MASTER"


def check_member_settings(settings: BrokerSettings) -> None:
    """Raise a `SettingError` for settings that a member of a group with either kind of coordinator cannot have."""
    if settings[ha_keys.CONTROLLER_MODE]:
        _check_controlled(settings)
    else:
        check_group_settings(settings)


def _check_controlled(settings: BrokerSettings) -> None:
    """Raise a `SettingError` for settings of a group of Apache's controller. Role and id of the file have no effect."""
    key = ha_keys.CONTROLLER_MODE.key
    if settings[ha_keys.COORDINATOR]:
        raise SettingError(f"{key}=true cannot be set with replicaCoordinator: a group has one or the other", key=key)
    if not settings[ha_keys.CONTROLLER_ADDRESSES]:
        raise SettingError(
            f"{key}=true needs controllerAddr, the controllers of the group: host:port;host:port", key=key
        )
    if settings[ha_keys.MASTER_HA_ADDRESS]:
        sentence = f"haMasterAddress cannot be set with {key}=true: the controller names the master"
        raise SettingError(sentence, key=ha_keys.MASTER_HA_ADDRESS.key)
    if settings[keys.DISPATCH_ENGINE] != "inline":
        sentence = AdvisedText(f"dispatchEngine=spark is not supported with {key}=true", "remove one of them")
        raise SettingError(sentence, key=keys.DISPATCH_ENGINE.key)
    _check_reachable(settings, f"{key}=true")


def check_group_settings(settings: BrokerSettings) -> None:
    """Raise a `SettingError` for settings that a member of a replica group cannot have."""
    if not settings[ha_keys.MEMBER_ID]:
        raise SettingError(
            "replicaCoordinator needs replicaMemberId, a number from 1 on that no other member of the group has",
            key=ha_keys.COORDINATOR.key,
        )
    for setting, reason in (
        (ha_keys.MASTER_HA_ADDRESS, "the coordinator names the master"),
        (keys.BROKER_ID, AdvisedText("the coordinator gives the role", "set replicaMemberId instead")),
    ):
        if settings.texts.get(setting.key) not in (None, "", "0"):
            sentence = AdvisedText.of(reason).after(f"{setting.key} cannot be set with replicaCoordinator: ")
            raise SettingError(sentence, key=setting.key)
    if settings[ha_keys.BROKER_ROLE] == ha_keys.SLAVE:
        problem = "brokerRole=SLAVE cannot be set with replicaCoordinator, which gives the role"
        advice = "set SYNC_MASTER (sends wait for the in-sync members) or ASYNC_MASTER (they do not)"
        raise SettingError(AdvisedText(problem, advice), key=ha_keys.BROKER_ROLE.key)
    _check_reachable(settings, "replicaCoordinator")
    _tls(settings)


def _check_reachable(settings: BrokerSettings, name: str) -> None:
    """Raise a `SettingError` unless other members can connect, and no one else."""
    bound = ipaddress.ip_address(settings[keys.BIND_ADDRESS] or "0.0.0.0")  # noqa: S104 - compared, not bound
    if bound.is_unspecified and not (settings[ha_keys.HA_ADDRESS] or settings[keys.ADVERTISED_ADDRESS]):
        raise SettingError(
            f"{name} with bindAddress=0.0.0.0 needs brokerIP1, the address that other members connect to",
            key=keys.ADVERTISED_ADDRESS.key,
        )
    if not bound.is_loopback and not settings[ha_keys.HA_MEMBERS]:
        raise SettingError(
            f"{name} on an address other than loopback needs haMembers, the addresses of the other members",
            key=ha_keys.HA_MEMBERS.key,
        )
    if is_access_controlled(settings) and not settings[ha_keys.HA_MEMBERS]:
        raise SettingError(
            f"{name} with access control needs haMembers, the addresses of the other members: the HA port has no"
            " credentials; haMembers=127.0.0.1 serves every process of this machine",
            key=ha_keys.HA_MEMBERS.key,
        )


def is_access_controlled(settings: BrokerSettings) -> bool:
    """Return whether clients need credentials: then no address is a member unless `haMembers` lists it."""
    return settings[AUTHENTICATION] or settings[ACL_ENABLE]


def member_networks(settings: BrokerSettings) -> tuple[Network, ...]:
    """Return the networks whose connections to the HA port are served."""
    return settings[ha_keys.HA_MEMBERS] or (() if is_access_controlled(settings) else LOOPBACK)


def waits_for_slaves(settings: BrokerSettings) -> bool:
    """Return whether sends wait for the in-sync set: always, unless `brokerRole=ASYNC_MASTER` is set by name."""
    if settings[ha_keys.CONTROLLER_MODE]:
        return settings[ha_keys.ALL_ACKNOWLEDGE] != "false" or settings[ha_keys.IN_SYNC_REPLICAS] > 1
    return settings.texts.get(ha_keys.BROKER_ROLE.key) != _ASYNC


def ha_address(settings: BrokerSettings) -> str:
    """Return the host that other members connect to."""
    host = settings[ha_keys.HA_ADDRESS] or settings[keys.ADVERTISED_ADDRESS] or settings[keys.BIND_ADDRESS]
    return host_in_url(host)


def group_limits(settings: BrokerSettings) -> GroupLimits:
    """Return the limits of the member's state machine."""
    return GroupLimits(
        min_in_sync=settings[ha_keys.MIN_IN_SYNC],
        patience_s=settings[ha_keys.PATIENCE_MS] / 1000,
        redial_s=_REDIAL_S,
        poll_s=_POLL_S,
        acks_alone=not waits_for_slaves(settings),
        copies_tables=True,
    )


def controlled_limits(settings: BrokerSettings) -> GroupLimits:
    """Return the limits of a member of a controller's group; `min_in_sync` 0 is two in a group of several."""
    wanted = settings[ha_keys.MIN_IN_SYNC_CONTROLLED]
    if settings[ha_keys.ALL_ACKNOWLEDGE] == "false":
        is_fixed = not settings[ha_keys.AUTO_IN_SYNC]
        wanted = max(wanted, settings[ha_keys.IN_SYNC_REPLICAS] if is_fixed else 0, 1)
    return GroupLimits(
        min_in_sync=wanted,
        patience_s=settings[ha_keys.CATCH_UP_MS] / 1000,
        redial_s=_CONTROLLED_PAUSE_S,
        poll_s=settings[ha_keys.TABLE_SYNC_MS] / 1000,
        acks_alone=not waits_for_slaves(settings),
        is_observer=settings[ha_keys.ASYNC_LEARNER],
        retry_s=_CONTROLLED_PAUSE_S,
    )


def driver_limits(settings: BrokerSettings, on_full: Callable[[], None]) -> DriverLimits:
    """Return times, sizes and number of the member's connections; `on_full` is called for each one too many."""
    if settings[ha_keys.CONTROLLER_MODE]:
        leases = (settings[ha_keys.CONTROLLER_TIMEOUT_MS] / 1000, 1.0, 1.0, 0.5)
    else:
        leases = _lease_times(settings[ha_keys.LEASE_MS] / 1000)
    return DriverLimits(
        *leases,
        heartbeat_s=settings[ha_keys.HA_HEARTBEAT_MS] / 1000,
        silence_s=settings[ha_keys.HA_SILENCE_MS] / 1000,
        transfer_bytes=settings[ha_keys.HA_TRANSFER_BYTES],
        connections_max=settings[HA_CONNECTIONS],
        on_full=on_full,
    )


def _lease_times(lease_s: float) -> tuple[float, float, float, float]:
    """Return duration and margin of a lease, and the pauses after a renewal, and after one that failed."""
    return lease_s, lease_s / 6, lease_s / 3, lease_s / 12


def open_group_coordinator(settings: BrokerSettings, member_id: int) -> EtcdCoordinator:
    """Return one member's access to the coordinator; member 0 only reads."""
    access = EtcdAccess(settings[ha_keys.COORDINATOR_USER], settings[ha_keys.COORDINATOR_PASSWORD], _tls(settings))
    cluster, name = settings[keys.CLUSTER_NAME], settings[keys.BROKER_NAME]
    lease_s = -(-settings[ha_keys.LEASE_MS] // 1000)
    return open_coordinator(settings[ha_keys.COORDINATOR], cluster, name, member_id, access, lease_s=lease_s)


def _tls(settings: BrokerSettings) -> ssl.SSLContext | None:
    """Return TLS of connections to etcd; None if no endpoint uses it."""
    if "https://" not in settings[ha_keys.COORDINATOR]:
        return None
    certificate, key = settings[ha_keys.COORDINATOR_CERTIFICATE], settings[ha_keys.COORDINATOR_KEY]
    try:
        context = ssl.create_default_context(cafile=settings[ha_keys.COORDINATOR_CA] or None)
        if certificate:
            context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingError(f"could not load certificates for etcd (replicaCoordinatorCaFile, ...): {error}") from None
    return context
