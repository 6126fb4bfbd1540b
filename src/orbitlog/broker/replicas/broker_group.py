"""Broker group: what a broker that is a member of a replica group takes from it instead of its own roles."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from orbitlog.broker.replicas.handle_replicas import CONTROLLED_CODES, REPLICA_CODES
from orbitlog.broker.replicas.table_barrier import TableBarrier
from orbitlog.broker.runtime.background_loops import BackgroundLoops
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.lazy_handlers import LazyHandlers
from orbitlog.broker.runtime.master_role import MasterRole
from orbitlog.broker.slave.slave_requests import RESETS, TABLE_CHANGES
from orbitlog.broker.slave.slave_role import SlaveRole
from orbitlog.broker.slave.table_sync import TableSync
from orbitlog.errors import RemotingError, RequestRefused
from orbitlog.formats.java import LONG_MAX
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Handler
from orbitlog.replication.group.member_driver import MemberDriver
from orbitlog.replication.master_link import LinkStatus
from orbitlog.replication.slave_hub import SlaveStatus
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.nameserver_headers import RegisterBrokerResponse
from orbitlog.wire.replication.group_headers import TablesRequest, TablesResponse

log = logging.getLogger(__name__)

# The master holds a request this long if no table has changed; progress changes all the time, and is copied then.
_HOLD_MS = 1_000
_PAUSE_S = 0.2
_ASK_S = 5.0  # longer than the hold
_CONFIRM_PAUSE_S = 0.02
_CONFIRM_TRIES = 500


class GroupAcks:
    """The mark that sends of a group's master wait for: the confirm offset of the group.

    Without `waits_for_slaves` a send is acknowledged when this master has it, but only while no other member can see
    its lease end: afterwards another master may have been elected, and would not have the message.
    """

    def __init__(self, *, waits_for_slaves: bool, holds_lease: Callable[[float], bool]) -> None:
        self.waits_for_slaves = waits_for_slaves
        self._holds_lease = holds_lease
        self.confirmed_to = 0

    @property
    def replicated_to(self) -> int:
        """Offset up to which sends are acknowledged."""
        if not self.waits_for_slaves and self._holds_lease(asyncio.get_running_loop().time()):
            return LONG_MAX
        return self.confirmed_to

    def has_enough_slaves(self, _: int) -> bool:
        """Return that a send may wait: sends are refused before they are stored if the in-sync set is too small."""
        return True


class GroupPort(MasterRole):
    """The HA port of a group member, as a broker sees it: the group owns the listener and outlives the role."""

    is_in_group = True

    def __init__(
        self,
        state: BrokerState,
        port: int,
        driver: MemberDriver | None,
        replicate_tables: Callable[[], asyncio.Future[None]] | None = None,
    ) -> None:
        super().__init__(state, None, _nothing, admits_local=False)
        self.port = port
        self._driver = driver
        self._replicate_tables = replicate_tables
        if driver is not None:
            self.appended = driver.appended

    def replicate_tables(self) -> asyncio.Future[None] | None:
        """Replicate a topic that a send has created, if sends wait for slaves."""
        return None if self._replicate_tables is None else self._replicate_tables()

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


class _CopiedTerm(NamedTuple):
    """A master and its epoch; changes of tables are numbered in one epoch."""

    address: str
    epoch: int


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
        self._term = _CopiedTerm("", 0)
        self._saved_number = 0

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
        """Copy the master's tables when they change, and its progress each second."""
        loops.run("copy of the master's tables", self._follow_tables)

    async def _follow_tables(self) -> None:
        """Copy the tables of the master once, after a change or a second."""
        self.master_address = self._find_master()
        following = self._driver.member.following
        if not self.master_address or following is None:
            await asyncio.sleep(_PAUSE_S)
            return
        term = _CopiedTerm(self.master_address, following.epoch)
        if term != self._term:
            # Each term counts its changes from the start: a number of an earlier one would claim a change not copied.
            self._term, self._saved_number = term, 0
        try:
            await self._copy_changed(term)
        except (RemotingError, RequestRefused) as error:
            self._report_failure(term.address, error)
            await asyncio.sleep(_PAUSE_S)
        else:
            self._reported = ""

    async def _copy_changed(self, term: _CopiedTerm) -> None:
        """Copy definitions, then progress once this log has what it refers to.

        Progress is read before the end of the master's log. Up to that end the log must be confirmed here: a delivered
        message that this member lacks, or that another master could cut, would otherwise count as delivered.
        """
        number = (await self._ask_tables(term, _HOLD_MS)).number
        await self._tables.copy_definitions(term.address)
        progress = await self._tables.fetch_progress(term.address)
        log_end = (await self._ask_tables(term, 0)).log_end
        for _ in range(_CONFIRM_TRIES):
            following = self._driver.member.following
            if following is None or following.epoch != term.epoch or self._find_master() != term.address:
                return  # the progress is of a master that is followed no longer
            if self._driver.member.log.confirmed_to >= log_end:
                break
            await asyncio.sleep(_CONFIRM_PAUSE_S)
        else:
            return
        await self._tables.take_progress(progress)
        if number != self._saved_number:
            # Stated to the master only after it is on disk: the master answers its client when all have stated it.
            await self._tables.save_all()
            self._saved_number = number

    async def _ask_tables(self, term: _CopiedTerm, wait_ms: int) -> TablesResponse:
        header = TablesRequest(
            member_id=self._driver.member.context.member_id,
            epoch=term.epoch,
            saved_number=self._saved_number,
            wait_ms=wait_ms,
        )
        request = Command(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, ext_fields=header.to_ext_fields())
        answer = await self._client.invoke(term.address, request, _ASK_S)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or f"code {answer.code}")
        return TablesResponse.from_ext_fields(answer.ext_fields)

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
    barrier: TableBarrier
    is_controlled: bool = False
    """Java's members copy tables by themselves: no request waits until they have a change."""

    def extended(self, table: Mapping[int, Handler], *, is_master: bool) -> dict[int, Handler]:
        """Return the handlers with those of requests about the group.

        A master answers a request that changes topics, groups or offsets when its in-sync members have the change.
        """
        codes = CONTROLLED_CODES if self.is_controlled else REPLICA_CODES
        extended = {**table, **LazyHandlers(codes, self.handlers).table}
        if not is_master or self.is_controlled:
            return extended
        return self.barrier.replicating(extended, (*TABLE_CHANGES, *RESETS))

    def make_port(self, state: BrokerState) -> GroupPort:
        """Return the HA port; only a master reports its appends to the group."""
        if state.settings.is_slave:
            return GroupPort(state, self.ha_port, None)
        waits = self.acks.waits_for_slaves and not self.is_controlled
        return GroupPort(state, self.ha_port, self.driver, self.barrier.begin if waits else None)

    def make_slave(self, state: BrokerState, client: RemotingClient, tables: TableSync) -> GroupSlave:
        """Return the role of a slave."""
        if self.is_controlled:
            from orbitlog.broker.replicas.controlled_slave import ControlledSlave

            return ControlledSlave(state, client, tables, self.master_address, self.driver)
        return GroupSlave(state, client, tables, self.master_address, self.driver)


def _nothing() -> None:
    pass
