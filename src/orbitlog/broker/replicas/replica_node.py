"""Replica node: one member of a replica group. Runs a broker over its store, and changes its role.

The log reaches the store through the group's HA connections, whatever the role. For a change of role the broker is
closed and built again over the same store in the same process: everything that a broker derives from its log and its
tables is derived as at a start. Meanwhile the member's events wait, and its lease is renewed.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import signal
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.broker.replicas.broker_group import BrokerGroup, GroupAcks
from orbitlog.broker.replicas.group_options import (
    driver_limits,
    group_limits,
    ha_address,
    member_networks,
    open_group_coordinator,
    waits_for_slaves,
)
from orbitlog.broker.replicas.handle_replicas import ReplicaHandlers
from orbitlog.broker.replicas.member_log import StoreLog
from orbitlog.broker.replicas.promotion import take_office
from orbitlog.broker.replicas.table_barrier import TableBarrier
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime import replication_settings as ha_keys
from orbitlog.broker.runtime.broker_node import Broker, make_client
from orbitlog.broker.runtime.broker_opening import OpenStore, open_broker_store
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.runtime.listen_address import with_listen_address
from orbitlog.errors import OrbitlogError
from orbitlog.formats import store_tree as tree
from orbitlog.observe.conditions import COORDINATOR_LOST, Conditions
from orbitlog.observe.metrics_settings import PROM_PORT
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Address
from orbitlog.replication.group.actions import RoleChanged
from orbitlog.replication.group.epoch_history import EpochHistory
from orbitlog.replication.group.group_member import GroupMember, Role
from orbitlog.replication.group.group_state import LiveMember
from orbitlog.replication.group.member_driver import DriverEvents, MemberDriver
from orbitlog.replication.group.member_files import MemberFiles
from orbitlog.replication.group.replica_log import ReplicaLog
from orbitlog.settings.limits import HA_CONNECTIONS
from orbitlog.store.dispatch.arrival import Progress
from orbitlog.storefiles.disk import RealDisk

if TYPE_CHECKING:
    from orbitlog.broker.metrics.broker_meters import BrokerMeters

log = logging.getLogger(__name__)

# Time between two looks at whether the group takes sends; one accepted in between is acknowledged only as `GroupAcks`
# allows.
_GATE_S = 0.1
_NOT_MASTER = "this broker is not the master of its replica group"


class ReplicaNode:
    """One member of a group. Use it as a `Broker`: `await start()`, `await stop()`."""

    def __init__(self, settings: BrokerSettings, root: Path, *, progress: Progress | None = None) -> None:
        self._settings = with_listen_address(settings)
        self.broker_name = settings[keys.BROKER_NAME]
        self.cluster_name = settings[keys.CLUSTER_NAME]
        self._root = root
        self._progress = progress
        self._member_id = self._settings[ha_keys.MEMBER_ID]
        self._disk = RealDisk()
        self._broker: Broker | None = None
        self._driver: MemberDriver | None = None
        self._log: StoreLog | None = None
        self._listener: asyncio.Server | None = None
        self._tables = TableBarrier(lambda: self.driver, _table_timeout_s(self._settings))
        self._acks = GroupAcks(waits_for_slaves=waits_for_slaves(settings), holds_lease=self._holds_lease)
        self._is_master = False
        """Whether the broker is built as a master."""
        self._switching: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._gate: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._ports: dict[str, str] = {}
        self._conditions = Conditions()  # of the brokers in all roles

    # What a server sees of a broker

    @property
    def broker(self) -> Broker:
        """The broker in its present role; the node must have been started."""
        assert self._broker is not None
        return self._broker

    @property
    def driver(self) -> MemberDriver:
        """The member of the group; the node must have been started."""
        assert self._driver is not None
        return self._driver

    @property
    def store_log(self) -> StoreLog:
        """The log of the member; the node must have been started."""
        assert self._log is not None
        return self._log

    @property
    def barrier(self) -> TableBarrier | None:
        """Changes of tables; None while this member does not serve as master."""
        return self._tables if self._is_master and self._switching is None else None

    @property
    def address(self) -> Address:
        """Host and port that the broker listens on."""
        return self.broker.address

    @property
    def meters(self) -> BrokerMeters | None:
        """Metrics and the address of their port; None if they are off."""
        return self.broker.meters

    async def start(self) -> None:
        """Open the store, listen for clients and members, and take the role that the coordinator gives.

        The broker starts fenced: it accepts no messages and is in no route until the coordinator has answered.
        """
        await self._identify()
        was_closed = self._disk.read_file(self._root / tree.ABORT) is None
        settings = self._settings.with_texts(
            {ha_keys.BROKER_ROLE.key: ha_keys.SLAVE, keys.BROKER_ID.key: str(self._member_id)}
        )
        opened = await asyncio.to_thread(open_broker_store, settings, self._root, progress=self._progress)
        files = self._make_files()
        self._log = StoreLog(opened.store, files)
        member = self._make_member(opened, files, was_closed=was_closed)
        events = DriverEvents(
            *(self._role_changed, self._confirmed, self._appended, self._turn_ended, self._describe, self.admits)
        )
        self._driver = driver = self._make_driver(member, self._log, events)
        await self._listen(driver)
        # Only confirmed bytes are dispatched, so those were confirmed before this start.
        self._acks.confirmed_to = opened.store.dispatched_to
        self._broker = self._build(settings, opened)
        self._broker.registration.is_fenced = True
        await self._broker.start()
        self._keep_ports()
        driver.start()
        self._watch_gate()

    def _note_full(self) -> None:
        if self._broker is not None:
            self._broker.state.limits.reach(HA_CONNECTIONS)

    # What depends on the kind of coordinator

    async def _identify(self) -> None:
        """Learn the id of this member."""

    def _make_files(self) -> MemberFiles:
        return MemberFiles(self._disk, self._root)

    def _new_member(self, replica_log: ReplicaLog, *, lost_bytes: bool, is_new: bool) -> GroupMember:
        limits = group_limits(self._settings)
        return GroupMember(self._member_id, limits, replica_log, lost_bytes=lost_bytes, is_new=is_new)

    def _make_driver(self, member: GroupMember, member_log: StoreLog, events: DriverEvents) -> MemberDriver:
        coordinator = open_group_coordinator(self._settings, self._member_id)
        return MemberDriver(member, member_log, coordinator, events, driver_limits(self._settings, self._note_full))

    def _make_group(self, client: RemotingClient) -> BrokerGroup:
        handlers = ReplicaHandlers(self)
        return BrokerGroup(
            *(client, self._acks, self._ha_port, self.driver, self._master_address, lambda: handlers.table),
            barrier=self._tables,
        )

    async def stop(self) -> None:
        """Close the broker, and leave the group so that the others can elect a master at once."""
        self._is_stopping = True
        if self._broker is None:
            if self._listener is not None:
                self._listener.close()
            return
        if self._gate is not None:
            self._gate.cancel()
        if self._switching is not None:
            # Two closings of one store would overlap; afterwards `broker` is the one of the new role.
            await asyncio.gather(self._switching, return_exceptions=True)
        if self._is_master:
            await self._confirm_rest()
        self.broker.fence("this broker is stopping")
        # Before the lease ends: a new master registers soon after.
        await self.broker.registration.unregister()
        # Before the store is closed, which syncs it: the others can elect a master meanwhile.
        await self.driver.close()
        if self._listener is not None:
            self._listener.close()
        await self.broker.stop()

    async def _confirm_rest(self) -> None:
        """Wait up to a second until the slaves have everything: what they lack would be given up at the next start.

        Nothing is appended any more; sends that are confirmed meanwhile are acknowledged.
        """
        self.broker.state.store.availability.fence("this broker is stopping")
        for _ in range(20):
            if self._acks.confirmed_to >= self.broker.state.store.written_to:
                return
            await asyncio.sleep(0.05)

    def _make_member(self, opened: OpenStore, files: MemberFiles, *, was_closed: bool) -> GroupMember:
        store = opened.store
        is_empty = store.written_to == store.min_physical_offset
        # Copies that count when they are flushed cannot be lost.
        acks_flushed = self._settings.flushes_before_answer
        has_lost = not acks_flushed and files.may_have_lost_bytes(was_closed=was_closed, is_empty=is_empty)
        is_new = files.is_new(is_empty=is_empty)
        if not (has_lost or is_new):
            files.note_boot()
        history = EpochHistory(files.read_epochs())
        replica_log = ReplicaLog(
            history, store.min_physical_offset, store.written_to, store.flushed_to, store.dispatched_to, acks_flushed
        )
        return self._new_member(replica_log, lost_bytes=has_lost, is_new=is_new)

    async def _listen(self, driver: MemberDriver) -> None:
        settings, host = self._settings, self._settings[keys.BIND_ADDRESS]
        port = settings[ha_keys.HA_PORT] or (settings[keys.LISTEN_PORT] + 1 if settings[keys.LISTEN_PORT] else 0)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = await asyncio.get_running_loop().create_server(
            driver.accept, host, port, reuse_address=True, family=family
        )

    @property
    def _ha_port(self) -> int:
        assert self._listener is not None
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    def _build(self, settings: BrokerSettings, opened: OpenStore) -> Broker:
        group = self._make_group(self._client(settings))
        return Broker(settings, self._root, opened=opened, group=group, conditions=self._conditions)

    def _client(self, settings: BrokerSettings) -> RemotingClient:
        return make_client(settings, self._root) if self._broker is None else self._broker.client

    def _keep_ports(self) -> None:
        """Keep the ports that the system chose: clients and members know them."""
        ports = {keys.LISTEN_PORT.key: str(self.address[1])}
        if self.meters is not None and self.meters.address is not None:
            ports[PROM_PORT.key] = str(self.meters.address[1])
        self._ports = ports

    # The group

    def _describe(self) -> LiveMember:
        host = ha_address(self._settings)
        return LiveMember(
            0,
            ha_address=f"{host}:{self._ha_port}",
            address=f"{host}:{self.address[1]}",
            epoch=self.driver.member.log.history.last_epoch,
            written_to=self.store_log.end,
        )

    def _holds_lease(self, now_s: float) -> bool:
        return self.driver.member.holds_lease(now_s)

    def _master_address(self) -> str:
        """Return the address of the master for requests; empty if this member follows none."""
        member = self.driver.member
        following = member.following
        if following is None or not following.is_following:
            return ""
        live = member.context.desk.live.get(following.master)
        return "" if live is None else live.address

    def admits(self, peer_ip: str) -> bool:
        """Return whether an address is that of a member."""
        address = ipaddress.ip_address(peer_ip.strip("[]"))
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        networks = member_networks(self._settings)
        if any(address.version == network.version and address in network for network in networks):
            return True
        log.warning("refusing HA connection of %s: it is not in haMembers", peer_ip)
        return False

    def _role_changed(self, change: RoleChanged) -> None:
        reason = f" ({change.reason})" if change.reason else ""
        self._conditions.changed(
            "role_changed",
            f"role changed: {change.role} in the replica group, epoch {change.epoch}, master {change.master}{reason}",
        )
        if change.role != Role.MASTER and self._is_master:
            # Held from here on: the store takes bytes of another master only after it was opened as a slave's.
            self.broker.fence(_NOT_MASTER)
            self._tables.review()
            self.driver.suspend()
            self._switch_soon(to_master=False)
        elif not self._is_master:
            if change.role in (Role.SLAVE, Role.FENCED):
                # A candidate stays registered as a slave: name servers accept a new master from a member only.
                self._publish(change.role == Role.SLAVE)
            self._take_office_if_due()

    def _publish(self, is_slave: bool) -> None:
        """Register a slave with the name servers; remove a member without a role from them."""
        registration = self.broker.registration
        if registration.is_fenced is is_slave:
            registration.is_fenced = not is_slave
            if is_slave:
                registration.changed.set()
            else:
                asyncio.get_running_loop().create_task(registration.unregister())

    def _confirmed(self, physical_offset: int) -> None:
        self._acks.confirmed_to = physical_offset
        self.broker.confirmed(physical_offset)
        self._take_office_if_due()

    def _take_office_if_due(self) -> None:
        """Open the store as a master's when the whole log is confirmed.

        Queue offsets continue after the messages in the queues, so every message must be in its queue first.
        """
        leadership = self.driver.member.leadership
        if leadership is None or self._is_master or self._acks.confirmed_to < leadership.term.start:
            return
        if self._switching is None:
            self.driver.suspend()
            self._switch_soon(to_master=True)

    def _appended(self) -> None:
        self.broker.state.message_appended()
        if self.driver.member.log.acks_flushed and self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        """Flush what a slave has received, and report it; appends meanwhile need another flush."""
        store = self.store_log.store
        try:
            flushed_to = await asyncio.to_thread(store.flush_log)
        except OrbitlogError as error:
            log.error("could not flush the log of this member: %s", error)
            return
        finally:
            self._flushing = None
        if store is self.store_log.store:  # otherwise the role changed meanwhile, and that store was closed
            self.driver.post(partial(self.driver.member.flushed, flushed_to))
            if flushed_to < store.written_to:
                self._appended()

    def _turn_ended(self) -> None:
        """Acknowledge sends that wait for no slave."""
        self.broker.answer_durable()

    def _watch_gate(self) -> None:
        """Refuse sends while the group cannot take them, such as during a handover."""
        self._gate = asyncio.get_running_loop().call_later(_GATE_S, self._watch_gate)
        self._conditions.set(COORDINATOR_LOST, self.driver.problem)
        if self._is_master and self._switching is None:
            self.update_gate()
        self._tables.review()

    def update_gate(self) -> None:
        """Accept or refuse sends, as the member decides now."""
        member = self.driver.member
        member.context.now_s = asyncio.get_running_loop().time()
        reason = "" if member.accepts_sends else "the replica group accepts no messages now"
        if bool(reason) != bool(self.broker.state.store.availability.fence_reason):
            self.broker.fence(reason)

    # Changes of role

    def _switch_soon(self, *, to_master: bool) -> None:
        assert self._switching is None
        self._switching = asyncio.get_running_loop().create_task(self._switch(to_master=to_master))

    async def _switch(self, *, to_master: bool) -> None:
        """Close the broker and build it in its other role; the driver is suspended meanwhile."""
        try:
            old = self.broker
            await old.stop(for_role=True)
            epoch = self.driver.member.log.history.last_epoch
            role = "SYNC_MASTER" if to_master else ha_keys.SLAVE
            settings = old.state.settings.with_texts(
                {
                    ha_keys.BROKER_ROLE.key: role,
                    keys.BROKER_ID.key: "0" if to_master else str(self._member_id),
                    **self._ports,
                }
            )
            opened = await asyncio.to_thread(open_broker_store, settings, self._root)
            self.store_log.store = opened.store
            self._broker = self._build(settings, opened)
            self._is_master = to_master
            if to_master:
                take_office(self._broker.state, epoch)
                self.update_gate()
            else:
                self._broker.registration.is_fenced = True
            await self._broker.start()
        except (OrbitlogError, OSError) as error:
            log.critical("could not change the role of this broker, stopping: %s", error)
            # Without a broker this process would keep its lease, and the group a master that serves nothing.
            signal.raise_signal(signal.SIGTERM)
            return
        finally:
            self._switching = None
        gc.collect()  # the closed broker
        log.info("serving as %s", "master" if to_master else "slave")
        if not self._is_stopping:
            self.driver.resume()
            self._publish_role()
            self._take_office_if_due()

    def _publish_role(self) -> None:
        if not self._is_master:
            self._publish(self.driver.member.role is Role.SLAVE)


def _table_timeout_s(settings: BrokerSettings) -> float:
    """Return how long a change of tables waits for slaves: a member that lacks messages is removed meanwhile."""
    return (settings[ha_keys.PATIENCE_MS] + settings[ha_keys.SLAVE_TIMEOUT_MS]) / 1000
