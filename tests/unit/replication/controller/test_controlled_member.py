"""Controlled member: what it does when Apache's controller names a master, and when it may be elected."""

from __future__ import annotations

from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.replication.controller.controlled_member import ControlledMember
from orbitlog.replication.controller.controller_coordinator import revision_of
from orbitlog.replication.group import actions
from orbitlog.replication.group.epoch_history import EpochHistory
from orbitlog.replication.group.group_member import Role
from orbitlog.replication.group.group_state import GroupState, LiveMember, Proposal, Snapshot
from orbitlog.replication.group.member_context import GroupLimits
from orbitlog.replication.group.replica_log import ReplicaLog
from orbitlog.wire.replication.epoch_frames import EpochReport, Handshake, HandshakeAnswer, TransferHead

LIVE = {member: LiveMember(1, f"ha:{member}", f"at:{member}") for member in (1, 2, 3)}
LIMITS = GroupLimits(min_in_sync=0, retry_s=1.0, patience_s=5.0)


def member_of(
    member_id: int,
    *entries: tuple[int, int],
    end: int = 0,
    lost: bool = False,
    is_new: bool = False,
    limits: GroupLimits = LIMITS,
) -> ControlledMember:
    log = ReplicaLog(EpochHistory(EpochEntry(*entry) for entry in entries), 0, end, end, 0)
    member = ControlledMember(member_id, limits, log, lost_bytes=lost, is_new=is_new)
    member.registered(1)
    return member


def snapshot(
    epoch: int, master: int | None, *in_sync: int, set_epoch: int = 1, known: tuple[int, ...] = (1, 2, 3)
) -> Snapshot:
    state = GroupState(epoch, master, frozenset(in_sync), 0, dict.fromkeys(known, 0))
    return Snapshot(revision_of(epoch, set_epoch), state, LIVE)


def taken(member: ControlledMember) -> list[actions.Action]:
    found = list(member.actions)
    member.actions.clear()
    return found


def kinds(member: ControlledMember) -> list[type]:
    return [type(action) for action in taken(member)]


def proposal_in(found: list[actions.Action]) -> Proposal:
    (proposed,) = [action.proposal for action in found if isinstance(action, actions.Propose)]
    return proposed


def master_of(epoch: int = 5, end: int = 100, limits: GroupLimits = LIMITS) -> ControlledMember:
    """A slave of epoch 4 that the controller elects."""
    member = member_of(1, (4, 0), end=end, limits=limits)
    member.observe(snapshot(4, 2, 1, 2))
    member.observe(snapshot(epoch, 1, 1, set_epoch=2))
    member.log_settled(member.log.end)
    taken(member)
    return member


def follower_of(member: ControlledMember, *entries: tuple[int, int], end: int) -> int:
    """Connect a slave to its master; return the connection."""
    (dial,) = [action for action in taken(member) if isinstance(action, actions.Dial)]
    member.connected(dial.connection)
    found = tuple(EpochEntry(*entry) for entry in entries)
    member.handshake_answered(dial.connection, HandshakeAnswer(end, found[-1].epoch if found else -1, found))
    return dial.connection


def test_elected_member_stops_reporting_then_starts_its_epoch_at_the_end_of_its_log() -> None:
    member = member_of(1, (4, 0), end=100)
    member.observe(snapshot(4, 2, 1, 2))
    follower_of(member, (4, 0), end=100)
    taken(member)
    member.observe(snapshot(5, 1, 1, set_epoch=2))
    found = kinds(member)
    assert found.index(actions.HangUp) < found.index(actions.SettleLog)
    assert member.role is Role.CANDIDATE
    member.log_settled(96)
    saved, role = [one for one in taken(member) if not isinstance(one, actions.Confirmed)][-2:]
    assert saved == actions.SaveEpochs((EpochEntry(4, 0), EpochEntry(5, 96)))
    assert isinstance(role, actions.RoleChanged) and (role.role, role.epoch) == ("master", 5)


def test_election_that_is_over_when_the_log_is_settled_is_not_served() -> None:
    member = member_of(1, (4, 0), end=100)
    member.observe(snapshot(4, 2, 1, 2))
    member.observe(snapshot(5, 1, 1))
    member.observe(snapshot(6, 3, 3))
    taken(member)
    member.log_settled(100)
    assert (member.role, member.leadership) == (Role.SLAVE, None)
    assert member.log.history.last_epoch == 4


def test_master_of_an_earlier_run_resigns_and_serves_in_the_next_epoch_only() -> None:
    member = member_of(1, (4, 0), end=100)
    member.observe(snapshot(4, 1, 1))
    assert not member.is_electable
    assert actions.Resign in kinds(member)
    assert (member.role, member.leadership) == (Role.FENCED, None)
    member.tick(1.0)
    assert actions.Resign not in kinds(member)
    member.tick(3.0)
    assert actions.Resign in kinds(member)
    member.observe(snapshot(5, None, 1))
    assert member.is_electable
    assert actions.AskElection in kinds(member) or member._asked_s == 3.0
    member.observe(snapshot(6, 1, 1, set_epoch=2))
    member.log_settled(100)
    assert member.role is Role.MASTER
    assert member.log.history.last_epoch == 6


