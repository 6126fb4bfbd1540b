"""Coordinator desk: what one member knows of the group's state, and its proposal whose outcome is open.

A lost answer leaves a proposal open: the request may still take effect. It is settled when the state's revision has
moved past the one that it compares with, because then it can no longer succeed. Until then it is retried, with the
same token.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitlog.replication.group.group_state import GroupState, LiveMember, Proposal, Snapshot

_NO_MEMBERS: frozenset[int] = frozenset()


class CoordinatorDesk:
    """The newest state that a member has seen, and at most one open proposal of its own."""

    def __init__(self, member_id: int) -> None:
        self._member_id = member_id
        self._tokens = 0
        self.state: GroupState | None = None
        self.revision = -1
        self.live: Mapping[int, LiveMember] = {}
        self.session = 0
        self.is_reading = False
        self.pending: Proposal | None = None
        self.is_in_flight = False
        self.was_lost = False
        """An attempt of the open proposal was not answered, so that a refusal of another one does not settle it."""

    @property
    def proposed(self) -> frozenset[int]:
        """Return the in-sync set of the open proposal."""
        return self.pending.state.in_sync if self.pending is not None else _NO_MEMBERS

    def next_token(self) -> str:
        """Return a token that no other proposal has: sessions differ between registrations of all members."""
        assert self.session, "a member proposes nothing before it is registered"
        self._tokens += 1
        return f"{self._member_id}-{self.session}-{self._tokens}"

    def take(self, snapshot: Snapshot) -> bool:
        """Adopt a snapshot and settle the open proposal; return False if a newer one is known."""
        if not self._is_current(snapshot):
            return False
        self.live = snapshot.live
        self.state, self.revision = snapshot.state, snapshot.revision
        if self.pending is not None and snapshot.revision > self.pending.base_revision:
            self._settle()
        return True

    def _is_current(self, snapshot: Snapshot) -> bool:
        return snapshot.revision >= self.revision

    def open(self, state: GroupState, absent_member: int | None = None) -> None:
        """Make a proposal on the known revision the open one."""
        assert self.pending is None or self.pending.base_revision == self.revision
        self.pending = Proposal(max(self.revision, 0), state, self.session, absent_member)
        self.is_in_flight = False

    def attempt(self) -> Proposal | None:
        """Return the open proposal to send now, in the current session; None if there is nothing to send."""
        if self.pending is None or self.is_in_flight or not self.session:
            return None
        self.pending = self.pending._replace(session=self.session)
        self.is_in_flight = True
        return self.pending

    def answered(self, token: str, revision: int) -> bool:
        """Note an answer; return whether it refused the open proposal without a newer state."""
        if self.pending is None or token != self.pending.state.token:
            return False
        self.is_in_flight = False
        return revision <= self.pending.base_revision

    def lost(self, token: str) -> None:
        """Note that an attempt was not answered."""
        if self.pending is not None and token == self.pending.state.token:
            self.is_in_flight = False
            self.was_lost = True

    def give_up(self) -> None:
        """Settle the open proposal as refused; only if no attempt was lost."""
        assert not self.was_lost
        self._settle()

    def _settle(self) -> None:
        self.pending = None
        self.is_in_flight = False
        self.was_lost = False
