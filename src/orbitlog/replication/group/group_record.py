"""Group record: a coordinator's data of one group, in memory and linearizable, for simulations and trials."""

from __future__ import annotations

from orbitlog.replication.group.group_state import GroupState, LiveMember, Proposal, Snapshot


class GroupRecord:
    """State with a revision, and live members with sessions. Leases end by `expire`: there is no clock here."""

    def __init__(self) -> None:
        self.state: GroupState | None = None
        self.revision = 0
        self.live: dict[int, LiveMember] = {}
        self._sessions = 0

    def read(self) -> Snapshot:
        """Return state and live members."""
        return Snapshot(self.revision, self.state, self.live)

    def register(self, member_id: int, member: LiveMember) -> int:
        """Replace a member's registration; return its session."""
        self._sessions += 1
        # Snapshots share the dictionary, so it is replaced and never changed.
        self.live = {**self.live, member_id: member._replace(session=self._sessions)}
        return self._sessions

    def expire(self, member_id: int) -> None:
        """End the lease of a member."""
        self.live = {member: live for member, live in self.live.items() if member != member_id}

    def propose(self, member_id: int, proposal: Proposal) -> Snapshot:
        """Apply a proposal if its conditions hold; return the state after it."""
        registered = self.live.get(member_id)
        if (
            proposal.base_revision == self.revision
            and registered is not None
            and registered.session == proposal.session
            and (proposal.absent_member is None or proposal.absent_member not in self.live)
        ):
            self.state = proposal.state
            self.revision += 1
        return self.read()
