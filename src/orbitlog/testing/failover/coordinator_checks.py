"""Coordinator checks: what every coordinator of replica groups must do, for tests of one against a real server."""

from __future__ import annotations

from dataclasses import replace

from orbitlog.replication.group.coordinator import Coordinator
from orbitlog.replication.group.group_state import GroupState, LiveMember, Proposal


async def check_coordinator(first: Coordinator, second: Coordinator) -> None:
    """Raise `AssertionError` unless members 1 and 2 of a new group can elect a master, and only one of them."""
    empty = await first.read()
    assert (empty.revision, empty.state, dict(empty.live)) == (0, None, {})
    session_1 = await first.register(LiveMember(0, "127.0.0.1:10912", "127.0.0.1:10911", 0, 0))
    session_2 = await second.register(LiveMember(0, "127.0.0.1:20912", "127.0.0.1:20911", 3, 930))
    founded = GroupState(1, 1, frozenset((1,)), 0, {1: 0}, "1-a-1")
    won = await first.propose(Proposal(0, founded, session_1))
    assert won.state == founded
    lost = await second.propose(Proposal(0, replace(founded, master=2), session_2))
    assert lost == won, "a group was founded twice"
    assert won.live[2] == LiveMember(session_2, "127.0.0.1:20912", "127.0.0.1:20911", 3, 930)

    grown = founded.with_in_sync(frozenset((1, 2)), "1-a-2")
    after_growth = await first.propose(Proposal(won.revision, grown, session_1))
    assert after_growth.state == grown
    assert after_growth.revision > won.revision
    stale = await first.propose(Proposal(won.revision, founded, session_1))
    assert stale == after_growth, "a proposal on an earlier revision took effect"

    elected = GroupState(2, 2, grown.in_sync, 0, grown.members, "2-b-1")
    refused = await second.propose(Proposal(after_growth.revision, elected, session_2, absent_member=1))
    assert refused.state == grown, "a master with a lease was deposed"
    assert await first.renew()
    await first.close()
    deposed = await second.propose(Proposal(after_growth.revision, elected, session_2, absent_member=1))
    assert deposed.state == elected
    assert set(deposed.live) == {2}

    session_3 = await second.register(LiveMember(0))
    assert session_3 != session_2
    late = await second.propose(Proposal(deposed.revision, founded, session_2))
    assert late.state == elected, "a proposal of an earlier session took effect"
    assert (await second.read()).state == elected
    await second.close()
