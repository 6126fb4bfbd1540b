"""Hosts and ports as text."""

from __future__ import annotations

import pytest

from orbitlog.settings.listen_exposure import host_in_url, is_ip_address, join_address, reachable_host


@pytest.mark.parametrize(
    ("host", "is_address"),
    [("127.0.0.1", True), ("::1", True), ("localhost", False), ("", False), ("[::1]", False), ("1.2.3", False)],
)
def test_host_name_is_not_an_address(host: str, is_address: bool) -> None:
    assert is_ip_address(host) is is_address


@pytest.mark.parametrize(
    ("host", "joined"),
    [("127.0.0.1", "127.0.0.1:9"), ("::1", "[::1]:9"), ("[::1]", "[::1]:9"), ("broker-1", "broker-1:9")],
)
def test_ipv6_host_is_joined_in_brackets_once(host: str, joined: str) -> None:
    assert join_address(host, 9) == joined
    assert joined.startswith(host_in_url(host))


def test_server_on_all_interfaces_is_reached_at_loopback() -> None:
    assert [reachable_host(host) for host in ("0.0.0.0", "", "::", "10.0.0.1")] == [
        *("127.0.0.1", "127.0.0.1", "::1", "10.0.0.1"),
    ]
