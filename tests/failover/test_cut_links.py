"""Replica groups whose links are cut, in each direction: between members, and to etcd; `make failover` runs it.

A cut link discards bytes and closes nothing, as a broken network does. Each member has proxies of its own, to its ports
and to each etcd server.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.etcd_servers import EtcdServers
from tests.support.free_ports import free_port
from tests.support.link_proxy import LinkProxy, ProxyThread
from tests.support.replica_group import GroupLedger, ReplicaGroup, check_ledger

pytestmark = [
    pytest.mark.skipif(
        not int(os.environ.get("ORBITLOG_FAILOVER_MESSAGES", "0")), reason="takes minutes: `make failover` runs it"
    ),
    pytest.mark.xdist_group("etcd"),
]

LOOPBACK = "127.0.0.1"
CUT_SECONDS = 9
ROUND_MESSAGES = 200


class ProxiedGroup(ReplicaGroup):
    """A group whose members reach each other, and etcd, through proxies."""

    def __init__(self, directory: Path, etcd: EtcdServers, thread: ProxyThread, *settings: str) -> None:
        self._thread = thread
        self._etcd = etcd
        self.to_member: dict[int, list[LinkProxy]] = {}
        self.to_etcd: dict[int, list[LinkProxy]] = {}
        super().__init__(directory, etcd, 3, *settings)

    def member_settings(self, member: int) -> tuple[str, ...]:
        """Publish an address of proxies, and use proxies of etcd."""
        host = f"127.0.0.{100 + member}"
        if member not in self.to_member:
            self.to_member[member] = [
                LinkProxy(self._thread, (host, port), (LOOPBACK, port)) for port in self.ports[member]
            ]
            self.to_etcd[member] = [
                LinkProxy(self._thread, (LOOPBACK, free_port()), (LOOPBACK, urlsplit(endpoint).port or 0))
                for endpoint in self._etcd.endpoints
            ]
        endpoints = ",".join(f"http://{LOOPBACK}:{proxy.port}" for proxy in self.to_etcd[member])
        return (f"brokerIP2={host}", f"replicaCoordinator=etcd:{endpoints}")

    def links(self, *members: int) -> list[LinkProxy]:
        return [proxy for member in members for proxy in self.to_member[member]]

    def heal(self) -> None:
        for proxies in (*self.to_member.values(), *self.to_etcd.values()):
            for proxy in proxies:
                proxy.heal()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ProxiedGroup]:
    directory = tmp_path / "etcd"
    directory.mkdir()
    with ExitStack() as stack:
        thread = ProxyThread()
        stack.callback(thread.close)
        etcd = EtcdServers(directory, 3)
        stack.callback(etcd.close)
        group = ProxiedGroup(tmp_path, etcd, thread)
        stack.callback(group.close)
        yield group


def roles(group: ProxiedGroup) -> tuple[int, list[int]]:
    master = group.master
    return master, [member for member in group.members if member != master]


def bytes_to_a_slave_are_lost(group: ProxiedGroup) -> None:
    """The slave dials its master, so its requests go to the master's proxies; the answers are the log."""
    master, _ = roles(group)
    for proxy in group.links(master):
        proxy.cut(requests=False)
    group.wait_for(lambda state: state.in_sync == {master})


def reports_of_slaves_are_lost(group: ProxiedGroup) -> None:
    master, _ = roles(group)
    for proxy in group.links(master):
        proxy.cut(answers=False)
    group.wait_for(lambda state: state.in_sync == {master})


def master_is_cut_off_from_etcd(group: ProxiedGroup) -> None:
    master, _ = roles(group)
    for proxy in group.to_etcd[master]:
        proxy.cut()
    group.wait_for(lambda state: state.master != master)


def answers_of_etcd_to_the_master_are_lost(group: ProxiedGroup) -> None:
    """The master's lease is renewed, but it does not learn so; its proposals take effect unanswered."""
    master, slaves = roles(group)
    for proxy in group.to_etcd[master]:
        proxy.cut(requests=False)
    group.kill(slaves[0])
    group.wait_for(lambda state: slaves[0] not in state.in_sync or state.master != master)
    time.sleep(CUT_SECONDS)
    group.start(slaves[0])


def answers_of_etcd_to_all_are_lost(group: ProxiedGroup) -> None:
    for proxies in group.to_etcd.values():
        for proxy in proxies:
            proxy.cut(requests=False)
    time.sleep(CUT_SECONDS)


def requests_to_etcd_are_lost_and_the_master_is_killed(group: ProxiedGroup) -> None:
    """No member can be elected until the links are back."""
    master, _ = roles(group)
    for proxies in group.to_etcd.values():
        for proxy in proxies:
            proxy.cut(answers=False)
    group.kill(master)
    time.sleep(CUT_SECONDS)
    group.start(master)


def master_is_cut_off_from_all(group: ProxiedGroup) -> None:
    master, _ = roles(group)
    for proxy in (*group.links(*group.members), *group.to_etcd[master]):
        proxy.cut()
    group.wait_for(lambda state: state.master != master)


def answers_of_etcd_to_a_candidate_are_lost(group: ProxiedGroup) -> None:
    """The election takes effect, but the elected member does not learn so at first."""
    master, slaves = roles(group)
    for slave in slaves:
        for proxy in group.to_etcd[slave]:
            proxy.cut(requests=False)
    group.kill(master)
    time.sleep(CUT_SECONDS)
    group.start(master)


FAULTS: tuple[Callable[[ProxiedGroup], None], ...] = (
    bytes_to_a_slave_are_lost,
    reports_of_slaves_are_lost,
    master_is_cut_off_from_etcd,
    answers_of_etcd_to_the_master_are_lost,
    answers_of_etcd_to_all_are_lost,
    requests_to_etcd_are_lost_and_the_master_is_killed,
    master_is_cut_off_from_all,
    answers_of_etcd_to_a_candidate_are_lost,
)


def test_no_acknowledged_message_is_lost_over_cut_links(group: ProxiedGroup) -> None:
    ledger = GroupLedger(group, producers=8)

    def script(ledger: GroupLedger) -> None:
        for fault in FAULTS:
            group.wait_for(lambda state: len(state.in_sync) == 3)
            ledger.wait_for(ROUND_MESSAGES)
            acknowledged = len(ledger.acknowledged)
            fault(group)
            during = len(ledger.acknowledged) - acknowledged
            group.heal()
            started_s = time.monotonic()
            ledger.wait_for(ROUND_MESSAGES)
            print(f"{fault.__name__}: {during} acknowledged; the next {ROUND_MESSAGES} in", end=" ")
            print(f"{time.monotonic() - started_s:.1f} s")
        group.wait_for(lambda state: len(state.in_sync) == 3)

    asyncio.run(ledger.run(script))
    check_ledger(group, ledger)
    print(f"{len(ledger.acknowledged)} acknowledged, {len(ledger.failures)} failed sends, 0 lost (cut links)")
