"""Leadership: a group member while it is master. Takes handshakes and reports, confirms bytes, changes the in-sync set.

A member leaves the set only after the coordinator has recorded it, and a new one is required from before the proposal
is sent. A master without its coordinator continues to acknowledge while its whole set reports.
"""

from __future__ import annotations

from dataclasses import replace

from orbitlog.replication.group.actions import HangUp, SendFrame
from orbitlog.replication.group.group_state import GroupState
from orbitlog.replication.group.master_term import Follower, MasterTerm
from orbitlog.replication.group.member_context import MemberContext
from orbitlog.wire.replication.epoch_frames import ENTRIES_MAX, Handshake, HandshakeAnswer, TransferHead


class Leadership:
    """One term of a master."""

    def __init__(self, context: MemberContext, state: GroupState) -> None:
        self._context = context
        first = 1 if context.limits.copies_tables else 0
        self.term = MasterTerm(
            context.member_id, state.epoch, state.start, state.in_sync, context.now_s, tables_number=first
        )

    # Connections

    def handshake(self, connection: int, handshake: Handshake) -> None:
        """Answer a slave with the epochs of this log. A new connection of a member replaces its earlier one."""
        context, term = self._context, self.term
        earlier = term.by_member.get(handshake.slave_id)
        if earlier is not None:
            self._hang_up(earlier.connection)
        if handshake.slave_id == context.member_id:
            context.actions.append(HangUp(connection))
            return
        restarts = self._restarts_of(handshake.slave_id)
        term.add(Follower(connection, handshake.slave_id, restarts, context.now_s, handshake.is_learner))
        history = context.log.history
        answer = HandshakeAnswer(context.log.end, history.last_epoch, history.entries[-ENTRIES_MAX:])
        context.actions.append(SendFrame(connection, answer))

    def report(self, connection: int, physical_offset: int) -> None:
        """Take a slave's end. One that this log cannot have led to closes the connection."""
        follower = self.term.followers.get(connection)
        if follower is None:
            return
        log = self._context.log
        if follower.sent_to < 0 and physical_offset <= log.end:
            # Only an empty slave may start elsewhere than at its own end.
            follower.sent_to = physical_offset or log.start
            if follower.sent_to < log.start:
                self._hang_up(connection)
                return
        elif not follower.acked_to <= physical_offset <= follower.sent_to:
            self._hang_up(connection)
            return
        follower.acked_to = physical_offset
        if physical_offset >= log.end:
            follower.caught_up_s = self._context.now_s
        self.confirm()
        if follower.member_id not in self.term.recorded:
            self.review()

    def tables_reported(self, member_id: int, number: int) -> None:
        """Take the number of the last change of tables that a slave has saved."""
        self.term.tables_reported(member_id, number, self._context.now_s)
        self.review()

    def disconnected(self, connection: int) -> None:
        """Stop counting a connection."""
        self.term.remove(connection, self._context.now_s)

    def close(self) -> None:
        """Close all connections: the next term starts without reports of this one."""
        for connection in list(self.term.followers):
            self._hang_up(connection)

    def _hang_up(self, connection: int) -> None:
        self.term.remove(connection, self._context.now_s)
        self._context.actions.append(HangUp(connection))

    def _restarts_of(self, member_id: int) -> int:
        state = self._context.desk.state
        return state.members.get(member_id, 0) if state is not None else 0

    # Bytes

    def plan_transfer(self, connection: int, bytes_max: int) -> TransferHead | None:
        """Return the next range to send on a connection, counted as sent; None if it has everything, or must wait.

        A range never crosses an epoch.
        """
        follower = self.term.followers.get(connection)
        log = self._context.log
        if follower is None or not 0 <= follower.sent_to < log.end:
            return None
        located = log.history.at(follower.sent_to, log.end)
        if located is None:
            return None
        entry, stop = located
        offset = follower.sent_to
        body_bytes = min(stop - offset, bytes_max)
        follower.sent_to += body_bytes
        return TransferHead(body_bytes, offset, entry.epoch, entry.start_physical_offset, log.confirmed_to)

    def heartbeat(self, connection: int) -> TransferHead | None:
        """Return a transfer without bytes, which carries the confirm offset; None before the first report."""
        follower = self.term.followers.get(connection)
        if follower is None or follower.sent_to < 0:
            return None
        entry = self._context.log.history.entries[-1]
        return TransferHead(
            0, follower.sent_to, entry.epoch, entry.start_physical_offset, self._context.log.confirmed_to
        )

    def appended(self, end: int) -> None:
        """Note that this master has appended whole records up to `end`."""
        self._context.log.end = end
        self.term.appended(end)
        self.confirm()

    def confirm(self) -> None:
        """Raise the confirm offset to the last append that every required member has."""
        context = self._context
        replicated = self.term.replicated_to(context.log.reported_to, context.desk.proposed)
        context.confirm(self.term.last_boundary(replicated))

    # The in-sync set

    def adopt(self, state: GroupState) -> None:
        """Take a newer state of this epoch. Reports from before a restart that may have lost bytes no longer count."""
        self.term.recorded = state.in_sync
        for follower in list(self.term.followers.values()):
            if state.members.get(follower.member_id, 0) != follower.restarts:
                self._hang_up(follower.connection)
        self.confirm()
        self.review()

    def review(self) -> None:
        """Propose a change of the in-sync set, or the handover, if one is due and no proposal is open."""
        context, term = self._context, self.term
        desk = context.desk
        if desk.pending is not None or desk.state is None or not context.may_propose:
            return
        if term.handover_to is not None:
            self._propose_handover(desk.state)
            return
        for follower in term.followers.values():
            if follower.acked_to >= context.log.end:
                follower.caught_up_s = context.now_s
        stalled = frozenset(term.stalled(context.now_s, context.limits.patience_s))
        in_sync = term.recorded - stalled if stalled else term.recorded.union(term.eligible(context.log.confirmed_to))
        if in_sync != term.recorded:
            desk.open(desk.state.with_in_sync(in_sync, desk.next_token()))
            context.send_proposal()

    def _propose_handover(self, state: GroupState) -> None:
        context, term = self._context, self.term
        target = term.handover_to
        if target not in term.recorded:
            term.handover_to = None
        elif context.log.confirmed_to == context.log.end and term.has_tables(target, term.tables_number):
            context.desk.open(
                replace(
                    state,
                    epoch=state.epoch + 1,
                    master=target,
                    start=context.log.end,
                    token=context.desk.next_token(),
                )
            )
            context.send_proposal()
