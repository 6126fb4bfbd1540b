"""Controlled driver: runs a member of a group of Apache's controller."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Protocol

from orbitlog.errors import RemotingError, WireError
from orbitlog.replication.controller.controlled_member import ControlledMember
from orbitlog.replication.controller.controller_coordinator import ControllerCoordinator
from orbitlog.replication.group.actions import Action, AskElection, Resign
from orbitlog.replication.group.member_driver import DriverEvents, DriverLimits, MemberDriver, MemberLog
from orbitlog.wire.nameserver_headers import BrokerHeartbeatRequest

log = logging.getLogger(__name__)


class HeartbeatSource(Protocol):
    """Returns the heartbeat of a member, whether it may be sent or not."""

    def __call__(self) -> BrokerHeartbeatRequest: ...


class ControlledDriver(MemberDriver):
    """Runs one member until `close`."""

    def __init__(
        self,
        member: ControlledMember,
        member_log: MemberLog,
        coordinator: ControllerCoordinator,
        events: DriverEvents,
        limits: DriverLimits,
        *,
        heartbeat: HeartbeatSource,
    ) -> None:
        super().__init__(member, member_log, coordinator, events, limits)
        self._controller = coordinator
        self._make_heartbeat = heartbeat

    def role_notified(self) -> None:
        """Read the state, because the controller states that it has changed."""
        self.post(self.member.context.read_state)

    def _perform(self, action: Action) -> None:
        if isinstance(action, AskElection):
            self._spawn(self._then_read(self._controller.elect(), "ask for an election"))
        elif isinstance(action, Resign):
            self._spawn(self._then_read(self._controller.resign(self._make_heartbeat()), "resign"))
        else:
            super()._perform(action)

    async def _then_read(self, request: Awaitable[None], what: str) -> None:
        try:
            await request
        except (RemotingError, WireError, OSError) as error:
            log.info("could not %s at the controller: %s", what, error)
        self.post(self.member.context.read_state)
