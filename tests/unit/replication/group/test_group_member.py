"""Group member: single rules of the state machine, with the actions in their order."""

from __future__ import annotations

import pytest

from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.replication.group import actions
from orbitlog.replication.group.epoch_history import EpochHistory
from orbitlog.replication.group.group_member import GroupMember, Role
from orbitlog.replication.group.group_state import GroupState, LiveMember, Proposal, Snapshot
from orbitlog.replication.group.member_context import GroupLimits
from orbitlog.replication.group.replica_log import ReplicaLog
from orbitlog.wire.replication.epoch_frames import EpochReport, Handshake, HandshakeAnswer, TransferHead

LIVE = {member: LiveMember(member * 10) for member in (1, 2, 3)}


def member_of(
    member_id: int, *entries: tuple[int, int], end: int = 0, lost: bool = False, limits: GroupLimits | None = None
) -> GroupMember:
    history = EpochHistory(EpochEntry(*entry) for entry in entries)
    log = ReplicaLog(history, 0, end, end, 0)
    member = GroupMember(member_id, limits or GroupLimits(), log, lost_bytes=lost)
    member.registered(member_id * 10)
    return member


def state_of(epoch: int, master: int | None, *in_sync: int, token: str = "t", start: int = 0) -> GroupState:
    return GroupState(epoch, master, frozenset(in_sync), start, dict.fromkeys(in_sync, 0), token)


def taken(member: GroupMember) -> list[actions.Action]:
    taken_actions = list(member.actions)
    member.actions.clear()
    return taken_actions


def proposals(found: list[actions.Action]) -> list[Proposal]:
    return [action.proposal for action in found if isinstance(action, actions.Propose)]


def proposal_in(found: list[actions.Action]) -> Proposal:
    (proposed,) = proposals(found)
    return proposed


def elected(member: GroupMember, state: GroupState, revision: int = 5) -> GroupState:
    """Drive a member that the state names as master through its election."""
    member.observe(Snapshot(revision, state, LIVE))
    taken(member)
    member.log_settled(member.log.end)
    proposed = proposal_in(taken(member)).state
    member.proposal_answered(proposed.token, Snapshot(revision + 1, proposed, LIVE))
    return proposed


def master_of(*in_sync: int, end: int = 100) -> GroupMember:
    member = member_of(1, (1, 0), end=end)
    elected(member, state_of(1, 1, *in_sync))
    taken(member)
    return member


def connect(master: GroupMember, connection: int, slave: int, end: int) -> None:
    master.handshake(connection, Handshake(slave))
    master.report(connection, EpochReport(end))


def test_restarted_master_serves_in_an_epoch_of_its_own_and_saves_it_first() -> None:
    member = member_of(1, (1, 0), end=100)
    assert elected(member, state_of(1, 1, 1, 2)).epoch == 2
    assert member.role is Role.MASTER
    saved, role = taken(member)[-2:]
    assert saved == actions.SaveEpochs((EpochEntry(1, 0), EpochEntry(2, 100)))
    assert isinstance(role, actions.RoleChanged)


def test_candidate_closes_its_connection_before_it_proposes_itself() -> None:
    member = member_of(2, (1, 0), end=100)
    member.observe(Snapshot(5, state_of(1, 1, 1, 2), LIVE))
    member.observe(Snapshot(5, state_of(1, 1, 1, 2), {2: LIVE[2]}))
    taken(member)
    member.tick(10.0)
    kinds = [type(action) for action in taken(member)]
    assert kinds.index(actions.HangUp) < kinds.index(actions.SettleLog)
    assert member.following is None
    member.log_settled(96)
    proposed = proposal_in(taken(member))
    assert (proposed.absent_member, proposed.state.start) == (1, 96)
    assert proposed.state.in_sync == {2}


def test_member_outside_of_the_set_does_not_stand() -> None:
    member = member_of(3, (1, 0), end=100)
    member.observe(Snapshot(5, state_of(1, 1, 1, 2), {3: LIVE[3]}))
    member.tick(10.0)
    assert member.role is Role.FENCED


def test_nothing_is_done_before_the_member_is_registered() -> None:
    log = ReplicaLog(EpochHistory(), 0, 0, 0, 0)
    member = GroupMember(1, GroupLimits(), log)
    member.observe(Snapshot(0, None, {}))
    assert (taken(member), member.role) == ([], Role.FENCED)


