"""Controlled member: a group member whose master is elected by Apache's controller. No sockets, clocks or threads.

The controller elects among members that send heartbeats and are in the in-sync set, without asking them. What differs
from a group that elects its masters itself:

- A new master starts its epoch where its log ends when it learns of the election. Up to then it may have reported bytes
  of the old master: they are in its log, and so in the new epoch.
- A member that may have lost reported bytes sends no heartbeat until it is outside of the set or has the whole log.
- A master that restarts does not continue its epoch: it makes the controller depose it. Else bytes that an earlier run
  wrote, and lost, and those that replace them would have the same epoch.
- A Java master drops an epoch that starts where the last one does; its log then has the last epoch's label.
"""

from __future__ import annotations

from dataclasses import replace

from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.replication.group.actions import AskElection, Resign
from orbitlog.replication.group.following import Following
from orbitlog.replication.group.group_member import GroupMember, Role
from orbitlog.replication.group.group_state import GroupState, Snapshot
from orbitlog.replication.group.member_context import GroupLimits, MemberContext
from orbitlog.replication.group.replica_log import ReplicaLog
from orbitlog.wire.replication.epoch_frames import HandshakeAnswer

_ASK_S = 2.0
_LABEL_PATIENCE_S = 12.0
"""Time for a Java master to learn of its election: it asks the controller every 5 s."""


class ControlledFollowing(Following):
    """The connection of a slave to the master that the controller named."""

    def __init__(self, context: MemberContext, master: int, epoch: int) -> None:
        self.whole_to: int | None = None
        """End of the master's log at the handshake: with so much, this member has every acknowledged byte."""
        self._unlabelled_since_s: float | None = None
        super().__init__(context, master, epoch)

    def answered(self, connection: int, answer: HandshakeAnswer) -> None:
        """Take the master's epochs; a master whose last one is too old is asked again, or has dropped its entry."""
        if connection != self._connection or self.is_following:
            return
        if answer.last_epoch < self.epoch:
            labelled = self._labelled(answer)
            if labelled is None:
                self._refuse()
                return
            answer = labelled
        self.whole_to = answer.end
        super().answered(connection, answer)

    def _labelled(self, answer: HandshakeAnswer) -> HandshakeAnswer | None:
        """Return the answer with the epoch of this master instead of its last one; None if it may be too early.

        Java adds no entry for an epoch that starts where the last one does. The last entry then had no bytes, and those
        that follow are of this master.
        """
        now_s = self._context.now_s
        if self._unlabelled_since_s is None:
            self._unlabelled_since_s = now_s
        if now_s - self._unlabelled_since_s < _LABEL_PATIENCE_S or not answer.entries:
            return None
        *earlier, last = answer.entries
        entries = (*earlier, EpochEntry(self.epoch, last.start_physical_offset))
        return answer._replace(last_epoch=self.epoch, entries=entries)


