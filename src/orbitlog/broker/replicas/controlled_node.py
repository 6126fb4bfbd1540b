"""Controlled node: a member of a group whose master Apache's controller elects (`enableControllerMode=true`)."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from orbitlog.broker.replicas.broker_group import BrokerGroup
from orbitlog.broker.replicas.group_options import controlled_limits, driver_limits, ha_address
from orbitlog.broker.replicas.handle_controlled import ControlledHandlers
from orbitlog.broker.replicas.member_log import StoreLog
from orbitlog.broker.replicas.replica_node import ReplicaNode
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime import replication_settings as ha_keys
from orbitlog.broker.runtime.broker_node import make_client
from orbitlog.broker.runtime.broker_opening import clock_ms
from orbitlog.errors import RemotingError
from orbitlog.remoting.client import RemotingClient
from orbitlog.replication.controller.broker_identity import IdentityFiles
from orbitlog.replication.controller.controlled_driver import ControlledDriver
from orbitlog.replication.controller.controlled_member import ControlledMember
from orbitlog.replication.controller.controller_client import ControllerClient
from orbitlog.replication.controller.controller_coordinator import ControlledBroker, ControllerCoordinator
from orbitlog.replication.group.group_member import GroupMember
from orbitlog.replication.group.member_driver import DriverEvents, MemberDriver
from orbitlog.replication.group.member_files import MemberFiles
from orbitlog.replication.group.replica_log import ReplicaLog
from orbitlog.wire.nameserver_headers import BrokerHeartbeatRequest

log = logging.getLogger(__name__)

_IDENTIFY_S = 60.0
_PAUSE_S = 2.0


class ControlledNode(ReplicaNode):
    """One member of a group of Apache's controller. Use it as a `Broker`: `await start()`, `await stop()`."""

    _controller: ControllerClient

    async def _identify(self) -> None:
        """Learn the id of this member: from its store, or from the controller, which must answer the first time."""
        self._controller = ControllerClient(
            lambda: make_client(self._settings, self._root), self._settings[ha_keys.CONTROLLER_ADDRESSES]
        )
        files = IdentityFiles(self._disk, self._root, self.cluster_name, self.broker_name)
        address = f"{ha_address(self._settings)}:{self._settings[keys.LISTEN_PORT]}"
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _IDENTIFY_S
        while True:
            try:
                self._member_id = await files.take(self._controller, address, clock_ms)
                return
            except RemotingError as error:
                if loop.time() > deadline_s:
                    raise
                log.warning("this broker has no id yet, asking the controller again: %s", error)
            await asyncio.sleep(_PAUSE_S)

    def _make_files(self) -> MemberFiles:
        return MemberFiles(self._disk, self._root, is_controlled=True)

    def _new_member(self, replica_log: ReplicaLog, *, lost_bytes: bool, is_new: bool) -> GroupMember:
        limits = controlled_limits(self._settings)
        return ControlledMember(self._member_id, limits, replica_log, lost_bytes=lost_bytes, is_new=is_new)

    def _make_driver(self, member: GroupMember, member_log: StoreLog, events: DriverEvents) -> MemberDriver:
        controlled = cast(ControlledMember, member)
        broker = ControlledBroker(self.cluster_name, self.broker_name, self._member_id)
        coordinator = ControllerCoordinator(
            self._controller,
            make_client(self._settings, self._root),
            broker,
            lambda: self._heartbeat() if controlled.is_electable else None,
            clock_ms,
        )
        return ControlledDriver(
            controlled,
            member_log,
            coordinator,
            events,
            driver_limits(self._settings, self._note_full),
            heartbeat=self._heartbeat,
        )

    def _make_group(self, client: RemotingClient) -> BrokerGroup:
        handlers = ControlledHandlers(self, cast(ControlledDriver, self.driver))
        return BrokerGroup(
            *(client, self._acks, self._ha_port, self.driver, self._master_address, lambda: handlers.table),
            barrier=self._tables,
            is_controlled=True,
        )

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        member = self.driver.member
        return BrokerHeartbeatRequest(
            cluster=self.cluster_name,
            broker_address=self._describe().address,
            broker_name=self.broker_name,
            broker_id=self._member_id,
            epoch=member.log.history.last_epoch,
            max_physical_offset=self.store_log.end,
            confirm_physical_offset=member.log.confirmed_to,
            heartbeat_timeout_ms=self._settings[ha_keys.CONTROLLER_TIMEOUT_MS],
            election_priority=self._settings[ha_keys.ELECTION_PRIORITY],
        )
