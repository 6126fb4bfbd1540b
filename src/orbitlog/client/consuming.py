"""A member of a consumer group: takes its share of the queues, and hands their messages to whoever iterates.

Mirrors Java `DefaultMQPushConsumerImpl`, `RebalanceImpl`, `ConsumeMessageConcurrentlyService` and
`ConsumeMessageOrderlyService`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from orbitlog.client.group_link import GroupLink, StartFrom
from orbitlog.client.queue_feed import QueueFeed
from orbitlog.wire.queue_shares import Allocate, allocate_average
from orbitlog.client.received import Received
from orbitlog.client.routes import Routes
from orbitlog.client.subscriptions import make_subscription
from orbitlog.errors import BrokerRefused, ClientClosed, ClientError, NoRoute, RemotingError
from orbitlog.formats import names, properties
from orbitlog.formats.delay_levels import STANDARD_LEVELS
from orbitlog.wire.bodies.body_json import MessageQueue
from orbitlog.wire.bodies.heartbeat_bodies import ConsumerData, SubscriptionData
from orbitlog.wire.consume_headers import SendBackRequest

log = logging.getLogger(__name__)

REBALANCE_SECONDS = 20.0
UNBALANCED_SECONDS = 1.0
COMMIT_SECONDS = 5.0
SUSPEND_SECONDS = 1.0
MAX_ATTEMPTS = 16
_TROUBLE = (RemotingError, ClientError)

ListenerResult = Awaitable[object] | object
Listener = Callable[["Delivery"], ListenerResult]


@dataclass(frozen=True)
class Delivery(Received):
    """A message that waits for a word: `ack`, or `retry`."""

    _feed: QueueFeed = field(repr=False)
    _consumer: Consumer = field(repr=False)

    async def ack(self) -> None:
        """It is done with. A second time changes nothing."""
        self._feed.finish(self.queue_offset)

    async def retry(self, after: float | None = None) -> None:
        """Have it delivered again: later, after about so many seconds; at once in its place if in order."""
        await self._consumer._retry(self, self._feed, after)


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions:
    """How a group consumes."""

    orderly: bool = False
    broadcasting: bool = False
    start_from: StartFrom | datetime = StartFrom.LAST
    max_attempts: int = MAX_ATTEMPTS
    allocate: Allocate = allocate_average


class Consumer:
    """Iterate over it: `async for message in consumer`. A message counts as done when the next one is asked for."""

    def __init__(
        self,
        link: GroupLink,
        routes: Routes,
        subscriptions: Sequence[SubscriptionData],
        options: ConsumeOptions,
        *,
        announce: Callable[[], Awaitable[None]],
        forget: Callable[[Consumer], Awaitable[None]],
    ) -> None:
        self._link = link
        self._routes = routes
        self._options = options
        self._announce = announce
        self._forget = forget
        self._subscriptions = {each.topic: each for each in subscriptions}
        if not options.broadcasting:
            retry = names.retry_topic(link.group)
            self._subscriptions[retry] = make_subscription(retry, version=_now_ms())
        self._feeds: dict[MessageQueue, QueueFeed] = {}
        self._ready: deque[Delivery] = deque()
        self._arrived = asyncio.Event()
        self._membership_changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_balanced = False
        self._is_closed = False

    @property
    def group(self) -> str:
        return self._link.group

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now."""
        return sorted(self._feeds)

    def described(self) -> ConsumerData:
        """What heartbeats say of this member."""
        return ConsumerData(
            self.group,
            message_model="BROADCASTING" if self._options.broadcasting else "CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscriptions=tuple(self._subscriptions.values()),
        )

    async def start(self) -> Consumer:
        await self._announce()
        self._is_balanced = await self._rebalance()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._rebalance_loop()), loop.create_task(self._commit_loop())]
        return self

    # Delivery

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self._deliveries()

    async def _deliveries(self) -> AsyncIterator[Delivery]:
        while (delivery := await self.next()) is not None:
            yield delivery
            await delivery.ack()

    async def next(self, seconds: float | None = None) -> Delivery | None:
        """Wait for the next message; None when the time is up or the consumer is closed. Needs its `ack`."""
        try:
            async with asyncio.timeout(seconds):
                while not self._is_closed:
                    while self._ready:
                        delivery = self._ready.popleft()
                        if not delivery._feed.is_dropped:
                            return delivery
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass
        return None

    async def batches(self, count: int = 32) -> AsyncIterator[list[Delivery]]:
        """Iterate over lists of what is there, at most `count`; done with when the next list is asked for."""
        while (first := await self.next()) is not None:
            batch = [first]
            while len(batch) < count and (more := await self.next(0)) is not None:
                batch.append(more)
            yield batch
            for delivery in batch:
                await delivery.ack()

    async def run(self, listener: Listener, *, concurrency: int = 20) -> None:
        """Call `listener` for every message until closed: returning is `ack`, raising is `retry`."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(self._work(listener))

    async def _work(self, listener: Listener) -> None:
        while (delivery := await self.next()) is not None:
            try:
                result = listener(delivery)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                log.exception("%s: message %s is tried again", self.group, delivery.message_id)
                await delivery.retry()
            else:
                await delivery.ack()

    def _deliver(self, feed: QueueFeed, message: Received) -> None:
        self._ready.append(Delivery(message.stored, message.broker_name, feed, self))
        self._arrived.set()

    async def _retry(self, message: Received, feed: QueueFeed, after: float | None) -> None:
        if feed.is_dropped:
            return
        if self._options.orderly:
            loop = asyncio.get_running_loop()
            loop.call_later(SUSPEND_SECONDS if after is None else after, feed.again, feed.first_in_line)
            return
        if not self._options.broadcasting:
            await self._send_back(message, feed, after)
        feed.finish(message.queue_offset)

    async def _send_back(self, message: Received, feed: QueueFeed, after: float | None) -> None:
        header = SendBackRequest(
            physical_offset=message.stored.physical_offset,
            group=self.group,
            delay_level=0 if after is None else delay_level_of(after),
            origin_message_id=message.properties.get(properties.UNIQ_KEY, message.offset_message_id),
            origin_topic=message.stored.topic,
            max_reconsume_times=self._options.max_attempts,
        )
        while not feed.is_dropped:
            try:
                await self._link.send_back(feed.queue, header)
            except _TROUBLE as error:
                if isinstance(error, BrokerRefused) and not error.retriable:
                    raise
                log.warning("%s: %s cannot be sent back yet: %s", self.group, message.message_id, error)
                await asyncio.sleep(SUSPEND_SECONDS)
            else:
                return

    # Shares

    def membership_changed(self) -> None:
        """A broker said that members came or went."""
        self._membership_changed.set()

    async def _rebalance_loop(self) -> None:
        while not self._is_closed:
            self._membership_changed.clear()
            try:
                async with asyncio.timeout(REBALANCE_SECONDS if self._is_balanced else UNBALANCED_SECONDS):
                    await self._membership_changed.wait()
            except TimeoutError:
                pass
            if not self._is_balanced:
                await self._introduce()  # to a broker that was not known before, or has forgotten
            self._is_balanced = await self._rebalance()

    async def _introduce(self) -> None:
        try:
            await self._announce()
        except _TROUBLE as error:
            log.warning("%s: no heartbeat: %s", self.group, error)

    async def _rebalance(self) -> bool:
        """Take this member's share of every topic; False if something was not to be had yet."""
        changed, is_balanced = False, True
        for topic in list(self._subscriptions):
            try:
                changed |= await self._rebalance_topic(topic)
            except NoRoute:
                is_balanced = False  # nobody sent to it yet, or the name server has not heard of it
            except _TROUBLE as error:
                is_balanced = False
                log.warning("%s: shares of %s cannot be told now: %s", self.group, topic, error)
        if changed:
            now_ms = _now_ms()
            self._subscriptions = {name: replace(each, version=now_ms) for name, each in self._subscriptions.items()}
            await self._introduce()
        return is_balanced

    async def _rebalance_topic(self, topic: str) -> bool:
        route = await self._routes.refresh(topic)
        share = list(route.read_queues)
        if not self._options.broadcasting:
            members = await self._link.members(topic)
            if self._link.client_id not in members:
                raise NoRoute(f"no broker of {topic} lists this member of {self.group} yet")
            share = self._options.allocate(self._link.client_id, sorted(share), members)
        mine = {queue for queue in self._feeds if queue.topic == topic}
        gone, new = mine - set(share), [queue for queue in share if queue not in mine]
        for queue in gone:
            await self._drop(queue)
        if self._options.orderly and share:
            locked = await self._link.lock(share)
            for queue in [each for each in share if each in mine and each not in locked]:
                await self._drop(queue)
            new = [queue for queue in new if queue in locked]
        for queue in new:
            await self._take(queue)
        return bool(gone or new)

    async def _take(self, queue: MessageQueue) -> None:
        start = await self._link.start_offset(queue, self._options.start_from)
        subscription = self._subscriptions[queue.topic]
        self._feeds[queue] = QueueFeed(
            queue,
            start,
            self._link,
            subscription,
            self._deliver,
            ordered=self._options.orderly,
            commits=not self._options.broadcasting,
        )

    async def _drop(self, queue: MessageQueue) -> None:
        feed = self._feeds.pop(queue)
        await feed.stop()
        await self._commit(feed, at_once=True)
        if self._options.orderly:
            try:
                await self._link.unlock([queue])
            except _TROUBLE as error:
                log.warning("%s: %s/%d stays locked: %s", self.group, queue.topic, queue.queue_id, error)

    # Offsets

    async def _commit_loop(self) -> None:
        while not self._is_closed:
            await asyncio.sleep(COMMIT_SECONDS)
            await self.commit()

    async def commit(self) -> None:
        """Tell the brokers how far this member is; done every few seconds anyway, and on closing."""
        for feed in list(self._feeds.values()):
            await self._commit(feed, at_once=False)

    async def _commit(self, feed: QueueFeed, *, at_once: bool) -> None:
        done_to = feed.window.commit_offset
        if self._options.broadcasting or done_to <= feed.committed_to:
            return
        try:
            await (self._link.commit_now if at_once else self._link.commit)(feed.queue, done_to)
        except _TROUBLE as error:
            log.warning("%s: %s/%d is not committed: %s", self.group, feed.queue.topic, feed.queue.queue_id, error)
        else:
            feed.committed_to = done_to

    async def close(self) -> None:
        """Give the queues back; what was not done with is delivered to another member, or to this one next time."""
        if self._is_closed:
            return
        self._is_closed = True
        self._arrived.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for queue in list(self._feeds):
            try:
                await self._drop(queue)
            except ClientClosed:
                break
        await self._forget(self)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def delay_level_of(seconds: float) -> int:
    """Return the first level whose delay is at least so long."""
    return STANDARD_LEVELS.clamp(bisect_left(STANDARD_LEVELS.delays_ms, seconds * 1000) + 1)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
