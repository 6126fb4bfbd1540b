"""The tour kills the master of a replica group only when every member can take over."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from orbitlog.cli.tour.tour_replicas import REPLICAS, wait_until_in_sync
from orbitlog.cli.tour.tour_servers import TourFailed
from orbitlog.client.admin.replica_groups import GroupView, MemberView


class Polls:
    """Answers of a group, one for each poll."""

    def __init__(self, answers: Iterator[list[GroupView]]) -> None:
        self._answers = answers
        self.count = 0

    async def groups(self) -> list[GroupView]:
        self.count += 1
        return next(self._answers)


def group(in_sync: set[int], alive: set[int]) -> list[GroupView]:
    members = (MemberView(number, f"m{number}", number in alive, number in in_sync) for number in (1, 2, 3))
    return [GroupView("broker-a", 1, 1, tuple(members))]


def test_waits_for_the_last_member_to_be_alive_and_in_sync() -> None:
    everyone = {1, 2, 3}
    polls = Polls(
        iter([[], group({1}, everyone), group({1, 3}, everyone), group(everyone, {1, 2}), group(everyone, everyone)])
    )
    asyncio.run(wait_until_in_sync(polls.groups, 30))
    assert polls.count == 5 and len(everyone) == REPLICAS


def test_names_the_members_in_sync_after_the_time() -> None:
    polls = Polls(itertools.repeat(group({1}, {1, 2, 3})))
    with pytest.raises(TourFailed, match=r"not in sync after 0 s: only 1 of 3 members are \(1\)"):
        asyncio.run(wait_until_in_sync(polls.groups, 0))
