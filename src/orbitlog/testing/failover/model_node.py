"""Model node: the process around one simulated group member. Carries out its actions on a model disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from orbitlog.replication.group.actions import (
    Action,
    AppendLog,
    Confirmed,
    CutLog,
    Dial,
    FlushLog,
    HangUp,
    KeepTail,
    Propose,
    ReadState,
    RestartRecorded,
    RoleChanged,
    SaveEpochs,
    SendFrame,
    SettleLog,
)
from orbitlog.replication.group.group_member import GroupMember
from orbitlog.replication.group.member_context import GroupLimits
from orbitlog.testing.failover.failover_ledger import FailoverLedger, InvariantViolation
from orbitlog.testing.failover.model_disk import ModelDisk


class World(Protocol):
    """What a node reaches beyond its own machine."""

    ledger: FailoverLedger

    def dial(self, node: ModelNode, action: Dial) -> None: ...
    def hang_up(self, node: ModelNode, connection: int) -> None: ...
    def send(self, node: ModelNode, action: SendFrame) -> None: ...
    def request(self, node: ModelNode, action: ReadState | Propose | None) -> None: ...


class ModelNode:
    """One member: its disk, and its process while that runs."""

    def __init__(self, member_id: int, disk: ModelDisk, world: World, limits: GroupLimits, acks_flushed: bool) -> None:
        self.member_id = member_id
        self.disk = disk
        self.world = world
        self.limits = limits
        self.acks_flushed = acks_flushed
        self.run = 0
        self.member: GroupMember | None = None
        self.is_paused = False
        self.may_have_lost_bytes = False
        self.is_registering = False
        self.actions_left = -1
        """Actions until a kill that was scheduled; -1: none."""
        self.clock_s = 0.0

    def start(self) -> None:
        """Start the process: recover the log, and register."""
        self.run += 1
        log = self.disk.open(self.acks_flushed)
        self.world.ledger.log_cut(self.member_id, log.end)
        lost_bytes = self.may_have_lost_bytes and not self.acks_flushed
        self.member = GroupMember(self.member_id, self.limits, log, lost_bytes=lost_bytes, is_new=self.disk.is_new)
        self.member.context.now_s = self.clock_s
        self.is_registering = False
        self.carry_out()

    def stop(self) -> None:
        """End the process at once; the disk keeps what was written."""
        self.member = None
        self.is_paused = False
        self.actions_left = -1

    def carry_out(self) -> None:
        """Carry out the member's actions in order. A scheduled kill ends the process between two of them."""
        member = self.member
        if member is None:
            return
        actions = member.actions
        position = 0
        while position < len(actions):
            if self.actions_left >= 0:
                self.actions_left -= 1
                if self.actions_left < 0:
                    self.member = None
                    return
            action = actions[position]
            position += 1
            _CARRY_OUT[type(action)](self, member, action)
        actions.clear()

    # One function for each kind of action

    def _append(self, _: GroupMember, action: AppendLog) -> None:
        assert action.physical_offset == len(self.disk.data)
        self.disk.append(action.body)

    def _keep_tail(self, _: GroupMember, action: KeepTail) -> None:
        self.disk.kept_tails.append(
            (action.physical_offset, bytes(self.disk.data[action.physical_offset : action.end]))
        )

    def _cut(self, _: GroupMember, action: CutLog) -> None:
        end = action.physical_offset
        self.world.ledger.check_cut(self.member_id, end)
        tails = self.disk.kept_tails
        if not tails or tails[-1] != (end, bytes(self.disk.data[end:])):
            raise InvariantViolation(f"member {self.member_id} cuts its log at {end} and did not keep the tail")
        self.disk.cut(end)
        self.world.ledger.log_cut(self.member_id, end)

    def _flush(self, _: GroupMember, __: FlushLog) -> None:
        self.disk.synced_to = len(self.disk.data)

    def _settle(self, member: GroupMember, _: SettleLog) -> None:
        end = self.disk.settle()
        self.world.ledger.log_cut(self.member_id, end)
        member.log_settled(end)

    def _save_epochs(self, _: GroupMember, action: SaveEpochs) -> None:
        self.disk.epochs = action.entries

    def _restart_recorded(self, _: GroupMember, __: RestartRecorded) -> None:
        self.may_have_lost_bytes = self.disk.is_new = False

    def _confirmed(self, member: GroupMember, action: Confirmed) -> None:
        offset = action.physical_offset
        if member.leadership is not None:
            self.world.ledger.master_confirmed(self.member_id, member.leadership.term.epoch, offset)
        else:
            self.world.ledger.member_confirmed(self.member_id, offset)
        self.disk.confirmed_to = offset

    def _dial(self, _: GroupMember, action: Dial) -> None:
        self.world.dial(self, action)

    def _hang_up(self, _: GroupMember, action: HangUp) -> None:
        self.world.hang_up(self, action.connection)

    def _send(self, _: GroupMember, action: SendFrame) -> None:
        self.world.send(self, action)

    def _request(self, _: GroupMember, action: ReadState | Propose) -> None:
        self.world.request(self, action)

    def _role_changed(self, _: GroupMember, action: Action) -> None:
        """Nothing: roles are read from the member."""


_CARRY_OUT: dict[type, Callable[[ModelNode, GroupMember, Any], None]] = {
    AppendLog: ModelNode._append,
    KeepTail: ModelNode._keep_tail,
    CutLog: ModelNode._cut,
    FlushLog: ModelNode._flush,
    SettleLog: ModelNode._settle,
    SaveEpochs: ModelNode._save_epochs,
    RestartRecorded: ModelNode._restart_recorded,
    Confirmed: ModelNode._confirmed,
    Dial: ModelNode._dial,
    HangUp: ModelNode._hang_up,
    SendFrame: ModelNode._send,
    ReadState: ModelNode._request,
    Propose: ModelNode._request,
    RoleChanged: ModelNode._role_changed,
}
