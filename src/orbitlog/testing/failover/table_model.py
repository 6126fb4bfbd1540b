"""Table model: tables beside the log in a simulated group. A table is the set of changes that it contains.

Copies and reports are on their way for any time, and may be lost. Invariant (f): every member that may be elected has
every change that was acknowledged.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitlog.replication.group.group_state import GroupState
from orbitlog.replication.group.master_term import MasterTerm
from orbitlog.testing.failover.failover_ledger import InvariantViolation
from orbitlog.testing.failover.model_node import ModelNode

Table = frozenset[int]


class _Change(NamedTuple):
    """A change that its master has not acknowledged yet."""

    change_id: int
    master: int
    term: MasterTerm
    number: int


class _Copy(NamedTuple):
    """A master's table on its way to a slave, and afterwards the slave's report that it is saved."""

    slave: int
    run: int
    master: int
    epoch: int
    number: int
    table: Table


class TableModel:
    """The saved tables of a group's members."""

    def __init__(self, nodes: list[ModelNode]) -> None:
        self._nodes = nodes
        self.saved: dict[int, Table] = {node.member_id: frozenset() for node in nodes}
        self.acknowledged: set[int] = set()
        self._changes: list[_Change] = []
        self._copies: dict[int, _Copy] = {}  # a slave copies one table at a time
        self._reports: list[_Copy] = []
        self._change_count = 0
        self._wiped: set[int] = set()

    def wipe(self, member_id: int) -> None:
        """Lose a member's tables with its disk; it may be in the in-sync set until it has recorded that."""
        self.saved[member_id] = frozenset()
        self._wiped.add(member_id)

    def change(self, node: ModelNode) -> bool:
        """Change the table of a node that takes itself for the master; it saves the change itself first."""
        leadership = None if node.member is None or node.is_paused else node.member.leadership
        if leadership is None:
            return False
        self._change_count += 1
        self.saved[node.member_id] |= {self._change_count}
        number = leadership.term.change_tables(node.clock_s)
        self._changes.append(_Change(self._change_count, node.member_id, leadership.term, number))
        return True

    def fetch(self, node: ModelNode) -> bool:
        """Read the table of the master that a slave follows."""
        following = None if node.member is None or node.is_paused else node.member.following
        if following is None or not following.is_following:
            return False
        master = self._nodes[following.master - 1]
        leadership = None if master.member is None or master.is_paused else master.member.leadership
        if leadership is None or leadership.term.epoch != following.epoch:
            return False
        self._copies[node.member_id] = _Copy(
            node.member_id,
            node.run,
            following.master,
            following.epoch,
            leadership.term.tables_number,
            self.saved[following.master],
        )
        return True

    def save(self, node: ModelNode) -> bool:
        """Save a table that has arrived. It is reported only to the master of the epoch that is still followed."""
        copy = self._copies.pop(node.member_id, None)
        member = node.member
        if copy is None or copy.run != node.run or member is None or member.leadership is not None:
            return False  # a broker is rebuilt before it serves as master, which ends its copies
        self.saved[node.member_id] = copy.table
        following = member.following
        if following is not None and following.master == copy.master and following.epoch == copy.epoch:
            self._reports.append(copy)
        return True

    def report(self, choice: int) -> bool:
        """Deliver any report, also a late one; some are lost."""
        if not self._reports:
            return False
        report = self._reports.pop((choice >> 3) % len(self._reports))
        master = self._nodes[report.master - 1]
        leadership = None if master.member is None or master.is_paused else master.member.leadership
        if leadership is None or leadership.term.epoch != report.epoch or choice & 7 == 0:
            return False
        leadership.tables_reported(report.slave, report.number)
        master.carry_out()
        return True

    def check(self, state: GroupState | None) -> None:
        """Acknowledge what is replicated; raise if a member that may be elected lacks an acknowledged change."""
        waiting = []
        for change in self._changes:
            member = self._nodes[change.master - 1].member
            if member is None or member.leadership is None or member.leadership.term is not change.term:
                continue
            if change.term.are_tables_replicated(change.number, member.context.desk.proposed):
                self.acknowledged.add(change.change_id)
            else:
                waiting.append(change)
        self._changes = waiting
        copies = self._nodes[0].world.ledger.copies
        self._wiped = {member_id for member_id in self._wiped if copies[member_id].has_lost_bytes}
        for member_id in state.in_sync - self._wiped if state is not None else ():
            lacking = self.acknowledged - self.saved[member_id]
            if lacking:
                raise InvariantViolation(
                    f"(f) member {member_id} is in sync and lacks acknowledged changes {sorted(lacking)[:5]}: {state}"
                )
