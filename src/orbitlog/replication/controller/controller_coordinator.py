"""Controller coordinator: the record of a replica group at Apache's controller, as a group member reads and changes it.

The controller elects masters by itself; a master only changes the in-sync set. Masters and sets have epochs that grow
with each change: both together are the revision of the state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from orbitlog.errors import RemotingError
from orbitlog.remoting.client import RemotingClient
from orbitlog.replication.controller.controller_client import ControllerClient
from orbitlog.replication.group.group_state import GroupState, LiveMember, Proposal, Snapshot
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.nameserver_headers import BrokerHeartbeatRequest
from orbitlog.wire.replication.controller_bodies import (
    ReplicasInfo,
    decode_replicas_info,
    encode_names,
    encode_sync_state_set,
)
from orbitlog.wire.replication.controller_headers import (
    AlterSyncStateSetRequest,
    ControllerElectRequest,
    RegisterMemberRequest,
)

log = logging.getLogger(__name__)

_SET_EPOCHS = 1 << 32
_ASK_S = 3.0
_MASTER_HA_ADDRESS = "masterHaAddress"
# Answers that say that a proposal has had no effect. After any other one its outcome is unknown.
_REFUSALS = (
    ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
    ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
    ResponseCode.CONTROLLER_INVALID_MASTER,
    ResponseCode.CONTROLLER_INVALID_REPLICAS,
    ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
    ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
)


class ControlledBroker(NamedTuple):
    """A broker as the controller knows it."""

    cluster: str
    broker_name: str
    broker_id: int


class ControllerCoordinator:
    """One member's access to the record of its group.

    `heartbeat` returns the heartbeat to send now; None while the controller must not elect this member.
    """

    def __init__(
        self,
        controller: ControllerClient,
        peers: RemotingClient,
        broker: ControlledBroker,
        heartbeat: Callable[[], BrokerHeartbeatRequest | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._controller = controller
        self._peers = peers
        self._broker = broker
        self._heartbeat = heartbeat
        self._now_ms = now_ms
        self._sessions = 0
        self._ha_addresses: dict[tuple[str, int], str] = {}

    async def register(self, member: LiveMember) -> int:
        """Register the address of this member; return its session."""
        header = RegisterMemberRequest(
            cluster=self._broker.cluster,
            broker_name=self._broker.broker_name,
            broker_id=self._broker.broker_id,
            broker_address=member.address,
            invoke_time_ms=self._now_ms(),
        )
        await self._controller.ask(RequestCode.CONTROLLER_REGISTER_BROKER, header)
        await self.renew()
        self._sessions += 1
        return self._sessions

    async def renew(self) -> bool:
        """Send a heartbeat, unless the controller must not elect this member."""
        heartbeat = self._heartbeat()
        if heartbeat is not None:
            await self._controller.beat(heartbeat)
        return True

    async def read(self) -> Snapshot:
        """Return state and live members; raise `RemotingError`."""
        name = self._broker.broker_name
        answer = await self._controller.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, encode_names([name]))
        info = decode_replicas_info(answer.body, name)
        if info is None:
            raise RemotingError(
                f"the controller does not know {name}: its data was lost or cleaned. Stop the members, remove"
                " brokerIdentity from each store, and start the one with the newest messages first"
            )
        return await self._snapshot(info)

    async def propose(self, proposal: Proposal) -> Snapshot:
        """Change the in-sync set if nothing has changed since; return the state afterwards."""
        master_epoch, set_epoch = divmod(proposal.base_revision, _SET_EPOCHS)
        header = AlterSyncStateSetRequest(
            broker_name=self._broker.broker_name,
            master_id=self._broker.broker_id,
            master_epoch=master_epoch,
            invoke_time_ms=self._now_ms(),
        )
        body = encode_sync_state_set(proposal.state.in_sync, set_epoch)
        code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
        answer = await self._controller.ask(code, header, body, accepts=_REFUSALS)
        if answer.code != ResponseCode.SUCCESS:
            log.info("the controller refused the in-sync set %s: %s", sorted(proposal.state.in_sync), answer.remark)
        return await self.read()

    async def elect(self) -> None:
        """Ask for an election, in which this member may be elected; raise `RemotingError`."""
        header = ControllerElectRequest(
            cluster=self._broker.cluster,
            broker_name=self._broker.broker_name,
            broker_id=self._broker.broker_id,
            invoke_time_ms=self._now_ms(),
        )
        decided = (ResponseCode.CONTROLLER_MASTER_STILL_EXIST, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
        await self._controller.ask(RequestCode.CONTROLLER_ELECT_MASTER, header, accepts=decided)

    async def resign(self, heartbeat: BrokerHeartbeatRequest) -> None:
        """Make the controller depose this member: it deposes a master that it has seen alive and lost.

        A controller that was restarted together with its master never saw it, and keeps it for ever.
        """
        await self._controller.beat(heartbeat)
        await self._controller.disconnect()

    async def close(self) -> None:
        """Close the connections to the controllers, which then elect another master at once."""
        await self._controller.close()
        await self._peers.close()

    async def _snapshot(self, info: ReplicasInfo) -> Snapshot:
        live = {}
        for replica in info.replicas:
            if not replica.is_alive and replica.broker_id != info.master_id:
                continue
            is_peer = replica.broker_id == info.master_id != self._broker.broker_id
            ha_address = await self._ha_address(replica.address, info.master_epoch) if is_peer else ""
            if replica.is_alive:
                session = self._sessions if replica.broker_id == self._broker.broker_id else 0
                live[replica.broker_id] = LiveMember(session, ha_address, replica.address)
        state = GroupState(
            info.master_epoch,
            info.master_id,
            frozenset(replica.broker_id for replica in info.replicas if replica.is_in_sync),
            0,
            {replica.broker_id: 0 for replica in info.replicas},
        )
        revision = info.master_epoch * _SET_EPOCHS + info.set_epoch
        is_new = info.master_id is None and not info.master_epoch
        return Snapshot(revision, None if is_new else state, live)

    async def _ha_address(self, address: str, epoch: int) -> str:
        """Return the HA address of the master of an epoch; empty if it does not answer."""
        if (address, epoch) not in self._ha_addresses:
            try:
                answer = await self._peers.invoke(address, Command(RequestCode.EXCHANGE_BROKER_HA_INFO), _ASK_S)
            except RemotingError:
                return ""
            stated = answer.ext_fields.get(_MASTER_HA_ADDRESS, "") if answer.code == ResponseCode.SUCCESS else ""
            if not stated:
                return ""
            self._ha_addresses = {(address, epoch): stated}
        return self._ha_addresses[address, epoch]


def revision_of(master_epoch: int, set_epoch: int) -> int:
    """Return the revision of a state at the controller."""
    return master_epoch * _SET_EPOCHS + set_epoch
