"""Group options: addresses whose connections to the HA port of a replica group are served."""

from __future__ import annotations

import ipaddress

import pytest

from orbitlog.broker.replicas.group_options import (
    check_group_settings,
    driver_limits,
    member_networks,
    open_group_coordinator,
)
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.replication.slave_hub import LOOPBACK
from orbitlog.settings.setting import SettingError

GROUP = {"replicaCoordinator": "etcd:http://127.0.0.1:2379", "replicaMemberId": "1"}
USERS = {"authenticationEnabled": "true"}
ACCOUNTS = {"aclEnable": "true"}


def test_member_on_loopback_serves_local_members_without_a_list() -> None:
    settings = BrokerSettings(GROUP)
    check_group_settings(settings)
    assert member_networks(settings) == LOOPBACK


@pytest.mark.parametrize("access", [USERS, ACCOUNTS])
def test_member_with_access_control_serves_listed_members_only(access: dict[str, str]) -> None:
    with pytest.raises(SettingError, match="with access control needs haMembers"):
        check_group_settings(BrokerSettings({**GROUP, **access}))
    assert member_networks(BrokerSettings({**GROUP, **access})) == ()
    listed = BrokerSettings({**GROUP, **access, "haMembers": "127.0.0.2"})
    check_group_settings(listed)
    assert member_networks(listed) == (ipaddress.ip_network("127.0.0.2/32"),)


@pytest.mark.parametrize("lease_ms", ["2000", "2500", "3000", "60000"])
def test_member_counts_its_lease_as_ended_before_the_coordinator_does(lease_ms: str) -> None:
    """And a renewal that fails is repeated before."""
    settings = BrokerSettings({**GROUP, "replicaLease": lease_ms})
    limits = driver_limits(settings, lambda: None)
    coordinator = open_group_coordinator(settings, 1)
    assert limits.lease_s - limits.lease_margin_s < limits.lease_s <= coordinator.lease_s
    assert limits.renew_s + limits.retry_s < limits.lease_s - limits.lease_margin_s
