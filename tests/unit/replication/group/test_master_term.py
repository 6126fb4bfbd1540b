"""Master term: tables beside the log, by numbers of changes."""

from __future__ import annotations

from orbitlog.replication.group.master_term import Follower, MasterTerm

NOBODY: frozenset[int] = frozenset()


def term_of(*in_sync: int) -> MasterTerm:
    return MasterTerm(1, 7, 100, frozenset(in_sync), 0.0, tables_number=1)


def test_change_is_replicated_when_recorded_and_proposed_members_have_it() -> None:
    term = term_of(1, 2)
    number = term.change_tables(0.0)
    term.tables_reported(2, number - 1, 0.0)
    assert not term.are_tables_replicated(number, NOBODY)
    term.tables_reported(2, number, 0.0)
    assert term.are_tables_replicated(number, NOBODY)
    assert not term.are_tables_replicated(number, frozenset((1, 2, 3)))


def test_number_that_was_never_given_does_not_count() -> None:
    term = term_of(1, 2)
    number = term.change_tables(0.0)
    term.tables_reported(2, number + 5, 0.0)
    assert not term.are_tables_replicated(number, NOBODY)


def test_follower_without_the_tables_of_this_term_does_not_join() -> None:
    term = term_of(1)
    term.add(Follower(1, 2, 0, 0.0, sent_to=200, acked_to=200))
    assert list(term.eligible(100)) == []
    term.tables_reported(2, 1, 0.0)
    assert list(term.eligible(100)) == [2]
    term.change_tables(0.0)
    assert list(term.eligible(100)) == []


def test_member_that_does_not_copy_tables_is_removed_after_its_patience() -> None:
    term = term_of(1, 2)
    term.add(Follower(1, 2, 0, caught_up_s=1000.0, sent_to=200, acked_to=200))
    term.tables_reported(2, 1, 0.0)
    assert list(term.stalled(900.0, 5.0)) == []
    term.change_tables(900.0)
    term.change_tables(910.0)
    assert list(term.stalled(915.0, 5.0)) == []
    assert list(term.stalled(915.1, 5.0)) == [2]
    term.tables_reported(2, 2, 915.2)
    assert list(term.stalled(916.0, 5.0)) == []