def test_nothing_is_sent_that_makes_a_member_electable_before_it_knows_the_state() -> None:
    assert not member_of(1, (4, 0), end=100).is_electable


def test_first_member_with_an_empty_log_asks_for_the_first_election() -> None:
    member = member_of(1)
    member.observe(Snapshot(0, None, LIVE))
    assert actions.AskElection in kinds(member)
    member.observe(snapshot(1, 1, 1, known=(1,)))
    member.log_settled(0)
    assert member.role is Role.MASTER
    assert member.accepts_sends
    assert member.log.history.entries == (EpochEntry(1, 0),)


def test_first_member_with_messages_does_not_ask() -> None:
    member = member_of(1, end=100)
    member.observe(Snapshot(0, None, LIVE))
    assert actions.AskElection not in kinds(member)
    assert "not empty" in member.reason


def test_election_is_asked_for_by_a_member_in_sync_only() -> None:
    member = member_of(1, (4, 0), end=100)
    member.observe(snapshot(5, None, 2, 3))
    assert actions.AskElection not in kinds(member)
    assert "not in sync" in member.reason
    member.observe(snapshot(6, None, 1, 2))
    assert actions.AskElection in kinds(member)


def test_epoch_that_is_not_above_the_last_one_is_refused() -> None:
    member = member_of(1, (4, 0), end=100)
    member.observe(snapshot(1, None, 1))
    member.observe(snapshot(2, 1, 1))
    assert (member.role, member.leadership) == (Role.FENCED, None)
    assert "data was lost" in member.reason


def test_confirm_offset_inside_of_a_record_that_is_cut_falls_before_the_new_epoch_starts() -> None:
    """Java's slaves report parts of records. A send of the new master must not count as confirmed by that."""
    member = member_of(1, (4, 0), end=100)
    member.observe(snapshot(4, 2, 1, 2))
    connection = follower_of(member, (4, 0), end=100)
    member.transfer(connection, TransferHead(20, 100, 4, 0, 115), b"x" * 20)
    assert member.log.confirmed_to == 115
    member.observe(snapshot(5, 1, 1, set_epoch=2))
    taken(member)
    member.log_settled(110)
    assert taken(member)[0] == actions.Confirmed(110)
    assert member.log.confirmed_to == 110


# Bytes that may be lost


def test_member_that_may_have_lost_bytes_is_not_electable_while_it_is_in_sync() -> None:
    member = member_of(1, (4, 0), end=100, lost=True)
    member.observe(snapshot(5, None, 1, 2))
    assert not member.is_electable
    assert "may have lost" in member.reason
    assert actions.AskElection not in kinds(member)
    member.observe(snapshot(6, 2, 2))
    assert member.is_electable
    assert actions.RestartRecorded in kinds(member)


def test_only_member_in_sync_stands_although_it_may_have_lost_bytes() -> None:
    member = member_of(1, (4, 0), end=100, lost=True)
    member.observe(snapshot(5, None, 1))
    assert member.is_electable
    assert actions.AskElection in kinds(member)


def test_only_member_in_sync_with_a_new_store_is_not_electable() -> None:
    member = member_of(1, is_new=True)
    member.observe(snapshot(5, None, 1))
    assert not member.is_electable
    assert "store of this member is new" in member.reason
    assert actions.AskElection not in kinds(member)


def test_new_member_outside_of_the_set_is_electable_and_the_first_one_founds_the_group() -> None:
    member = member_of(3, is_new=True)
    member.observe(snapshot(5, 1, 1))
    assert member.is_electable
    first = member_of(1, is_new=True)
    first.observe(Snapshot(0, None, LIVE))
    assert first.is_electable
    assert actions.AskElection in kinds(first)


def test_member_that_may_have_lost_bytes_is_electable_with_the_whole_log_of_its_master() -> None:
    member = member_of(1, (4, 0), end=100, lost=True)
    member.observe(snapshot(4, 2, 1, 2))
    connection = follower_of(member, (4, 0), end=150)
    member.tick(1.0)
    assert not member.is_electable
    member.transfer(connection, TransferHead(50, 100, 4, 0, 150), b"x" * 50)
    member.tick(1.1)
    assert member.is_electable
    assert actions.RestartRecorded in kinds(member)


def test_failed_disk_ends_the_heartbeats_and_the_role() -> None:
    member = master_of()
    member.retire("disk failed")
    assert not member.is_electable
    assert actions.Resign in kinds(member)
    assert (member.role, member.leadership) == (Role.FENCED, None)


# Following a Java master


