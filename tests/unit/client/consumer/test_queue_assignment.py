"""One member's share of the queues: taken, given back, locked, and looked at again when members come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from orbitlog.client.connection.routes import Route
from orbitlog.client.consumer.group_link import Pulled
from orbitlog.client.consumer.member_share import ConsumeOptions, MemberShare
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

    async def pull(self, *_: object) -> Pulled:
        await asyncio.Event().wait()
        raise AssertionError


async def nothing() -> None:
    pass


def run(scenario: Callable[[Cluster, MemberShare], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def whole() -> None:
        cluster = Cluster()
        share = MemberShare(
            cluster,  # type: ignore[arg-type]
            cluster,  # type: ignore[arg-type]
            [make_subscription("Orders")],
            ConsumeOptions(**options),
            announce=nothing,
            deliver=lambda feed, message: None,
        )
        await scenario(cluster, share)
        await share.drop_all()

    asyncio.run(whole())


def ids(share: MemberShare) -> list[int]:
    return sorted(queue.queue_id for queue in share.feeds)


def test_a_share_shrinks_and_grows_and_what_goes_is_committed() -> None:
    async def scenario(cluster: Cluster, share: MemberShare) -> None:
        await share.start()
        assert ids(share) == [0, 1, 2, 3]
        cluster.members_now = ["me", "you"]
        await share.rebalance()
        assert ids(share) == [0, 1]
        assert set(cluster.committed) == set(QUEUES[2:])
        cluster.members_now = ["me"]
        await share.rebalance()
        assert ids(share) == [0, 1, 2, 3]

    run(scenario)


def test_nothing_changes_while_nobody_can_say_who_the_members_are() -> None:
    async def scenario(cluster: Cluster, share: MemberShare) -> None:
        await share.start()
        cluster.silent = True
        assert not await share.rebalance()
        cluster.silent, cluster.members_now = False, ["you"]
        assert not await share.rebalance()
        assert ids(share) == [0, 1, 2, 3]

    run(scenario)


def test_a_change_while_shares_are_told_is_not_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitlog.client.consumer.member_share.UNBALANCED_SECONDS", 3600.0)

    async def scenario(cluster: Cluster, share: MemberShare) -> None:
        await share.start()
        looks = 0

        def count() -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                cluster.members_now = ["me", "you"]
                share.look_again()  # the broker says so while this round is on its way

        cluster.on_members = count
        balancing = asyncio.create_task(share.keep_balanced())
        share.look_again()
        async with asyncio.timeout(10):
            while looks < 2 or ids(share) != [0, 1]:  # noqa: ASYNC110 - the loop under test acts
                await asyncio.sleep(0)
        balancing.cancel()

    run(scenario)


def test_in_order_only_locked_queues_are_taken_and_lost_ones_are_dropped() -> None:
    async def scenario(cluster: Cluster, share: MemberShare) -> None:
        cluster.taken = {QUEUES[3]}
        assert not await share.rebalance()
        assert ids(share) == [0, 1, 2]
        cluster.taken = {QUEUES[0]}
        await share.rebalance()
        assert ids(share) == [1, 2, 3]
        cluster.silent = True
        await share.rebalance()
        assert ids(share) == [1, 2, 3]
        for feed in share.feeds.values():
            feed.locked_at -= 31
        await share.rebalance()
        assert ids(share) == []

    run(scenario, orderly=True)


def test_in_order_a_queue_is_handed_over_between_two_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitlog.client.consumer.member_share.HAND_OVER_SECONDS", 0.01)

    async def scenario(cluster: Cluster, share: MemberShare) -> None:
        await share.rebalance()
        share.feeds[QUEUES[2]].taken()
        cluster.members_now = ["me", "you"]
        assert not await share.rebalance()
        assert ids(share) == [0, 1, 2] and cluster.unlocked == [QUEUES[3]]
        share.feeds[QUEUES[2]].settled.set()
        await share.rebalance()
        assert ids(share) == [0, 1]

    run(scenario, orderly=True)
