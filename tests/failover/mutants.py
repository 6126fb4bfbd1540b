"""Mutants of the failover protocol: each breaks one rule, and the simulation must find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.replication.group.coordinator_desk import CoordinatorDesk
from orbitlog.replication.group.epoch_history import EpochHistory
from orbitlog.replication.group.following import Following
from orbitlog.replication.group.group_member import GroupMember, Role
from orbitlog.replication.group.group_state import GroupState, Snapshot
from orbitlog.replication.group.leadership import Leadership
from orbitlog.replication.group.master_term import MasterTerm
from orbitlog.replication.group.replica_log import ReplicaLog
from orbitlog.testing.failover import model_node
from orbitlog.testing.failover.model_disk import ModelDisk

Patch = pytest.MonkeyPatch


def shrink_before_the_coordinator_agreed(patch: Patch) -> None:
    def required(term: MasterTerm, proposed: frozenset[int]) -> frozenset[int]:
        return term.recorded & proposed if proposed else term.recorded

    patch.setattr(MasterTerm, "required", required)


def grow_without_union(patch: Patch) -> None:
    patch.setattr(MasterTerm, "required", lambda term, proposed: term.recorded)


def no_entry_for_an_epoch_without_bytes(patch: Patch) -> None:
    def begin(history: EpochHistory, epoch: int, start: int) -> EpochHistory:
        if history.entries and history.entries[-1].start_physical_offset >= start:
            return history
        return EpochHistory((*history.entries, EpochEntry(epoch, start)))

    patch.setattr(EpochHistory, "begin", begin)


def cut_not_on_disk(patch: Patch) -> None:
    patch.setattr(ModelDisk, "keeps_cut_bytes", True)


def no_leaving_after_lost_bytes(patch: Patch) -> None:
    patch.setattr(GroupMember, "_must_leave", lambda member, state: False)


def new_store_taken_for_a_whole_one(patch: Patch) -> None:
    create = GroupMember.__init__

    def forgetful(member: GroupMember, *words: Any, **options: Any) -> None:
        create(member, *words, **{**options, "is_new": False, "lost_bytes": False})

    patch.setattr(GroupMember, "__init__", forgetful)


def founder_without_a_note(patch: Patch) -> None:
    """A founder that is killed before it knows of its election is a member that has lost its store, at its start."""
    found = GroupMember._found_group

    def unnoted(member: GroupMember) -> None:
        is_new, member._is_new = member._is_new, False
        found(member)
        member._is_new = is_new

    patch.setattr(GroupMember, "_found_group", unnoted)


def loss_forgotten_at_the_next_start(patch: Patch) -> None:
    start = model_node.ModelNode.start

    def forgetful(node: model_node.ModelNode) -> None:
        start(node)
        node.may_have_lost_bytes = False

    patch.setattr(model_node.ModelNode, "start", forgetful)


def report_after_candidacy(patch: Patch) -> None:
    patch.setattr(GroupMember, "_stop_following", lambda member: None)


def epoch_compared_with_at_least(patch: Patch) -> None:
    def is_current(desk: CoordinatorDesk, snapshot: Snapshot) -> bool:
        return desk.state is None or (snapshot.state is not None and snapshot.state.epoch >= desk.state.epoch)

    patch.setattr(CoordinatorDesk, "_is_current", is_current)


def lease_used_as_permission(patch: Patch) -> None:
    confirm = Leadership.confirm

    def confirm_alone(leadership: Leadership) -> None:
        context = leadership._context
        if context.member_id in context.desk.live:
            context.confirm(leadership.term.last_boundary(context.log.reported_to))
        else:
            confirm(leadership)

    patch.setattr(Leadership, "confirm", confirm_alone)


def lost_answer_taken_for_a_refusal(patch: Patch) -> None:
    def lost(desk: CoordinatorDesk, token: str) -> None:
        if desk.pending is not None and token == desk.pending.state.token:
            desk._settle()

    patch.setattr(CoordinatorDesk, "lost", lost)


def restarted_master_keeps_its_epoch(patch: Patch) -> None:
    def take_office(member: GroupMember, state: GroupState) -> None:
        if member.role is Role.CANDIDATE and state.token != member._election_token:
            member._stand()
        else:
            member._stop_following()
            member._promote(state)

    patch.setattr(GroupMember, "_take_office", take_office)


def new_member_without_the_epoch_start(patch: Patch) -> None:
    def eligible(term: MasterTerm, confirmed_to: int) -> list[int]:
        return [
            follower.member_id
            for follower in term.followers.values()
            if follower.acked_to >= confirmed_to and follower.member_id not in term.recorded
        ]

    patch.setattr(MasterTerm, "eligible", eligible)


def confirm_inside_a_record(patch: Patch) -> None:
    patch.setattr(MasterTerm, "last_boundary", lambda term, physical_offset: physical_offset)


def unflushed_bytes_reported(patch: Patch) -> None:
    patch.setattr(ReplicaLog, "reported_to", property(lambda log: log.end))


def election_keeps_the_epoch(patch: Patch) -> None:
    elected = GroupMember._elected

    def same_epoch(member: GroupMember, state: GroupState) -> GroupState:
        return replace(elected(member, state), epoch=state.epoch)

    patch.setattr(GroupMember, "_elected", same_epoch)


def any_member_may_be_elected(patch: Patch) -> None:
    def may_stand(member: GroupMember, state: GroupState) -> bool:
        return state.master is None or state.master not in member.context.desk.live

    patch.setattr(GroupMember, "_may_stand", may_stand)


def tail_not_kept(patch: Patch) -> None:
    def cut(following: Following, common: int) -> None:
        if common < following._context.log.end:
            following._context.actions.append(model_node.CutLog(common))
            following._context.log.cut(common)

    patch.setattr(Following, "_cut", cut)


def member_joins_without_tables(patch: Patch) -> None:
    eligible = MasterTerm.eligible

    def without_tables(term: MasterTerm, confirmed_to: int) -> list[int]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(MasterTerm, "has_tables", lambda *_: True)
            return list(eligible(term, confirmed_to))

    patch.setattr(MasterTerm, "eligible", without_tables)


def change_of_tables_without_union(patch: Patch) -> None:
    def are_tables_replicated(term: MasterTerm, number: int, proposed: frozenset[int]) -> bool:
        return all(term.has_tables(member_id, number) for member_id in term.recorded)

    patch.setattr(MasterTerm, "are_tables_replicated", are_tables_replicated)


def tables_of_any_member_suffice(patch: Patch) -> None:
    def are_tables_replicated(term: MasterTerm, number: int, proposed: frozenset[int]) -> bool:
        others = term.required(proposed) - {term.member_id}
        return not others or any(term.has_tables(member_id, number) for member_id in others)

    patch.setattr(MasterTerm, "are_tables_replicated", are_tables_replicated)


def tables_of_an_earlier_term_count(patch: Patch) -> None:
    create = MasterTerm.__init__

    def remember(term: MasterTerm, *words: Any, **options: Any) -> None:
        create(term, *words, **{**options, "tables_number": 0})

    patch.setattr(MasterTerm, "__init__", remember)


TABLE_MUTANTS: tuple[Callable[[Patch], None], ...] = (
    member_joins_without_tables,
    change_of_tables_without_union,
    tables_of_any_member_suffice,
    tables_of_an_earlier_term_count,
)
"""Mutants of the tables beside the log, which runs with tables find."""

FIRST_SEEDS: dict[Callable[[Patch], None], int] = {
    shrink_before_the_coordinator_agreed: 0,
    grow_without_union: 0,
    no_entry_for_an_epoch_without_bytes: 12,
    cut_not_on_disk: 46,
    no_leaving_after_lost_bytes: 17,
    new_store_taken_for_a_whole_one: 0,
    founder_without_a_note: 0,
    loss_forgotten_at_the_next_start: 7521,
    report_after_candidacy: 45,
    epoch_compared_with_at_least: 37,
    lease_used_as_permission: 0,
    lost_answer_taken_for_a_refusal: 17,
    restarted_master_keeps_its_epoch: 46,
    new_member_without_the_epoch_start: 40,
    confirm_inside_a_record: 73,
    unflushed_bytes_reported: 13,
    election_keeps_the_epoch: 46,
    any_member_may_be_elected: 2,
    tail_not_kept: 8,
}
"""Mutants, and the seed near which a run finds each."""
