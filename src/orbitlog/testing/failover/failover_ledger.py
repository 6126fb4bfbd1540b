"""Failover ledger: the invariants of a replica group, checked after each step of a simulation.

a. A master of an older epoch confirms nothing past the start of a later one.
b. Every member that may be elected has every confirmed byte, and so has every member that is.
c. All members have the same bytes up to their confirm offsets.
d. A member's confirm offset never falls, except by bytes that a power cut took.
"""

from __future__ import annotations

from orbitlog.replication.group.group_state import GroupState
from orbitlog.testing.failover.model_disk import ModelDisk


class InvariantViolation(AssertionError):
    """A step broke an invariant; the message names it."""


class CopyProgress:
    """One member's log against the confirmed bytes: compared once, up to `verified_to`.

    A member that has lost bytes may be in the in-sync set until it has recorded its restart: it does that before it can
    be elected.
    """

    def __init__(self, disk: ModelDisk) -> None:
        self.disk = disk
        self.verified_to = 0
        self.has_lost_bytes = False
        self.restarts = 0


class FailoverLedger:
    """Confirmed bytes of a group, and each member's copy of them."""

    def __init__(self, disks: dict[int, ModelDisk]) -> None:
        self.confirmed = bytearray()
        self.copies = {member_id: CopyProgress(disk) for member_id, disk in disks.items()}
        self._epoch_starts: list[tuple[int, int]] = []

    def has_all(self, member_id: int) -> bool:
        """Return whether a member's log starts with all confirmed bytes."""
        copy = self.copies[member_id]
        length = len(self.confirmed)
        return copy.verified_to >= length or self._verify(copy, length) == length

    def _verify(self, copy: CopyProgress, stop: int) -> int:
        stop = min(stop, len(copy.disk.data), len(self.confirmed))
        start = copy.verified_to
        if start < stop and copy.disk.data[start:stop] == self.confirmed[start:stop]:
            copy.verified_to = stop
        return copy.verified_to

    def master_confirmed(self, member_id: int, epoch: int, physical_offset: int) -> None:
        """Take what a master acknowledges."""
        for later, start in reversed(self._epoch_starts):
            if later <= epoch:
                break
            if physical_offset > start:
                raise InvariantViolation(
                    f"(a) master {member_id} of epoch {epoch} confirms {physical_offset},"
                    f" but epoch {later} began at {start}"
                )
        length = len(self.confirmed)
        if physical_offset > length:
            self.confirmed += self.copies[member_id].disk.data[length:physical_offset]
        self.member_confirmed(member_id, physical_offset)

    def member_confirmed(self, member_id: int, physical_offset: int) -> None:
        """Take the confirm offset of any member."""
        if self._verify(self.copies[member_id], physical_offset) < physical_offset:
            raise InvariantViolation(f"(c) member {member_id} confirms {physical_offset}, but its bytes are others")

    def log_cut(self, member_id: int, end: int) -> None:
        """Take a cut of a member's log, or a loss of its last bytes."""
        copy = self.copies[member_id]
        copy.verified_to = min(copy.verified_to, end)

    def check_cut(self, member_id: int, end: int) -> None:
        """Raise if a member cuts bytes that it had confirmed."""
        confirmed_to = self.copies[member_id].disk.confirmed_to
        if end < confirmed_to:
            raise InvariantViolation(
                f"(d) member {member_id} cuts its log at {end}, below its confirmed {confirmed_to}"
            )

    def state_recorded(self, state: GroupState, proposer: int, *, has_ended: bool) -> None:
        """Take a state that the coordinator has recorded; `has_ended`: the process that proposed it.

        A member that a handover names is not elected by it: it elects itself, or leaves if it has lost bytes.
        """
        for member_id, copy in self.copies.items():
            if copy.has_lost_bytes and (
                state.members.get(member_id, 0) > copy.restarts or state.in_sync == {member_id}
            ):
                copy.has_lost_bytes = False
        if self._epoch_starts and state.epoch == self._epoch_starts[-1][0]:
            return
        self._epoch_starts.append((state.epoch, state.start))
        # A proposal that was on its way when the member lost its disk takes effect; the member leaves before it serves.
        is_void = has_ended and self.copies[proposer].has_lost_bytes
        if state.master == proposer and not is_void and not self.has_all(proposer):
            raise InvariantViolation(f"(b) member {proposer} was elected and lacks confirmed bytes: {state}")

    def check(self, state: GroupState | None) -> None:
        """Raise if a member that may be elected lacks confirmed bytes."""
        if state is None:
            return
        length = len(self.confirmed)
        for member_id in state.in_sync:
            copy = self.copies[member_id]
            if copy.verified_to < length and not copy.has_lost_bytes and self._verify(copy, length) < length:
                raise InvariantViolation(f"(b) member {member_id} is in sync and lacks confirmed bytes: {state}")

    def bytes_lost(self, member_id: int, state: GroupState | None) -> None:
        """Take a loss of bytes that the member may have reported."""
        copy = self.copies[member_id]
        if state is not None:
            copy.has_lost_bytes = True
            copy.restarts = state.members.get(member_id, 0)

    def may_lose_power(self, member_id: int, state: GroupState | None) -> bool:
        """Return whether another member of the in-sync set has kept everything; else a loss is not covered."""
        if state is None or member_id not in state.in_sync:
            return True
        return any(other != member_id and not self.copies[other].has_lost_bytes for other in state.in_sync)