def test_master_without_an_entry_for_its_epoch_is_asked_again_then_its_last_entry_is_of_its_epoch() -> None:
    """Java drops an epoch that starts where the last one does; the bytes after it are of the new master."""
    member = member_of(1, (4, 0), (20, 4386), end=4386)
    member.observe(snapshot(21, 2, 2))
    follower_of(member, (4, 0), (20, 4386), end=4578)
    following = member.following
    assert following is not None and not following.is_following
    for now_s in (2.0, 14.0):
        member.tick(now_s)
        if [action for action in member.actions if isinstance(action, actions.Dial)]:
            connection = follower_of(member, (4, 0), (20, 4386), end=4578)
    assert following.is_following
    member.transfer(connection, TransferHead(192, 4386, 20, 4386, 4386), b"x" * 192)
    assert member.log.history.entries == (EpochEntry(4, 0), EpochEntry(21, 4386))


def test_bytes_of_the_dropped_epochs_real_master_are_cut() -> None:
    """Two masters wrote at 4386 under the label 20: without its true label the log would become a mixture."""
    member = member_of(1, (4, 0), (20, 4386), end=4770)
    member.observe(snapshot(21, 2, 2))
    follower_of(member, (4, 0), (20, 4386), end=4770)
    cut: list[actions.Action] = []
    for now_s in (2.0, 14.0):
        member.tick(now_s)
        if [action for action in member.actions if isinstance(action, actions.Dial)]:
            follower_of(member, (4, 0), (20, 4386), end=4770)
            cut += taken(member)
    assert actions.KeepTail(20, 4386, 4770) in cut
    assert cut.index(actions.KeepTail(20, 4386, 4770)) < cut.index(actions.CutLog(4386))


def test_log_without_a_common_epoch_is_refused_and_stays() -> None:
    member = member_of(1, (4, 0), end=100)
    member.log.confirmed_to = 100
    member.observe(snapshot(5, 2, 2))
    follower_of(member, (3, 0), (5, 50), end=500)
    assert member.following is not None and "no epoch in common" in member.following.reason
    assert actions.CutLog not in kinds(member)


# The master and its set


def test_master_acknowledges_only_what_the_recorded_set_has_until_a_shrink_is_recorded() -> None:
    member = master_of()
    member.handshake(7, Handshake(2))
    member.report(7, EpochReport(100))
    grow = proposal_in(taken(member))
    assert (grow.state.in_sync, grow.base_revision) == ({1, 2}, revision_of(5, 2))
    member.proposal_answered(grow.state.token, snapshot(5, 1, 1, 2, set_epoch=3))
    member.appended(150)
    member.disconnected(7)
    member.tick(10.0)
    shrink = proposal_in(taken(member))
    assert shrink.state.in_sync == {1}
    assert member.log.confirmed_to == 100
    member.proposal_lost(shrink.state.token)
    assert member.log.confirmed_to == 100
    member.observe(snapshot(5, 1, 1, set_epoch=4))
    assert member.log.confirmed_to == 150


def test_refused_change_is_given_up_and_repeated_after_a_pause() -> None:
    member = master_of()
    member.handshake(7, Handshake(2))
    member.report(7, EpochReport(100))
    grow = proposal_in(taken(member))
    member.proposal_answered(grow.state.token, snapshot(5, 1, 1, set_epoch=2))
    assert member.context.desk.pending is None
    member.tick(0.5)
    assert actions.Propose not in kinds(member)
    member.tick(1.5)
    assert proposal_in(taken(member)).state.in_sync == {1, 2}


def test_change_without_an_answer_stays_open_after_a_refusal_of_its_repetition() -> None:
    """The first attempt may still take effect: the new member counts until the set has changed."""
    member = master_of()
    member.handshake(7, Handshake(2))
    member.report(7, EpochReport(100))
    grow = proposal_in(taken(member))
    member.proposal_lost(grow.state.token)
    member.tick(1.5)
    again = proposal_in(taken(member))
    member.proposal_answered(again.state.token, snapshot(5, 1, 1, set_epoch=2))
    assert member.context.desk.proposed == {1, 2}


def test_sends_need_two_members_in_a_group_of_several_unless_set() -> None:
    assert not master_of().accepts_sends
    assert master_of(limits=LIMITS._replace(min_in_sync=1)).accepts_sends
    member = master_of()
    member.observe(snapshot(5, 1, 1, 2, set_epoch=3))
    assert member.accepts_sends


def test_master_that_is_deposed_hangs_up_and_follows() -> None:
    member = master_of()
    member.handshake(7, Handshake(2))
    taken(member)
    member.observe(snapshot(6, 2, 2))
    found = taken(member)
    assert actions.HangUp(7) in found
    assert (member.role, member.leadership) == (Role.SLAVE, None)


def test_orders_that_only_the_controller_may_give_have_no_effect() -> None:
    member = master_of()
    assert not member.hand_over(2)
    member.force_election()
    assert member.role is Role.MASTER
