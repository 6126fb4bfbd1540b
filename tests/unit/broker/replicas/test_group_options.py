"""Group options: addresses whose connections to the HA port of a replica group are served."""

from __future__ import annotations

import ipaddress

import pytest

from orbitlog.broker.replicas.group_options import check_group_settings, member_networks
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