def test_member_without_state_and_with_a_log_stays_fenced() -> None:
    member = member_of(1, (1, 0), end=100)
    member.observe(Snapshot(0, None, LIVE))
    assert member.role is Role.FENCED
    assert "not empty" in member.reason


def test_forced_election_takes_the_log_as_it_is() -> None:
    member = member_of(3, (1, 0), end=100)
    member.observe(Snapshot(5, state_of(1, 1, 1, 2), {3: LIVE[3]}))
    taken(member)
    member.force_election()
    member.log_settled(100)
    proposed = proposal_in(taken(member))
    assert (proposed.state.in_sync, proposed.state.epoch, proposed.absent_member) == ({3}, 2, None)


def test_master_confirms_what_all_members_of_the_set_reported() -> None:
    master = master_of(1, 2, 3)
    connect(master, 1, 2, 100)
    assert master.log.confirmed_to == 0
    connect(master, 2, 3, 100)
    assert master.log.confirmed_to == 100
    master.appended(150)
    assert master.leadership is not None
    for connection in (1, 2):
        assert master.leadership.plan_transfer(connection, 500) == TransferHead(50, 100, 2, 100, 100)
    master.report(1, EpochReport(150))
    assert master.log.confirmed_to == 100
    master.report(2, EpochReport(149))
    assert master.log.confirmed_to == 100
    master.report(2, EpochReport(150))
    assert master.log.confirmed_to == 150


@pytest.mark.parametrize("end", [101, 10**12])
def test_report_past_the_masters_end_closes_the_connection(end: int) -> None:
    master = master_of(1, 2)
    connect(master, 1, 2, end)
    assert actions.HangUp(1) in taken(master)
    assert master.log.confirmed_to == 0


def test_report_past_what_was_sent_closes_the_connection() -> None:
    master = master_of(1, 2)
    connect(master, 1, 2, 50)
    master.report(1, EpochReport(100))
    assert actions.HangUp(1) in taken(master)


def test_member_is_required_from_before_the_proposal_that_adds_it() -> None:
    master = master_of(1)
    assert master.log.confirmed_to == 100
    connect(master, 1, 2, 100)
    assert proposal_in(taken(master)).state.in_sync == {1, 2}
    master.appended(150)
    assert master.log.confirmed_to == 100


def test_lost_answer_keeps_the_member_required_and_is_recognised_by_its_token() -> None:
    master = master_of(1)
    connect(master, 1, 2, 100)
    proposed = proposal_in(taken(master))
    master.proposal_lost(proposed.state.token)
    master.appended(150)
    master.observe(Snapshot(6, master.context.desk.state, LIVE))
    assert master.log.confirmed_to == 100
    taken(master)
    master.tick(1.0)
    assert proposal_in(taken(master)) == proposed
    master.observe(Snapshot(7, proposed.state, LIVE))
    assert master.leadership is not None
    assert master.leadership.term.recorded == {1, 2}


def test_stalled_member_is_required_until_its_removal_is_recorded() -> None:
    master = master_of(1, 2)
    connect(master, 1, 2, 100)
    master.appended(150)
    taken(master)
    master.tick(5.5)
    proposed = proposal_in(taken(master)).state
    assert (proposed.in_sync, master.log.confirmed_to) == ({1}, 100)
    master.proposal_answered(proposed.token, Snapshot(7, proposed, LIVE))
    assert master.log.confirmed_to == 150


def test_report_from_before_a_restart_with_losses_no_longer_counts() -> None:
    master = master_of(1, 2)
    connect(master, 1, 2, 100)
    taken(master)
    state = master.context.desk.state
    assert state is not None
    master.observe(Snapshot(7, state.without(2, "2-99-1"), LIVE))
    assert taken(master) == [actions.HangUp(1)]


def test_master_steps_down_when_it_sees_a_later_epoch() -> None:
    master = master_of(1, 2)
    connect(master, 1, 2, 100)
    taken(master)
    master.observe(Snapshot(9, state_of(3, 2, 2), LIVE))
    kinds = [type(action) for action in taken(master)]
    assert kinds.index(actions.HangUp) < kinds.index(actions.Dial)
    assert master.role is Role.SLAVE


