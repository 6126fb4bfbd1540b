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
    `acks_alone` acknowledges without waiting for slaves, so that only its lease limits the loss at a failover. With
    `copies_tables` a member joins the in-sync set only after it has copied the tables of this term's master. A
    proposal that was not answered, or was refused, is repeated after `retry_s`.
    """

    min_in_sync: int = 1
    patience_s: float = 5.0
    rank_delay_s: float = 0.3
    redial_s: float = 1.0
    poll_s: float = 2.0
    acks_alone: bool = False
    is_observer: bool = False
    copies_tables: bool = False
    retry_s: float = 0.0


class MemberContext:
    """Identity, log, coordinator and pending actions of one member; `now_s` is the time of the last tick."""

    def __init__(self, member_id: int, limits: GroupLimits, log: ReplicaLog) -> None:
        self.member_id = member_id
        self.limits = limits
        self.log = log
        self.desk = CoordinatorDesk(member_id)
        self.actions: list[Action] = []
        self.now_s = 0.0
        self._proposes_s = 0.0
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

    @property
    def may_propose(self) -> bool:
        """Return whether no pause after a proposal without success is under way."""
        return self.now_s >= self._proposes_s

    def pause_proposals(self) -> None:
        """Send no proposal for a while: the last one was not answered, or was refused."""
        self._proposes_s = self.now_s + self.limits.retry_s

    def send_proposal(self) -> None:
        """Send the open proposal, unless it is under way."""
        proposal = self.desk.attempt() if self.may_propose else None
        if proposal is not None:
            self.actions.append(Propose(proposal))

    def confirm(self, physical_offset: int) -> None:
        """Raise the confirm offset; a lower one has no effect."""
        if physical_offset > self.log.confirmed_to:
            self.log.confirmed_to = physical_offset
            self.actions.append(Confirmed(physical_offset))

    def cut(self, end: int) -> None:
        """Forget everything from `end` on. A Java master's confirm offset may be inside of a record that is cut."""
        if self.log.confirmed_to > end:
            self.actions.append(Confirmed(end))
        self.log.cut(end)

    def set_history(self, history: EpochHistory) -> bool:
        """Replace the epochs of the log; return whether they must be saved."""
        is_changed = history.entries != self.log.history.entries
        self.log.history = history
        return is_changed
