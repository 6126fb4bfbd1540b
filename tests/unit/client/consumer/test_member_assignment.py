"""One member's assignment of the queues: taken, given back, locked, and looked at again when members come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from orbitlog.client.connection.routes import Route
from orbitlog.client.consumer.group_link import PullResult
from orbitlog.client.consumer.member_assignment import ConsumeOptions, MemberAssignment
from orbitlog.client.consumer.subscriptions import make_subscription
from orbitlog.errors import ConnectFailed, NoRoute
from orbitlog.formats.message_queue import MessageQueue

QUEUES = tuple(MessageQueue("Orders", "a", number) for number in range(4))
ROUTE = Route(QUEUES, QUEUES, {"a": {0: "a:1"}})


class Cluster:
    """Routes and the group's requests in one: what members there are, and which queues others hold locked."""

    group = "group"
    client_id = "me"

    def __init__(self) -> None:
        self.members_now = ["me"]
        self.taken: set[MessageQueue] = set()
        self.silent = False
        self.committed: dict[MessageQueue, int] = {}
        self.unlocked: list[MessageQueue] = []
        self.on_members: Callable[[], None] = lambda: None

    async def freshest(self, topic: str) -> Route:
        if topic != "Orders":
            raise NoRoute(topic)
        return ROUTE

    async def members(self, _: str) -> list[str]:
        self.on_members()
        if self.silent:
            raise ConnectFailed("down")
        return self.members_now

    async def lock(self, queues: list[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        return (set(), set(queues)) if self.silent else (set(queues) - self.taken, set())

    async def unlock(self, queues: list[MessageQueue]) -> None:
        self.unlocked += queues

    async def start_offset(self, *_: object) -> int:
        return 0

    async def commit_now(self, queue: MessageQueue, queue_offset: int) -> None:
        self.committed[queue] = queue_offset

    async def pull(self, *_: object) -> PullResult:
        await asyncio.Event().wait()
        raise AssertionError


async def nothing() -> None:
    pass


def run(scenario: Callable[[Cluster, MemberAssignment], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def whole() -> None:
        cluster = Cluster()
        assignment = MemberAssignment(
            cluster,  # type: ignore[arg-type]
            cluster,  # type: ignore[arg-type]
            [make_subscription("Orders")],
            ConsumeOptions(**options),
            send_heartbeat=nothing,
            deliver=lambda feed, message: None,
        )
        await scenario(cluster, assignment)
        await assignment.drop_all()

    asyncio.run(whole())


def ids(assignment: MemberAssignment) -> list[int]:
    return sorted(queue.queue_id for queue in assignment.feeds)


def test_a_share_shrinks_and_grows_and_what_goes_is_committed() -> None:
    async def scenario(cluster: Cluster, assignment: MemberAssignment) -> None:
        await assignment.start()
        assert ids(assignment) == [0, 1, 2, 3]
        cluster.members_now = ["me", "you"]
        await assignment.rebalance()
        assert ids(assignment) == [0, 1]
        assert set(cluster.committed) == set(QUEUES[2:])
        cluster.members_now = ["me"]
        await assignment.rebalance()
        assert ids(assignment) == [0, 1, 2, 3]

    run(scenario)


def test_assignment_is_kept_while_the_members_are_unknown() -> None:
    async def scenario(cluster: Cluster, assignment: MemberAssignment) -> None:
        await assignment.start()
        cluster.silent = True
        assert not await assignment.rebalance()
        cluster.silent, cluster.members_now = False, ["you"]
        assert not await assignment.rebalance()
        assert ids(assignment) == [0, 1, 2, 3]

    run(scenario)


def test_change_while_shares_are_sent_is_not_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitlog.client.consumer.member_assignment.UNBALANCED_SECONDS", 3600.0)

    async def scenario(cluster: Cluster, assignment: MemberAssignment) -> None:
        await assignment.start()
        looks = 0

        def count() -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                cluster.members_now = ["me", "you"]
                assignment.request_rebalance()  # the broker says so while this round is on its way

        cluster.on_members = count
        balancing = asyncio.create_task(assignment.keep_balanced())
        assignment.request_rebalance()
        async with asyncio.timeout(10):
            while looks < 2 or ids(assignment) != [0, 1]:  # noqa: ASYNC110 - the loop under test acts
                await asyncio.sleep(0)
        balancing.cancel()

    run(scenario)


def test_in_order_only_locked_queues_are_taken_and_lost_ones_are_dropped() -> None:
    async def scenario(cluster: Cluster, assignment: MemberAssignment) -> None:
        cluster.taken = {QUEUES[3]}
        assert not await assignment.rebalance()
        assert ids(assignment) == [0, 1, 2]
        cluster.taken = {QUEUES[0]}
        await assignment.rebalance()
        assert ids(assignment) == [1, 2, 3]
        cluster.silent = True
        await assignment.rebalance()
        assert ids(assignment) == [1, 2, 3]
        for feed in assignment.feeds.values():
            feed.locked_at -= 31
        await assignment.rebalance()
        assert ids(assignment) == []

    run(scenario, orderly=True)


def test_orderly_queue_is_revoked_between_two_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitlog.client.consumer.member_assignment.REVOKE_SECONDS", 0.01)

    async def scenario(cluster: Cluster, assignment: MemberAssignment) -> None:
        await assignment.rebalance()
        assignment.feeds[QUEUES[2]].mark_busy()
        cluster.members_now = ["me", "you"]
        assert not await assignment.rebalance()
        assert ids(assignment) == [0, 1, 2] and cluster.unlocked == [QUEUES[3]]
        assignment.feeds[QUEUES[2]].idle.set()
        await assignment.rebalance()
        assert ids(assignment) == [0, 1]

    run(scenario, orderly=True)
