"""Broker group: what a broker that is a member of a replica group takes from it instead of its own roles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from orbitlog.broker.replicas.handle_replicas import REPLICA_CODES
from orbitlog.broker.runtime.background_loops import BackgroundLoops
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.lazy_handlers import LazyHandlers
from orbitlog.broker.runtime.master_role import MasterRole
from orbitlog.broker.slave.slave_role import SlaveRole
from orbitlog.broker.slave.table_sync import TableSync
from orbitlog.formats.java import LONG_MAX
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Handler
from orbitlog.replication.group.member_driver import MemberDriver
from orbitlog.replication.master_link import LinkStatus
from orbitlog.replication.slave_hub import SlaveStatus
from orbitlog.wire.nameserver_headers import RegisterBrokerResponse

_COPY_TABLES_MS = 1_000
_SOON_MS = 200


class GroupAcks:
    """The mark that sends of a group's master wait for: the confirm offset of the group.

    Without `waits_for_slaves` a send is acknowledged when this master has it, but only while no other member can see
    its lease end: afterwards another master may have been elected, and would not have the message.
    """

    def __init__(self, *, waits_for_slaves: bool, holds_lease: Callable[[float], bool]) -> None:
        self._waits_for_slaves = waits_for_slaves
        self._holds_lease = holds_lease
        self.confirmed_to = 0

    @property
    def replicated_to(self) -> int:
        """Offset up to which sends are acknowledged."""
        if not self._waits_for_slaves and self._holds_lease(asyncio.get_running_loop().time()):
            return LONG_MAX
        return self.confirmed_to

    def has_enough_slaves(self, _: int) -> bool:
        """Return that a send may wait: sends are refused before they are stored if the in-sync set is too small."""
        return True


class GroupPort(MasterRole):
    """The HA port of a group member, as a broker sees it: the group owns the listener and outlives the role."""

    is_in_group = True

    def __init__(self, state: BrokerState, port: int, driver: MemberDriver | None) -> None:
        super().__init__(state, None, _nothing, admits_local=False)
        self.port = port
        self._driver = driver
        if driver is not None:
            self.appended = driver.appended

    @property
    def slaves(self) -> list[SlaveStatus]:
        """The slaves that follow this master."""
        leadership = None if self._driver is None else self._driver.member.leadership
        if leadership is None or self._driver is None:
            return []
        end = self._state.store.written_to
        return [
            SlaveStatus(link.peer, follower.sent_to, follower.acked_to, end - max(follower.acked_to, 0), 0)
            for number, follower in leadership.term.followers.items()
            if (link := self._driver.links.get(number)) is not None
        ]

    async def start(self) -> None:
        """Do nothing: the group listens already."""

    async def stop(self) -> None:
        """Do nothing: the group closes its connections."""


class GroupSlave(SlaveRole):
    """A slave whose log comes through its group; it copies only the tables of the master."""

    def __init__(
        self,
        state: BrokerState,
        client: RemotingClient,
        tables: TableSync,
        master: Callable[[], str],
        driver: MemberDriver,
    ) -> None:
        super().__init__(state, client, tables)
        self._find_master = master
        self._driver = driver

    @property
    def link(self) -> LinkStatus:
        """The connection to the master."""
        following = self._driver.member.following
        is_connected = following is not None and following.is_following
        problem = self._driver.member.reason or ("" if following is None else following.reason)
        links = [link for number, link in self._driver.links.items() if number < 0]
        if not links:
            return LinkStatus(self.master_address, is_connected=False, problem=problem)
        return LinkStatus(self.master_address, is_connected, links[0].read_s, links[0].written_s, problem=problem)

    def start(self, loops: BackgroundLoops) -> None:
        """Copy the master's tables each second: a failover loses the changes since the last copy."""
        loops.every(
            "copy of the master's tables",
            lambda: _COPY_TABLES_MS if self._copied_from == self._find_master() else _SOON_MS,
            self._copy_from_master,
        )

    async def _copy_from_master(self) -> None:
        self.master_address = self._find_master()
        await self._copy_tables()

    def found_master(self, answer: RegisterBrokerResponse) -> None:
        """Do nothing: the coordinator names the master."""


class BrokerGroup(NamedTuple):
    """The group of one broker, for the time of one role."""

    client: RemotingClient
    """Connections to name servers; they stay open when the role changes, so that the broker stays registered."""
    acks: GroupAcks
    ha_port: int
    driver: MemberDriver
    master_address: Callable[[], str]
    handlers: Callable[[], Mapping[int, Handler]]

    def table(self) -> dict[int, Handler]:
        """Return the handlers of requests about the group, as `LazyHandlers`."""
        return LazyHandlers(REPLICA_CODES, self.handlers).table

    def make_port(self, state: BrokerState) -> GroupPort:
        """Return the HA port; only a master reports its appends to the group."""
        return GroupPort(state, self.ha_port, None if state.settings.is_slave else self.driver)

    def make_slave(self, state: BrokerState, client: RemotingClient, tables: TableSync) -> GroupSlave:
        """Return the role of a slave."""
        return GroupSlave(state, client, tables, self.master_address, self.driver)


def _nothing() -> None:
    pass
