"""Queue assignment: rebalances the queues of a topic among group members, locks, starts, commits and drops them.

Mirrors Java `RebalanceImpl`, `RebalancePushImpl` and the offset stores.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
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
BACKOFF_MAX = 3  # a topic that does not exist yet is looked up at most every BACKOFF_MAX * UNBALANCED_SECONDS
LOCK_SECONDS = 30.0
REVOKE_SECONDS = 1.0
MAX_ATTEMPTS = 16
CONSUME_SECONDS = 15 * 60.0
BATCH_SIZE = 64

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions:
    """Options of a consumer. `max_attempts` None means unlimited if `orderly`, else 16.

    A message that is not settled within `consume_seconds` is redelivered by the broker; None disables this.
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


class MemberAssignment:
    """The queues of every subscribed topic that are assigned to this member."""

    def __init__(
        self,
        link: GroupLink,
        routes: Routes,
        subscriptions: Sequence[SubscriptionData],
        options: ConsumeOptions,
        deliver: Deliver,
        *,
        send_heartbeat: Callable[[], Awaitable[None]],
    ) -> None:
        self._link = link
        self._routes = routes
        self._options = options
        self._send_heartbeat = send_heartbeat
        self._deliver = deliver
        self._subscriptions = {subscription.topic: subscription for subscription in subscriptions}
        if not options.broadcasting:
            retry = names.retry_topic(link.group)
            self._subscriptions[retry] = make_subscription(retry, version=_now_ms())
        self.feeds: dict[MessageQueue, QueueFeed] = {}
        self._local = LocalOffsets(options.offsets_file)
        self._changed = asyncio.Event()
        self._is_balanced = False

    def heartbeat_data(self) -> ConsumerData:
        """Return the part of a heartbeat about this member."""
        start = self._options.start_from
        where = {StartFrom.LAST: "LAST_OFFSET", StartFrom.FIRST: "FIRST_OFFSET"}
        return ConsumerData(
            self._link.group,
            message_model="BROADCASTING" if self._options.broadcasting else "CLUSTERING",
            consume_from_where="CONSUME_FROM_" + ("TIMESTAMP" if isinstance(start, datetime) else where[start]),
            subscriptions=tuple(self._subscriptions.values()),
        )

    # Rebalancing

    def request_rebalance(self) -> None:
        """Rebalance soon, because members joined or left."""
        self._is_balanced = False
        self._changed.set()

    def broker_unreachable(self) -> None:
        """Rebalance soon, because a broker did not answer: after a restart it no longer knows this member."""
        if self._is_balanced:
            self.request_rebalance()

    async def start(self) -> None:
        await self._try_heartbeat()
        self._is_balanced = await self.rebalance()

    async def keep_balanced(self) -> None:
        failures = 0
        while True:
            failures = 0 if self._is_balanced or self._changed.is_set() else failures + 1
            wait_seconds = REBALANCE_SECONDS if self._is_balanced else UNBALANCED_SECONDS * min(failures, BACKOFF_MAX)
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()  # before the rebalance, so that a change during it starts another round
            if not self._is_balanced:
                await self._try_heartbeat()  # to brokers that are new, or were restarted
            self._is_balanced = await self.rebalance() and not self._changed.is_set()

    async def _try_heartbeat(self) -> None:
        try:
            await self._send_heartbeat()
        except OrbitlogError as error:
            log.warning("%s: could not send a heartbeat: %s", self._link.group, error)

    async def rebalance(self) -> bool:
        """Assign the queues of every topic; return False if some could not be assigned yet."""
        changed, is_balanced = False, True
        for topic in list(self._subscriptions):
            try:
                changed |= await self._rebalance_topic(topic)
            except NoRoute:
                is_balanced = False  # the topic does not exist yet, or is not registered yet
            except OrbitlogError as error:
                is_balanced = False
                log.warning("%s: could not rebalance %s: %s", self._link.group, topic, error)
        if self._options.orderly:
            await self._drop_unlocked()
        if changed:
            now_ms = _now_ms()
            self._subscriptions = {
                topic: replace(subscription, version=now_ms) for topic, subscription in self._subscriptions.items()
            }
            await self._try_heartbeat()
        return is_balanced

    async def _rebalance_topic(self, topic: str) -> bool:
        share = list((await self._routes.freshest(topic)).read_queues)
        if not self._options.broadcasting:
            share = self._options.allocate(self._link.client_id, sorted(share), await self._members(topic))
        mine = {queue for queue in self.feeds if queue.topic == topic}
        revoked = list(mine - set(share))
        dropped = await _in_batches(self._revoke, revoked)
        kept = [queue for queue, was_dropped in zip(revoked, dropped, strict=True) if not was_dropped]
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
        await self._start_all(new)
        if kept or missing:
            raise NoRoute(f"{len(kept) + len(missing)} queues of {topic} are not assigned yet")
        return bool(revoked or new)

    async def _members(self, topic: str) -> list[str]:
        members = await self._link.members(topic)
        if self._link.client_id not in members:
            await self._try_heartbeat()
            members = await self._link.members(topic)
        if self._link.client_id not in members:
            raise NoRoute(f"no broker of {topic} lists this member of {self._link.group} yet")
        return members

    async def _start_all(self, queues: Sequence[MessageQueue]) -> None:
        for failure in await _in_batches(self._try_start, queues):
            if failure is not None:
                raise failure

    async def _try_start(self, queue: MessageQueue) -> OrbitlogError | None:
        """Start pulling a queue; return the error instead of raising it, so that the other queues are started."""
        try:
            await self._start_queue(queue)
        except OrbitlogError as error:
            return error
        return None

    async def _start_queue(self, queue: MessageQueue) -> None:
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
            on_unreachable=self.broker_unreachable,
        )

    async def _start_offset(self, queue: MessageQueue) -> int:
        if self._options.broadcasting:
            saved = self._local.get(queue)
            return await self._link.first_offset(queue, self._options.start_from) if saved is None else saved
        return await self._link.start_offset(queue, self._options.start_from)

    async def _revoke(self, queue: MessageQueue) -> bool:
        """Drop a queue for another member; an orderly one only while no message of it is in progress."""
        feed = self.feeds[queue]
        if self._options.orderly:
            try:
                async with asyncio.timeout(REVOKE_SECONDS):
                    await feed.idle.wait()
            except TimeoutError:
                return False
        await self._drop(queue)
        return True

    async def _drop_unlocked(self) -> None:
        """Drop queues whose lock was not renewed: another member may have locked them since."""
        oldest = asyncio.get_running_loop().time() - LOCK_SECONDS
        for queue in [queue for queue, feed in self.feeds.items() if feed.locked_at < oldest]:
            log.warning("%s: lost the lock of %s/%d", self._link.group, queue.topic, queue.queue_id)
            await self._drop(queue)

    async def _drop(self, queue: MessageQueue) -> None:
        feed = self.feeds.pop(queue)
        await feed.stop()
        await self._commit(feed, at_once=True)
        if self._options.orderly:
            try:
                await self._link.unlock([queue])
            except OrbitlogError as error:
                log.warning("%s: could not unlock %s/%d: %s", self._link.group, queue.topic, queue.queue_id, error)

    async def drop_all(self) -> None:
        await _in_batches(self._drop, list(self.feeds))
        await self._local.save()

    async def reset(self, queue_offsets: dict[MessageQueue, int]) -> None:
        """Reset queues to the offsets that an operator chose."""
        for queue, queue_offset in queue_offsets.items():
            feed = self.feeds.get(queue)
            if feed is not None:
                feed.reset_to(queue_offset)
                await self._commit(feed, at_once=True)

    # Offsets

    async def commit(self) -> None:
        """Commit all queues, at the brokers or in the offsets file."""
        await _in_batches(lambda feed: self._commit(feed, at_once=False), list(self.feeds.values()))
        await self._local.save()

    async def _commit(self, feed: QueueFeed, *, at_once: bool) -> None:
        commit_offset = feed.window.commit_offset
        if self._options.broadcasting:
            self._local.put(feed.queue, commit_offset)
            return
        if commit_offset <= feed.committed_to:
            return
        try:
            await (self._link.commit_now if at_once else self._link.commit)(feed.queue, commit_offset)
        except OrbitlogError as error:
            queue = feed.queue
            log.warning("%s: could not commit %s/%d: %s", self._link.group, queue.topic, queue.queue_id, error)
        else:
            feed.committed_to = commit_offset


async def _in_batches(work: Callable[[T], Coroutine[Any, Any, R]], items: Sequence[T]) -> list[R]:
    """Run `work` for all items, at most BATCH_SIZE concurrently, so that the event loop is not blocked for long."""
    results: list[R] = []
    for start in range(0, len(items), BATCH_SIZE):
        results += await asyncio.gather(*map(work, items[start : start + BATCH_SIZE]))
    return results


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
