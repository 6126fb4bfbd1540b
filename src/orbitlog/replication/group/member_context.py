"""Member context: what the roles of one group member share."""

from __future__ import annotations

from typing import NamedTuple

from orbitlog.replication.group.actions import Action, Confirmed, Propose, ReadState
from orbitlog.replication.group.coordinator_desk import CoordinatorDesk
from orbitlog.replication.group.epoch_history import EpochHistory
from orbitlog.replication.group.replica_log import ReplicaLog


class GroupLimits(NamedTuple):
    """Times and sizes of a member.

    `patience_s` is the time after which a master removes a member that does not have the whole log. A master with
    `acks_alone` acknowledges without waiting for slaves, so that only its lease limits the loss at a failover.
    """

    min_in_sync: int = 1
    patience_s: float = 5.0
    rank_delay_s: float = 0.3
    redial_s: float = 1.0
    poll_s: float = 2.0
    acks_alone: bool = False
    is_observer: bool = False


class MemberContext:
    """Identity, log, coordinator and pending actions of one member; `now_s` is the time of the last tick."""

    def __init__(self, member_id: int, limits: GroupLimits, log: ReplicaLog) -> None:
        self.member_id = member_id
        self.limits = limits
        self.log = log
        self.desk = CoordinatorDesk(member_id)
        self.actions: list[Action] = []
        self.now_s = 0.0
        self._connections = 0

    def next_connection(self) -> int:
        """Return a number for a connection that this member opens; accepted ones have other numbers."""
        self._connections += 1
        return -self._connections

    def read_state(self) -> None:
        """Ask for the state, unless that is under way."""
        if not self.desk.is_reading:
            self.desk.is_reading = True
            self.actions.append(ReadState())

    def send_proposal(self) -> None:
        """Send the open proposal, unless it is under way."""
        proposal = self.desk.attempt()
        if proposal is not None:
            self.actions.append(Propose(proposal))

    def confirm(self, physical_offset: int) -> None:
        """Raise the confirm offset; a lower one has no effect."""
        if physical_offset > self.log.confirmed_to:
            self.log.confirmed_to = physical_offset
            self.actions.append(Confirmed(physical_offset))

    def set_history(self, history: EpochHistory) -> bool:
        """Replace the epochs of the log; return whether they must be saved."""
        is_changed = history.entries != self.log.history.entries
        self.log.history = history
        return is_changed