def test_stale_snapshot_is_ignored() -> None:
    master = master_of(1, 2)
    master.observe(Snapshot(3, state_of(9, 2, 2), LIVE))
    assert master.role is Role.MASTER


def slave_of(*entries: tuple[int, int], end: int, epoch: int = 5) -> tuple[GroupMember, int]:
    slave = member_of(2, *entries, end=end)
    slave.observe(Snapshot(5, state_of(epoch, 1, 1), LIVE))
    (dialed,) = [action for action in taken(slave) if isinstance(action, actions.Dial)]
    slave.connected(dialed.connection)
    assert taken(slave) == [actions.SendFrame(dialed.connection, Handshake(2))]
    return slave, dialed.connection


def test_returning_master_keeps_its_tail_before_it_cuts_it() -> None:
    slave, connection = slave_of((1, 0), end=1302)
    entries = (EpochEntry(1, 0), EpochEntry(5, 930))
    slave.handshake_answered(connection, HandshakeAnswer(1314, 5, entries))
    assert taken(slave) == [
        actions.KeepTail(1, 930, 1302),
        actions.CutLog(930),
        actions.SaveEpochs(entries),
        actions.SendFrame(connection, EpochReport(930)),
    ]


def test_epoch_is_saved_before_its_first_byte_is_appended() -> None:
    slave, connection = slave_of((1, 0), end=900)
    entries = (EpochEntry(1, 0), EpochEntry(5, 930))
    slave.handshake_answered(connection, HandshakeAnswer(1314, 5, entries))
    slave.transfer(connection, TransferHead(30, 900, 1, 0, 0), b"a" * 30)
    assert not any(isinstance(action, actions.SaveEpochs) for action in taken(slave))
    slave.transfer(connection, TransferHead(10, 930, 5, 930, 930), b"b" * 10)
    assert taken(slave) == [
        actions.SaveEpochs(entries),
        actions.AppendLog(930, b"b" * 10),
        actions.SendFrame(connection, EpochReport(940)),
        actions.Confirmed(930),
    ]


def test_handshake_of_a_deposed_master_is_refused() -> None:
    slave, connection = slave_of((1, 0), end=900)
    slave.handshake_answered(connection, HandshakeAnswer(1314, 4, (EpochEntry(1, 0), EpochEntry(4, 930))))
    assert actions.HangUp(connection) in taken(slave)


def test_log_of_another_group_is_not_cut() -> None:
    slave, connection = slave_of((3, 0), end=900)
    slave.log.confirmed_to = 500
    slave.handshake_answered(connection, HandshakeAnswer(1314, 5, (EpochEntry(5, 0),)))
    assert not any(isinstance(action, actions.CutLog) for action in taken(slave))
    assert slave.following is not None
    assert "no epoch in common" in slave.following.reason


@pytest.mark.parametrize(("epoch", "offset"), [(5, 899), (5, 901), (6, 900)])
def test_transfer_with_a_gap_or_another_epoch_closes_the_connection(epoch: int, offset: int) -> None:
    slave, connection = slave_of((1, 0), end=900)
    slave.handshake_answered(connection, HandshakeAnswer(900, 5, (EpochEntry(1, 0), EpochEntry(5, 900))))
    taken(slave)
    slave.transfer(connection, TransferHead(1, offset, epoch, 900, 0), b"x")
    assert actions.HangUp(connection) in taken(slave)
    assert slave.log.end == 900


def test_epochs_of_lost_bytes_are_removed_on_disk_at_the_start() -> None:
    member = member_of(2, (1, 0), (3, 500), end=400)
    assert taken(member)[0] == actions.SaveEpochs((EpochEntry(1, 0),))


def test_member_that_may_have_lost_bytes_leaves_first_and_then_notes_it() -> None:
    member = member_of(2, (1, 0), end=100, lost=True)
    member.observe(Snapshot(5, state_of(1, 1, 1, 2), LIVE))
    found = taken(member)
    proposed = proposal_in(found).state
    assert (proposed.in_sync, proposed.members) == ({1}, {1: 0, 2: 1})
    assert not any(isinstance(action, actions.Dial | actions.RestartRecorded) for action in found)
    member.proposal_answered(proposed.token, Snapshot(6, proposed, LIVE))
    kinds = [type(action) for action in taken(member)]
    assert kinds.index(actions.RestartRecorded) < kinds.index(actions.Dial)


