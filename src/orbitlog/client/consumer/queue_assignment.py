"""The queues that one member of a group has: shared out among the members, locked, taken, committed, given back.

Mirrors Java `RebalanceImpl`, `RebalancePushImpl` and the offset stores.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from orbitlog.client.connection.routes import Routes
from orbitlog.client.consumer.group_link import GroupLink, StartFrom
from orbitlog.client.consumer.local_offsets import LocalOffsets
from orbitlog.client.consumer.queue_feed import Deliver, QueueFeed
from orbitlog.client.consumer.subscriptions import make_subscription
from orbitlog.errors import NoRoute, OrbitlogError
from orbitlog.formats import names
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.bodies.heartbeat_bodies import ConsumerData, SubscriptionData
from orbitlog.wire.queue_shares import Allocate, allocate_average

log = logging.getLogger(__name__)

REBALANCE_SECONDS = 20.0
UNBALANCED_SECONDS = 1.0
IN_VAIN_MAX = 3  # a topic that nobody made yet is looked for every so many seconds
LOCK_SECONDS = 30.0
HAND_OVER_SECONDS = 1.0
MAX_ATTEMPTS = 16
CONSUME_SECONDS = 15 * 60.0
AT_A_TIME = 64
_PLACE = attrgetter("topic", "broker_name", "queue_id")

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions:
    """How a group consumes. In order, `max_attempts` of None means for ever, else 16 times.

    A message that was given out and not settled for `consume_seconds` goes back to the broker; None lets it stay.
    """

    orderly: bool = False
    broadcasting: bool = False
    start_from: StartFrom | datetime = StartFrom.LAST
    max_attempts: int | None = None
    allocate: Allocate = allocate_average
    offsets_file: Path | None = None
    namespace: str = ""
    consume_seconds: float | None = CONSUME_SECONDS

    @property
    def attempts_max(self) -> int | None:
        return MAX_ATTEMPTS if self.max_attempts is None and not self.orderly else self.max_attempts


class MemberShare:
    """This member's share of every topic of its subscriptions."""

    def __init__(
        self,
        link: GroupLink,
        routes: Routes,
        subscriptions: Sequence[SubscriptionData],
        options: ConsumeOptions,
        *,
        announce: Callable[[], Awaitable[None]],
        deliver: Deliver,
    ) -> None:
        self._link = link
        self._routes = routes
        self._options = options
        self._announce = announce
        self._deliver = deliver
        self._subscriptions = {each.topic: each for each in subscriptions}
        if not options.broadcasting:
            retry = names.retry_topic(link.group)
            self._subscriptions[retry] = make_subscription(retry, version=_now_ms())
        self.feeds: dict[MessageQueue, QueueFeed] = {}
        self._local = LocalOffsets(options.offsets_file)
        self._changed = asyncio.Event()
        self._is_balanced = False

    def described(self) -> ConsumerData:
        """What heartbeats say of this member."""
        start = self._options.start_from
        where = {StartFrom.LAST: "LAST_OFFSET", StartFrom.FIRST: "FIRST_OFFSET"}
        return ConsumerData(
            self._link.group,
            message_model="BROADCASTING" if self._options.broadcasting else "CLUSTERING",
            consume_from_where="CONSUME_FROM_" + ("TIMESTAMP" if isinstance(start, datetime) else where[start]),
            subscriptions=tuple(self._subscriptions.values()),
        )

    # Shares

    def look_again(self) -> None:
        """Members came or went."""
        self._is_balanced = False
        self._changed.set()

    def lost_touch(self) -> None:
        """A broker could not be asked; it may have been restarted, and have forgotten us."""
        if self._is_balanced:
            self.look_again()

    async def start(self) -> None:
        await self._introduce()
        self._is_balanced = await self.rebalance()

    async def keep_balanced(self) -> None:
        in_vain = 0
        while True:
            in_vain = 0 if self._is_balanced or self._changed.is_set() else in_vain + 1
            again_in = REBALANCE_SECONDS if self._is_balanced else UNBALANCED_SECONDS * min(in_vain, IN_VAIN_MAX)
            try:
                async with asyncio.timeout(again_in):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()  # before looking: what changes meanwhile is looked at in the next round
            if not self._is_balanced:
                await self._introduce()  # to a broker that was not known before, or has forgotten
            self._is_balanced = await self.rebalance() and not self._changed.is_set()

    async def _introduce(self) -> None:
        try:
            await self._announce()
        except OrbitlogError as error:
            log.warning("%s: no heartbeat: %s", self._link.group, error)

    async def rebalance(self) -> bool:
        """Take this member's share of every topic; False if something was not to be had yet."""
        changed, is_balanced = False, True
        for topic in list(self._subscriptions):
            try:
                changed |= await self._rebalance_topic(topic)
            except NoRoute:
                is_balanced = False  # nobody sent to it yet, or the name server has not heard of it
            except OrbitlogError as error:
                is_balanced = False
                log.warning("%s: shares of %s cannot be told now: %s", self._link.group, topic, error)
        if self._options.orderly:
            await self._drop_unlocked()
        if changed:
            now_ms = _now_ms()
            self._subscriptions = {name: replace(each, version=now_ms) for name, each in self._subscriptions.items()}
            await self._introduce()
        return is_balanced

    async def _rebalance_topic(self, topic: str) -> bool:
        share = list((await self._routes.freshest(topic)).read_queues)
        if not self._options.broadcasting:
            share = self._options.allocate(self._link.client_id, sorted(share, key=_PLACE), await self._members(topic))
        mine = {queue for queue in self.feeds if queue.topic == topic}
        gone = list(mine - set(share))
        handed = await _in_parts(self._hand_over, gone)
        stays = [queue for queue, is_handed in zip(gone, handed, strict=True) if not is_handed]
        new = [queue for queue in share if queue not in mine]
        if self._options.orderly and share:
            locked, unknown = await self._link.lock(share)
            for queue in mine & locked:
                if queue in self.feeds:
                    self.feeds[queue].locked_at = asyncio.get_running_loop().time()
            for queue in (mine & set(share)) - locked - unknown:
                await self._drop(queue)
            missing = [queue for queue in new if queue not in locked]
            new = [queue for queue in new if queue in locked]
        else:
            missing = []
        await self._take_all(new)
        if stays or missing:
            raise NoRoute(f"{len(stays) + len(missing)} queues of {topic} change hands later")
        return bool(gone or new)

    async def _members(self, topic: str) -> list[str]:
        members = await self._link.members(topic)
        if self._link.client_id not in members:
            await self._introduce()
            members = await self._link.members(topic)
        if self._link.client_id not in members:
            raise NoRoute(f"no broker of {topic} lists this member of {self._link.group} yet")
        return members

    async def _take_all(self, queues: Sequence[MessageQueue]) -> None:
        for failure in await _in_parts(self._take, queues):
            if failure is not None:
                raise failure

    async def _take(self, queue: MessageQueue) -> OrbitlogError | None:
        """Fetch a queue from now on; returns why that cannot be, so that the others are taken all the same."""
        try:
            await self._begin(queue)
        except OrbitlogError as error:
            return error
        return None

    async def _begin(self, queue: MessageQueue) -> None:
        start = await self._start_offset(queue)
        if queue in self.feeds:
            return
        self.feeds[queue] = QueueFeed(
            queue,
            start,
            self._link,
            self._subscriptions[queue.topic],
            self._deliver,
            ordered=self._options.orderly,
            commits=not self._options.broadcasting,
            out_of_touch=self.lost_touch,
        )

    async def _start_offset(self, queue: MessageQueue) -> int:
        if self._options.broadcasting:
            known = self._local.get(queue)
            return await self._link.first_offset(queue, self._options.start_from) if known is None else known
        return await self._link.start_offset(queue, self._options.start_from)

    async def _hand_over(self, queue: MessageQueue) -> bool:
        """Give a queue to another member; in order, not while a message of it is being worked on."""
        feed = self.feeds[queue]
        if self._options.orderly:
            try:
                async with asyncio.timeout(HAND_OVER_SECONDS):
                    await feed.settled.wait()
            except TimeoutError:
                return False
        await self._drop(queue)
        return True

    async def _drop_unlocked(self) -> None:
        """Stop what could not be locked again for so long that another member may have it by now."""
        oldest = asyncio.get_running_loop().time() - LOCK_SECONDS
        for queue in [queue for queue, feed in self.feeds.items() if feed.locked_at < oldest]:
            log.warning("%s: the lock of %s/%d is lost", self._link.group, queue.topic, queue.queue_id)
            await self._drop(queue)

    async def _drop(self, queue: MessageQueue) -> None:
        feed = self.feeds.pop(queue)
        await feed.stop()
        await self._commit(feed, at_once=True)
        if self._options.orderly:
            try:
                await self._link.unlock([queue])
            except OrbitlogError as error:
                log.warning("%s: %s/%d stays locked: %s", self._link.group, queue.topic, queue.queue_id, error)

    async def drop_all(self) -> None:
        await _in_parts(self._drop, list(self.feeds))
        await self._local.save()

    async def move(self, queue_offsets: dict[MessageQueue, int]) -> None:
        """An operator had the group go on elsewhere."""
        for queue, queue_offset in queue_offsets.items():
            feed = self.feeds.get(queue)
            if feed is not None:
                feed.move_to(queue_offset)
                await self._commit(feed, at_once=True)

    # Offsets

    async def commit(self) -> None:
        """Tell the brokers, or the file of offsets, how far this member is."""
        await _in_parts(lambda feed: self._commit(feed, at_once=False), list(self.feeds.values()))
        await self._local.save()

    async def _commit(self, feed: QueueFeed, *, at_once: bool) -> None:
        done_to = feed.window.commit_offset
        if self._options.broadcasting:
            self._local.put(feed.queue, done_to)
            return
        if done_to <= feed.committed_to:
            return
        try:
            await (self._link.commit_now if at_once else self._link.commit)(feed.queue, done_to)
        except OrbitlogError as error:
            queue = feed.queue
            log.warning("%s: %s/%d is not committed: %s", self._link.group, queue.topic, queue.queue_id, error)
        else:
            feed.committed_to = done_to


async def _in_parts(work: Callable[[T], Coroutine[Any, Any, R]], items: Sequence[T]) -> list[R]:
    """Do something with many at a time, but not with so many that the event loop is kept busy for long."""
    done: list[R] = []
    for start in range(0, len(items), AT_A_TIME):
        done += await asyncio.gather(*map(work, items[start : start + AT_A_TIME]))
    return done


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
