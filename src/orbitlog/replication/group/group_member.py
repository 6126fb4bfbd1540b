"""Group member: the state machine of one replica with automatic failover. No sockets, clocks or threads.

    fenced ── the coordinator names another master ──▶ slave ── its lease ended, this member is in sync ──▶ candidate
    fenced ── the coordinator names this member ─────▶ candidate ── elected ──▶ master ── a newer epoch ──▶ fenced

Calls are events; each appends to `actions`, which the process carries out in order. Time is an argument and decides
only when something is tried. Why nothing acknowledged is lost: docs/adr/0016-failover-by-epochs.md.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from orbitlog.replication.group.actions import Action, HangUp, RestartRecorded, RoleChanged, SaveEpochs, SettleLog
from orbitlog.replication.group.following import Following
from orbitlog.replication.group.group_state import GroupState, Snapshot
from orbitlog.replication.group.leadership import Leadership
from orbitlog.replication.group.member_context import GroupLimits, MemberContext
from orbitlog.replication.group.replica_log import ReplicaLog
from orbitlog.wire.replication.epoch_frames import EpochReport, Handshake, HandshakeAnswer, TransferHead

_LOST_STORE = (
    "this store is new, but only this member was in sync: start it with its old store, or elect a member by `orbitlog"
    " replica elect --force --accept-loss`"
)


class Role(StrEnum):
    """What a member does now."""

    FENCED = "fenced"
    CANDIDATE = "candidate"
    SLAVE = "slave"
    MASTER = "master"


class GroupMember:
    """One member of a replica group.

    `lost_bytes`: the machine stopped without a sync, so that bytes which were reported may be lost. `is_new`: the store
    has never been this member's; if the coordinator knows the member, an earlier store with all its bytes is lost.
    """

    def __init__(
        self, member_id: int, limits: GroupLimits, log: ReplicaLog, *, lost_bytes: bool = False, is_new: bool = False
    ) -> None:
        self.context = MemberContext(member_id, limits, log)
        self.log = log
        self.role = Role.FENCED
        self.reason = "the coordinator has not answered yet"
        self.leadership: Leadership | None = None
        self.following: Following | None = None
        self._lost_bytes = lost_bytes or is_new
        self._is_new = is_new
        self._is_retired = False
        self._is_forced = False
        self._is_settling = False
        self._election_token = ""
        self._stands_s: float | None = None
        self._polled_s = 0.0
        self._lease_ends_s = 0.0
        # After a power cut the epoch file may name epochs whose bytes are lost. Saved before the log grows past them.
        history = log.history.up_to(log.end)
        if self.context.set_history(history):
            self.context.actions.append(SaveEpochs(history.entries))

    @property
    def actions(self) -> list[Action]:
        return self.context.actions

    @property
    def accepts_sends(self) -> bool:
        """Return whether a send may be appended now."""
        leadership, limits = self.leadership, self.context.limits
        if leadership is None or leadership.term.handover_to is not None:
            return False
        if limits.acks_alone and self.context.now_s >= self._lease_ends_s:
            return False
        return len(leadership.term.recorded) >= self._min_in_sync

    @property
    def _min_in_sync(self) -> int:
        return self.context.limits.min_in_sync

    # The coordinator

    def registered(self, session: int) -> None:
        """Take a new session: earlier ones of this member have ended, and their requests have no effect any more."""
        self.context.desk.session = session
        self.context.read_state()

    def lease_renewed(self, ends_s: float) -> None:
        """Note until when, by the own clock, no other member can see this member's lease end."""
        self._lease_ends_s = ends_s

    def holds_lease(self, now_s: float) -> bool:
        """Return whether no other member can see this member's lease end before `now_s`, by the own clock."""
        return now_s < self._lease_ends_s

    def observe(self, snapshot: Snapshot) -> None:
        """Take a snapshot of the coordinator, from a read or a watch."""
        desk = self.context.desk
        desk.is_reading = False
        if desk.take(snapshot):
            self._act()

    def read_failed(self) -> None:
        """Note that a read was not answered; the next tick repeats it."""
        self.context.desk.is_reading = False

    def proposal_answered(self, token: str, snapshot: Snapshot) -> None:
        """Take the answer to a proposal: the state after it, whether it succeeded or not."""
        desk = self.context.desk
        was_refused = desk.answered(token, snapshot.revision)
        if was_refused and desk.pending is not None and self.leadership is None:
            if desk.was_lost and desk.state is not None:
                # An earlier attempt may still take effect. Moving the revision excludes that.
                desk.open(replace(desk.state, token=desk.next_token()))
                self.context.send_proposal()
            elif not desk.was_lost:
                desk.give_up()
        if desk.take(snapshot):
            self._act()

    def proposal_lost(self, token: str) -> None:
        """Note that a proposal was not answered; it may have taken effect, or may do so later."""
        self.context.desk.lost(token)
        self.context.pause_proposals()
        self.context.read_state()

    # Roles

    def _act(self) -> None:
        """Take the role that the known state gives this member."""
        context = self.context
        state = context.desk.state
        if not context.desk.session:
            return  # requests of an earlier run may still take effect, and a token would not be unique
        if self.leadership is not None:
            if state is not None and state.epoch == self.leadership.term.epoch and state.master == context.member_id:
                self.leadership.adopt(state)
                return
            self._step_down()
        if context.desk.pending is None and not self._is_settling:
            self._take_role(state)

    def _take_role(self, state: GroupState | None) -> None:
        """Take the role that a state gives this member, which is not master now."""
        context = self.context
        if state is None:
            self._found_group()
        elif self._must_leave(state):
            self._leave(state)
        elif self._is_retired:
            self._set_role(Role.FENCED, self.reason)
        elif state.master == context.member_id:
            self._take_office(state)
        elif self._may_stand(state):
            self._plan_candidacy(state)
        else:
            self._follow(state)

    def _set_role(self, role: Role, reason: str = "") -> None:
        state = self.context.desk.state
        is_changed = role is not self.role or role is Role.MASTER
        self.role, self.reason = role, reason
        if is_changed:
            epoch, master = (state.epoch, state.master) if state is not None else (0, None)
            self.actions.append(RoleChanged(role.value, epoch, master, reason))

    def _step_down(self) -> None:
        assert self.leadership is not None
        self.leadership.close()
        self.leadership = None
        self._set_role(Role.FENCED, "another master was elected")

    def _follow(self, state: GroupState) -> None:
        self._stands_s = None
        if state.master is None or (state.master not in self.context.desk.live and self.following is None):
            self._set_role(Role.FENCED, "the group has no master, and this member is not in sync")
            return
        following = self.following
        if following is not None and following.master == state.master and following.epoch >= state.epoch:
            return
        self._stop_following()
        self.following = self._make_following(state.master, state.epoch)
        self._set_role(Role.SLAVE)

    def _make_following(self, master: int, epoch: int) -> Following:
        return Following(self.context, master, epoch)

    def _stop_following(self) -> None:
        if self.following is not None:
            self.following.close()
            self.following = None

    # Leaving the in-sync set

    def _must_leave(self, state: GroupState) -> bool:
        """Return whether this member must leave the in-sync set before it does anything else.

        A member outside of the set also records its restart: the master may be about to add it for reports from before
        it. The only member of the set stays: it has what is left. With a new store it has nothing, and serves only
        after a forced election.
        """
        if not self._lost_bytes:
            return False
        me, token = self.context.member_id, self._election_token
        is_forced = bool(token) and state.token == token and state.master == me
        if (state.in_sync == {me} and (is_forced or not self._is_new)) or (
            self._is_retired and me not in state.in_sync
        ):
            self._forget_loss()
            return False
        return True

    def _forget_loss(self) -> None:
        self._lost_bytes = self._is_new = False
        if not self._is_retired:
            self.actions.append(RestartRecorded())

    def _leave(self, state: GroupState) -> None:
        desk = self.context.desk
        if state.token == self._election_token and self._election_token:
            # The own departure is recorded.
            self._forget_loss()
            self._election_token = ""
            self._act()
            return
        self._stop_following()
        if state.in_sync == {self.context.member_id}:
            self._set_role(Role.FENCED, _LOST_STORE)
            return
        if not self._is_retired:
            self._set_role(Role.FENCED, "bytes may be lost since the last start; leaving the in-sync set")
        self._election_token = desk.next_token()
        desk.open(state.without(self.context.member_id, self._election_token))
        self.context.send_proposal()

    def retire(self, reason: str) -> None:
        """Give up all roles until a restart, because the disk failed; leaves the in-sync set if it can."""
        self._is_retired = True
        self._lost_bytes = True
        if self.leadership is not None:
            self.leadership.close()
            self.leadership = None
        self._stop_following()
        self._set_role(Role.FENCED, reason)
        self._act()

    # Elections

    def _may_stand(self, state: GroupState) -> bool:
        context = self.context
        if context.limits.is_observer or context.member_id not in state.in_sync:
            return False
        return state.master is None or state.master not in context.desk.live

    def _plan_candidacy(self, state: GroupState) -> None:
        """Stand after a delay by rank, so that the member with the longest log comes first. A courtesy, not a rule."""
        context = self.context
        if self._stands_s is None:
            own = (context.log.history.last_epoch, context.log.end, -context.member_id)
            rivals = (
                (live.epoch, live.written_to, -member)
                for member, live in context.desk.live.items()
                if member in state.in_sync and member not in (state.master, context.member_id)
            )
            rank = sum(rival > own for rival in rivals)
            self._stands_s = context.now_s + rank * context.limits.rank_delay_s

    def _take_office(self, state: GroupState) -> None:
        """Serve if this is the election that was proposed; else elect this member in an epoch that it knows of.

        A restarted master does not know what its earlier run did in the epoch.
        """
        if state.token == self._election_token and self.role is Role.CANDIDATE and state.start == self.log.end:
            self._promote(state)
        else:
            self._stand()

    def _stand(self) -> None:
        """Become a candidate. Reports end before the proposal: a master that is not yet deposed confirms no more."""
        self._stop_following()
        self._stands_s = None
        self._set_role(Role.CANDIDATE)
        self._is_settling = True
        self.actions.append(SettleLog())

    def log_settled(self, end: int) -> None:
        """Propose this member as master, now that its log ends with a whole record."""
        context, desk = self.context, self.context.desk
        self._note_settled(end)
        state = desk.state
        if self._is_forced:
            self._is_forced = False
            self._propose_election(self._elected_alone(state), None)
        elif state is not None and (state.master == context.member_id or self._may_stand(state)):
            absent = state.master if state.master != context.member_id else None
            self._propose_election(self._elected(state), absent)
        else:
            self._set_role(Role.FENCED, "another master was elected")
            self._act()

    def _note_settled(self, end: int) -> None:
        self._is_settling = False
        self.context.cut(end)
        self.context.log.flushed_to = end
        history = self.context.log.history.up_to(end)
        if self.context.set_history(history):
            self.actions.append(SaveEpochs(history.entries))

    def _elected(self, state: GroupState) -> GroupState:
        me = self.context.member_id
        in_sync = frozenset(
            member for member in state.in_sync if member in self.context.desk.live and member != state.master
        )
        token = self.context.desk.next_token()
        state = state.with_in_sync(in_sync | {me}, token)
        return replace(state, epoch=state.epoch + 1, master=me, start=self.log.end)

    def _elected_alone(self, state: GroupState | None) -> GroupState:
        me, token = self.context.member_id, self.context.desk.next_token()
        if state is None:
            return GroupState(1, me, frozenset((me,)), self.log.end, {me: 0}, token)
        state = state.with_in_sync(frozenset((me,)), token)
        return replace(state, epoch=state.epoch + 1, master=me, start=self.log.end)

    def _propose_election(self, state: GroupState, absent_member: int | None) -> None:
        desk = self.context.desk
        if desk.pending is None:
            self._election_token = state.token
            desk.open(state, absent_member)
            self.context.send_proposal()

    def _found_group(self) -> None:
        """Found the group as its first master if this log is empty; another log could be the wrong one."""
        if not self.log.is_empty or self.log.history.entries or self.context.limits.is_observer:
            self._set_role(Role.FENCED, "the coordinator has no state of this group, but this log is not empty")
        else:
            if self._is_new:
                # Noted before the group exists: a founder that is killed now is not a member that lost its store.
                self._forget_loss()
            self._set_role(Role.CANDIDATE)
            self._propose_election(self._elected_alone(None), None)

    def _promote(self, state: GroupState) -> None:
        history = self.log.history
        # The first master's log is the group's, also what it held before the first epoch.
        first = self.log.start if not history.entries else state.start
        history = history.begin(state.epoch, first)
        self.context.set_history(history)
        self.actions.append(SaveEpochs(history.entries))
        self._election_token = ""
        self.leadership = Leadership(self.context, state)
        self._set_role(Role.MASTER)
        self.leadership.confirm()

    def force_election(self) -> None:
        """Elect this member without regard to the in-sync set; acknowledged messages of other members may be lost."""
        if self.leadership is None and not self._is_settling and self.context.desk.pending is None:
            self._is_forced = True
            self._stand()

    def hand_over(self, member_id: int) -> bool:
        """Begin to hand the group over to an in-sync member: sends are refused from now on. Return False if not
        possible.
        """
        if self.leadership is None or member_id not in self.leadership.term.by_member:
            return False
        term = self.leadership.term
        if member_id not in term.recorded or term.handover_to is not None:
            return False
        term.handover_to = member_id
        if self.context.limits.copies_tables:
            term.change_tables(self.context.now_s)  # the last progress of this master is copied first
        self.leadership.review()
        return True

    def cancel_handover(self) -> None:
        """Accept sends again, unless the handover has been proposed: it may have taken effect."""
        if self.leadership is not None and self.context.desk.pending is None:
            self.leadership.term.handover_to = None

    # Time and disk

    def tick(self, now_s: float) -> None:
        """Do what is due: repeat open proposals, dial, stand as a candidate, review the in-sync set, read the state."""
        context = self.context
        context.now_s = now_s
        context.send_proposal()
        if self.leadership is not None:
            self.leadership.review()
        elif self.following is not None:
            self.following.tick()
        state = context.desk.state
        if self._stands_s is not None and now_s >= self._stands_s:
            self._stands_s = None
            if state is not None and self._may_stand(state) and self._is_free_to_stand():
                self._stand()
        if now_s - self._polled_s >= context.limits.poll_s:
            self._polled_s = now_s
            context.read_state()

    def _is_free_to_stand(self) -> bool:
        return (
            self.leadership is None
            and self.context.desk.pending is None
            and not (self._is_settling or self._lost_bytes or self._is_retired)
        )

    def appended(self, end: int) -> None:
        """Note that this master has appended whole records up to `end`."""
        assert self.leadership is not None, "only a master appends messages of its own"
        self.leadership.appended(end)

    def flushed(self, physical_offset: int) -> None:
        """Note that the log is flushed up to an offset."""
        self.log.flushed_to = min(max(physical_offset, self.log.flushed_to), self.log.end)
        if self.leadership is not None:
            self.leadership.confirm()
        elif self.following is not None:
            self.following.flushed()

    # Connections; those that this member dialed have negative numbers

    def connected(self, connection: int) -> None:
        """Note that a connection to the master is open."""
        if self.following is not None:
            self.following.connected(connection)

    def handshake(self, connection: int, handshake: Handshake) -> None:
        """Take the first frame of a slave; only a master answers."""
        if self.leadership is not None:
            self.leadership.handshake(connection, handshake)
        else:
            self.actions.append(HangUp(connection))

    def report(self, connection: int, report: EpochReport) -> None:
        """Take the end of a slave's log."""
        if self.leadership is not None:
            self.leadership.report(connection, report.physical_offset)

    def handshake_answered(self, connection: int, answer: HandshakeAnswer) -> None:
        """Take the epochs of the master's log."""
        if self.following is not None:
            self.following.answered(connection, answer)

    def transfer(self, connection: int, head: TransferHead, body: bytes) -> None:
        """Take bytes of the master's log."""
        if self.following is not None:
            self.following.transfer(connection, head, body)

    def disconnected(self, connection: int) -> None:
        """Note that a connection has ended."""
        if self.leadership is not None:
            self.leadership.disconnected(connection)
        elif self.following is not None:
            self.following.disconnected(connection)
