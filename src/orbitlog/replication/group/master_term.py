"""Master term: the followers of one master in one epoch, and the offset that its in-sync set has. Without I/O or clock.

A byte is confirmed when every member of the in-sync set has reported it on a connection of this term. While a change of
the set is under way the old and the proposed members count, until its outcome is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

# A member that lacks bytes freezes the confirm offset, which copies of tables wait for. It is removed first.
_TABLE_PATIENCES = 3
# Ends of appends that wait for confirmation. Beyond it neighbours are merged, and confirmed together.
_BOUNDARIES_MAX = 65536
# Members outside of the in-sync set that are remembered: slaves state their ids themselves.
_REMEMBERED_MAX = 1024

Value = TypeVar("Value", int, float)


@dataclass(slots=True)
class Follower:
    """A slave connected to this master; offsets are -1 until its first report.

    `restarts` is its count in the group state at the handshake: if it grows, the slave may have lost what it reported.
    """

    connection: int
    member_id: int
    restarts: int
    caught_up_s: float
    is_learner: bool = False
    sent_to: int = -1
    acked_to: int = -1


class MasterTerm:
    """One epoch of a master; `start` is the end of its log when it was elected."""

    def __init__(
        self, member_id: int, epoch: int, start: int, in_sync: frozenset[int], now_s: float, *, tables_number: int = 0
    ) -> None:
        self.member_id = member_id
        self.epoch = epoch
        self.start = start
        self.recorded = in_sync
        self.handover_to: int | None = None
        self.followers: dict[int, Follower] = {}
        self.by_member: dict[int, Follower] = {}
        self._boundaries: deque[int] = deque((start,))
        self._absent_s: dict[int, float] = {}
        self._began_s = now_s
        self.tables_number = tables_number
        """Number of the last change of a table; at the start of a term no member has the first one."""
        self._tables_of: dict[int, int] = {}
        self._tables_lag_s: dict[int, float] = {}

    # Followers

    def add(self, follower: Follower) -> None:
        """Count a follower from now on; its earlier connection must have been removed."""
        assert follower.member_id not in self.by_member
        self.followers[follower.connection] = follower
        self.by_member[follower.member_id] = follower

    def remove(self, connection: int, now_s: float) -> None:
        """Stop counting a connection; does nothing if it is unknown."""
        follower = self.followers.pop(connection, None)
        if follower is not None:
            del self.by_member[follower.member_id]
            self._remember(self._absent_s, follower.member_id, now_s)

    # Confirmation

    def required(self, proposed: frozenset[int]) -> frozenset[int]:
        """Return the members that must have a byte before it is confirmed."""
        return self.recorded | proposed

    def replicated_to(self, own_offset: int, proposed: frozenset[int]) -> int:
        """Return the offset that every required member has reported; -1 if one of them never did."""
        lowest = own_offset
        for member_id in self.required(proposed):
            if member_id == self.member_id:
                continue
            follower = self.by_member.get(member_id)
            if follower is None:
                return -1
            lowest = min(lowest, follower.acked_to)
        return lowest

    def appended(self, end: int) -> None:
        """Note the end of an append: only whole appends are confirmed, or a failover could cut a record in half."""
        if len(self._boundaries) >= _BOUNDARIES_MAX:
            self._boundaries.pop()
        self._boundaries.append(end)

    def last_boundary(self, physical_offset: int) -> int:
        """Return the last end of an append at or before an offset and forget earlier ones; -1 without one."""
        boundary = -1
        while self._boundaries and self._boundaries[0] <= physical_offset:
            boundary = self._boundaries.popleft()
        return boundary

    # Tables beside the log

    def change_tables(self, now_s: float) -> int:
        """Return the number of a change of a table that is about to be replicated."""
        for member_id in self.recorded:
            if self.has_tables(member_id, self.tables_number):
                self._tables_lag_s[member_id] = now_s
        self.tables_number += 1
        return self.tables_number

    def tables_reported(self, member_id: int, number: int, now_s: float) -> None:
        """Note that a member has saved the tables of this master as they were at a change, or later."""
        if self._tables_of.get(member_id, 0) < number <= self.tables_number:
            self._remember(self._tables_of, member_id, number)
            self._remember(self._tables_lag_s, member_id, now_s)

    def _remember(self, values: dict[int, Value], member_id: int, value: Value) -> None:
        """Set a value; forget that of the member outside of the in-sync set that was set longest ago."""
        values.pop(member_id, None)
        values[member_id] = value
        if len(values) > _REMEMBERED_MAX + len(self.recorded):
            del values[next(member for member in values if member not in self.recorded)]

    def has_tables(self, member_id: int, number: int) -> bool:
        """Return whether a member has the tables as they were at a change, or later."""
        return member_id == self.member_id or self._tables_of.get(member_id, 0) >= number

    def are_tables_replicated(self, number: int, proposed: frozenset[int]) -> bool:
        """Return whether every required member has the tables as they were at a change, or later."""
        return all(self.has_tables(member_id, number) for member_id in self.required(proposed))

    def _lacks_tables(self, member_id: int, now_s: float, patience_s: float) -> bool:
        if self.has_tables(member_id, self.tables_number):
            return False
        return now_s - self._tables_lag_s.get(member_id, self._began_s) > _TABLE_PATIENCES * patience_s

    # Members to add and to remove

    def stalled(self, now_s: float, patience_s: float) -> Iterator[int]:
        """Yield in-sync members that have not had the whole log for longer than `patience_s`, or lack tables."""
        for member_id in self.recorded:
            if member_id == self.member_id:
                continue
            follower = self.by_member.get(member_id)
            since_s = self._absent_s.get(member_id, self._began_s) if follower is None else follower.caught_up_s
            if now_s - since_s > patience_s or self._lacks_tables(member_id, now_s, patience_s):
                yield member_id

    def eligible(self, confirmed_to: int) -> Iterator[int]:
        """Yield followers outside of the set that have everything that any master has acknowledged.

        Bytes that earlier masters acknowledged are before the start of this epoch, later ones before the confirm
        offset. A member whose log was cut may have tables that are ahead of it, until it has copied those of this
        master.
        """
        needed = max(confirmed_to, self.start)
        for follower in self.followers.values():
            member_id = follower.member_id
            if follower.is_learner or member_id in self.recorded or follower.acked_to < needed:
                continue
            if self.has_tables(member_id, self.tables_number):
                yield member_id