class ControlledMember(GroupMember):
    """One member of a group of Apache's controller."""

    def __init__(
        self, member_id: int, limits: GroupLimits, log: ReplicaLog, *, lost_bytes: bool = False, is_new: bool = False
    ) -> None:
        super().__init__(member_id, limits, log, lost_bytes=lost_bytes, is_new=is_new)
        self._is_informed = False
        self._earlier_epoch: int | None = None
        self._asked_s = float("-inf")

    @property
    def is_electable(self) -> bool:
        """Return whether the controller may elect this member, which then sends heartbeats."""
        state = self.context.desk.state
        is_earlier = state is not None and self._is_of_earlier_run(state)
        return self._is_informed and not (self._is_retired or self._lost_bytes or is_earlier)

    @property
    def _min_in_sync(self) -> int:
        """Return the members without which sends are refused; unless set, a group of several needs two."""
        state = self.context.desk.state
        known = len(state.members) if state is not None else 0
        return self.context.limits.min_in_sync or min(max(known, 1), 2)

    def _is_of_earlier_run(self, state: GroupState) -> bool:
        return state.master == self.context.member_id and state.epoch == self._earlier_epoch

    # The controller

    def observe(self, snapshot: Snapshot) -> None:
        """Take a snapshot of the controller. One that names this member at the start is about an earlier run."""
        if not self._is_informed:
            self._is_informed = True
            if snapshot.state is not None and snapshot.state.master == self.context.member_id:
                self._earlier_epoch = snapshot.state.epoch
        super().observe(snapshot)

    def proposal_answered(self, token: str, snapshot: Snapshot) -> None:
        """Take the answer to a proposal. A refused one is given up, unless an attempt of it may still take effect."""
        desk = self.context.desk
        was_refused = desk.answered(token, snapshot.revision)
        if was_refused:
            self.context.pause_proposals()
            if not desk.was_lost:
                desk.give_up()
        if desk.take(snapshot):
            self._act()

    # Roles

    def _take_role(self, state: GroupState | None) -> None:
        self._settle_loss(state)
        if self._is_retired:
            self._set_role(Role.FENCED, self.reason)
            if state is not None and state.master == self.context.member_id:
                self._resign()
        elif state is None:
            self._found_group()
        elif state.master == self.context.member_id:
            self._take_office(state)
        elif state.master is None:
            self._stop_following()
            self._set_role(Role.FENCED, "the controller has no master of this group" + self._why_not(state))
            if self.context.member_id in state.in_sync:
                self._ask_election()
        else:
            self._follow(state)

    def _why_not(self, state: GroupState) -> str:
        if self.context.member_id not in state.in_sync:
            return ", and this member is not in sync: start one that is"
        if self._is_new:
            return ", and the store of this member is new: start it with its old one, or another member in sync"
        return ", and this member may have lost messages since its last start" if self._lost_bytes else ""

    def _settle_loss(self, state: GroupState | None) -> None:
        """Forget a possible loss if this member cannot be elected, or is the only one that can."""
        me = self.context.member_id
        if self._lost_bytes and not self._is_retired and state is not None:
            if me not in state.in_sync or (state.in_sync == {me} and not self._is_new):
                self._forget_loss()

    def _found_group(self) -> None:
        """Ask to become the first master if this log is empty; another log could be the wrong one."""
        if not self.log.is_empty or self.log.history.entries:
            self._set_role(Role.FENCED, "the controller has no master of this group yet, but this log is not empty")
        else:
            if self._is_new:
                self._forget_loss()  # there was no master yet, so that nothing was acknowledged
            self._set_role(Role.FENCED, "the controller has not elected the first master yet")
            self._ask_election()

    def _ask_election(self) -> None:
        now_s = self.context.now_s
        if self.is_electable and not self.context.limits.is_observer and now_s - self._asked_s >= _ASK_S:
            self._asked_s = now_s
            self.actions.append(AskElection())

    def _resign(self) -> None:
        if self.context.now_s - self._asked_s >= _ASK_S:
            self._asked_s = self.context.now_s
            self.actions.append(Resign())

    def _take_office(self, state: GroupState) -> None:
        """Serve in an epoch of this run; have the controller elect a master in a new epoch otherwise."""
        last_epoch = self.log.history.last_epoch
        if not self.is_electable:
            self._stop_following()
            self._set_role(Role.FENCED, "named as master in an epoch of an earlier run; waiting for a new election")
            self._resign()
        elif state.epoch <= last_epoch:
            self._stop_following()
            self._set_role(
                Role.FENCED,
                f"the controller states epoch {state.epoch}, but this log has epoch {last_epoch}: the controller's data"
                " was lost",
            )
        else:
            self._stand()

    def log_settled(self, end: int) -> None:
        """Serve, now that the log ends with a whole record: the new epoch starts there."""
        self._note_settled(end)
        state = self.context.desk.state
        if state is None or state.master != self.context.member_id or state.epoch <= self.log.history.last_epoch:
            self._set_role(Role.FENCED, "another master was elected")
            self._act()
        else:
            self._promote(replace(state, start=end))

    def _make_following(self, master: int, epoch: int) -> Following:
        return ControlledFollowing(self.context, master, epoch)

    def force_election(self) -> None:
        """Do nothing: the controller elects."""

    def hand_over(self, member_id: int) -> bool:
        """Return False: the controller elects."""
        return False

    def tick(self, now_s: float) -> None:
        """Do what is due; without a master, ask for an election."""
        super().tick(now_s)
        following = self.following
        if self._lost_bytes and not self._is_retired and isinstance(following, ControlledFollowing):
            if following.whole_to is not None and following.is_following and self.log.end >= following.whole_to:
                self._forget_loss()
        if self.role is Role.FENCED and self.context.desk.session and self.context.desk.pending is None:
            state = self.context.desk.state
            if self._is_informed and (state is None or state.master in (None, self.context.member_id)):
                self._take_role(state)