def test_only_member_of_the_set_stays_after_lost_bytes() -> None:
    member = member_of(2, (1, 0), end=100, lost=True)
    assert elected(member, state_of(1, 2, 2)).in_sync == {2}


def new_member(member_id: int) -> GroupMember:
    """Return a member with a store that has never been its own."""
    member = GroupMember(member_id, GroupLimits(), ReplicaLog(EpochHistory(), 0, 0, 0, 0), is_new=True)
    member.registered(member_id * 10)
    return member


def test_in_sync_master_with_a_new_store_resigns_and_then_follows() -> None:
    member = new_member(1)
    member.observe(Snapshot(5, state_of(3, 1, 1, 2), LIVE))
    resigned = proposal_in(taken(member)).state
    assert (resigned.master, resigned.in_sync, resigned.members[1]) == (None, {2}, 1)
    member.proposal_answered(resigned.token, Snapshot(6, resigned, LIVE))
    assert actions.RestartRecorded() in taken(member)
    member.observe(Snapshot(7, state_of(4, 2, 2, token="u"), LIVE))
    assert member.role is Role.SLAVE


def test_only_in_sync_member_with_a_new_store_serves_after_a_forced_election_only() -> None:
    member = new_member(2)
    state = state_of(3, 2, 2)
    member.observe(Snapshot(5, state, LIVE))
    assert (member.role, proposals(taken(member))) == (Role.FENCED, [])
    assert "old store" in member.reason
    member.force_election()
    member.log_settled(0)
    proposed = proposal_in(taken(member)).state
    member.proposal_answered(proposed.token, Snapshot(6, proposed, LIVE))
    assert (member.role, proposed.epoch) == (Role.MASTER, 4)
    assert actions.RestartRecorded() in taken(member)


def test_founder_notes_its_store_before_it_proposes_the_group() -> None:
    member = new_member(1)
    member.observe(Snapshot(0, None, LIVE))
    kinds = [type(action) for action in taken(member)]
    assert kinds.index(actions.RestartRecorded) < kinds.index(actions.Propose)


def test_handover_refuses_sends_and_waits_until_everything_is_confirmed() -> None:
    master = master_of(1, 2)
    connect(master, 1, 2, 50)
    assert master.accepts_sends
    assert not master.hand_over(3)
    assert master.hand_over(2)
    assert not master.accepts_sends
    assert not any(isinstance(action, actions.Propose) for action in taken(master))
    assert master.leadership is not None
    master.leadership.plan_transfer(1, 500)
    master.report(1, EpochReport(100))
    master.tick(0.1)
    proposed = proposal_in(taken(master)).state
    assert (proposed.master, proposed.epoch, proposed.start, proposed.in_sync) == (2, 3, 100, {1, 2})


def test_async_master_takes_no_sends_after_its_lease_has_ended() -> None:
    member = member_of(1, (1, 0), end=100, limits=GroupLimits(acks_alone=True))
    elected(member, state_of(1, 1, 1))
    member.lease_renewed(5.0)
    assert member.accepts_sends
    member.tick(5.0)
    assert not member.accepts_sends


def test_master_of_a_small_set_takes_no_sends() -> None:
    member = member_of(1, (1, 0), end=100, limits=GroupLimits(min_in_sync=2))
    elected(member, state_of(1, 1, 1))
    assert not member.accepts_sends


def test_member_with_a_failed_disk_leaves_and_takes_no_role() -> None:
    master = master_of(1, 2)
    master.retire("the disk failed")
    proposed = proposal_in(taken(master)).state
    assert (proposed.master, proposed.in_sync) == (None, {2})
    master.proposal_answered(proposed.token, Snapshot(9, proposed, LIVE))
    assert (master.role, master.reason) == (Role.FENCED, "the disk failed")


def test_handover_waits_until_the_next_master_has_the_tables() -> None:
    member = member_of(1, (1, 0), end=100, limits=GroupLimits(copies_tables=True))
    elected(member, state_of(1, 1, 1, 2))
    connect(member, 1, 2, 100)
    taken(member)
    assert member.leadership is not None
    member.leadership.tables_reported(2, 1)
    assert member.hand_over(2)
    assert not [action for action in taken(member) if isinstance(action, actions.Propose)]
    member.leadership.tables_reported(2, member.leadership.term.tables_number)
    assert proposal_in(taken(member)).state.master == 2
