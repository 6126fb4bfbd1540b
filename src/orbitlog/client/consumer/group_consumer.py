"""A member of a consumer group: hands the messages of its queues to whoever iterates, and tries again what failed.

Mirrors Java `DefaultMQPushConsumerImpl`, `ConsumeMessageConcurrentlyService` and `ConsumeMessageOrderlyService`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence

from orbitlog.client.connection.namespaces import unwrapped
from orbitlog.client.connection.routes import Routes
from orbitlog.client.consumer.delivery import Delivery, DirectDelivery
from orbitlog.client.consumer.group_link import GroupLink
from orbitlog.client.consumer.member_share import ConsumeOptions, MemberShare
from orbitlog.client.consumer.queue_feed import QueueFeed
from orbitlog.client.producer.tracing import Tracer
from orbitlog.errors import ClientError, OrbitlogError
from orbitlog.formats.delay_levels import STANDARD_LEVELS
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties
from orbitlog.formats.records.message import Message
from orbitlog.wire.bodies.heartbeat_bodies import ConsumerData, SubscriptionData
from orbitlog.wire.consume_headers import SendBackRequest

log = logging.getLogger(__name__)

COMMIT_SECONDS = 5.0
CLOSE_SECONDS = 8.0
WORK_SECONDS = 5.0
SUSPEND_SECONDS = 1.0
AGAIN_HERE_SECONDS = 5.0
DIRECT_SECONDS = 9.0
_TURN_SECONDS = 0.005
OVERDUE_LOOK_SECONDS = 60.0
_TO_DEAD_LETTERS = -1
_OVERDUE_LEVEL = 3

ListenerResult = Awaitable[object] | object
Listener = Callable[[Delivery], ListenerResult]


class Consumer:
    """Iterate over it: `async for message in consumer`. A message counts as done when the next one is asked for.

    Leaving the loop, by `break` or by an exception, leaves the message at hand undone: whoever asks next gets it again,
    and if nobody does, it comes back to the group when this member closes.
    """

    def __init__(
        self,
        link: GroupLink,
        routes: Routes,
        subscriptions: Sequence[SubscriptionData],
        options: ConsumeOptions,
        *,
        announce: Callable[[], Awaitable[None]],
        forget: Callable[[Consumer], Awaitable[None]],
        tracer: Tracer | None = None,
    ) -> None:
        self._link = link
        self._options = options
        self._forget = forget
        self.tracer = tracer
        self.share = MemberShare(link, routes, subscriptions, options, announce=announce, deliver=self._deliver)
        self._ready: deque[Delivery] = deque()
        self._arrived = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: set[asyncio.Task[None]] = set()
        self.at_work: dict[Delivery, float] = {}
        """What users have at hand, since when; oldest first."""
        self._loop = asyncio.get_running_loop()
        self._turn_ends_at = 0.0
        self._is_closed = False
        self._has_left = asyncio.Event()
        self.started_ms = time.time_ns() // 1_000_000

    @property
    def group(self) -> str:
        return self._link.group

    @property
    def options(self) -> ConsumeOptions:
        return self._options

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now."""
        return sorted(self.share.feeds)

    @property
    def is_leaving(self) -> bool:
        """It was closed, or is being closed."""
        return self._is_closed

    def described(self) -> ConsumerData:
        """What heartbeats say of this member."""
        return self.share.described()

    def membership_changed(self) -> None:
        """A broker said that members came or went."""
        self.share.look_again()

    async def start(self) -> Consumer:
        await self.share.start()
        loops = [self.share.keep_balanced(), self._commit_loop()]
        if self._options.consume_seconds is not None and not (self._options.orderly or self._options.broadcasting):
            loops.append(self._overdue_loop(self._options.consume_seconds))
        self._tasks = [self._loop.create_task(each) for each in loops]
        return self

    # Delivery

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return DeliveryLoop(self)

    async def next(self, seconds: float | None = None) -> Delivery | None:
        """Wait for the next message; None when the time is up or the consumer is closed. Needs its `ack`.

        Example:
            message = await consumer.next(10)
            if message is not None:
                await message.ack()
        """
        if self._ready:
            # A backlog in memory must not keep the loop from heartbeats and from fetching more.
            now = self._loop.time()
            if now > self._turn_ends_at:
                await asyncio.sleep(0)
                self._turn_ends_at = self._loop.time() + _TURN_SECONDS
        if (delivery := self._next_ready()) is not None or self._is_closed or seconds == 0:
            return delivery
        try:
            async with asyncio.timeout(seconds):
                while delivery is None and not self._is_closed:
                    self._arrived.clear()
                    await self._arrived.wait()
                    delivery = self._next_ready()
        except TimeoutError:
            pass
        return delivery

    def _next_ready(self) -> Delivery | None:
        while self._ready and not self._is_closed:
            delivery = self._ready.popleft()
            if not delivery.is_gone:
                delivery.taken(self._loop.time())
                return delivery
        return None

    def put_back(self, delivery: Delivery) -> None:
        """Somebody took a message and went away without a word about it."""
        if not (delivery.is_settled or delivery.is_gone):
            delivery.put_back()
            self._ready.appendleft(delivery)
            self._arrived.set()

    async def batches(self, count: int = 32) -> AsyncGenerator[list[Delivery], None]:
        """Iterate over lists of what is there, at most `count`; done with when the next list is asked for.

        Example:
            async for batch in consumer.batches(100):
                print(len(batch))
                break
        """
        if count < 1:
            raise ClientError(f"batches of {count} messages; give at least 1")
        while (first := await self.next()) is not None:
            batch = [first]
            while len(batch) < count and (more := await self.next(0)) is not None:
                batch.append(more)
            try:
                yield batch
            except GeneratorExit:
                for delivery in reversed(batch):
                    self.put_back(delivery)
                raise
            for delivery in batch:
                await delivery.ack()

    async def run(self, listener: Listener, *, concurrency: int = 20) -> None:
        """Call `listener` for every message until closed: returning is `ack`, raising is `retry`.

        At most `concurrency` messages are worked on at a time. Give it an `async def`: a plain function runs on the
        event loop, and what blocks there stops everything else.

        Example:
            async def listener(message):
                print(message.text)
                await consumer.close()  # here after the first; usually on a signal

            await consumer.run(listener, concurrency=4)
        """
        if concurrency < 1:
            raise ClientError(f"{concurrency} messages at a time; give at least 1")
        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                worker = workers.create_task(self._work(listener))
                self._workers.add(worker)
                worker.add_done_callback(self._workers.discard)

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

    def _deliver(self, feed: QueueFeed, message: Message) -> None:
        self._ready.append(Delivery(message, feed, self))
        self._arrived.set()

    def plain_name(self, topic: str) -> str:
        return unwrapped(self._options.namespace, topic)

    # Another try

    async def try_again(self, message: Delivery, feed: QueueFeed, after: float | None) -> None:
        """What `Delivery.retry` does. Never waits long: a broker that cannot be asked is asked again later."""
        if message.is_gone:
            return
        limit = self._options.attempts_max
        is_last = limit is not None and message.attempts >= limit
        if self._options.broadcasting:
            if is_last:
                log.warning("%s: given up on %s after %d tries", self.group, message.message_id, message.attempts)
                message.finish_after_retry()
            else:
                message.again_here(SUSPEND_SECONDS if after is None else after)
        elif self._options.orderly:
            if not is_last:
                message.again_here(SUSPEND_SECONDS if after is None else after)
            elif await self._send_back(message, feed, _TO_DEAD_LETTERS):
                message.finish_after_retry()
        elif await self._send_back(message, feed, 0 if after is None else delay_level_of(after)):
            message.finish_after_retry()

    async def _send_back(self, message: Delivery, feed: QueueFeed, delay_level: int) -> bool:
        """Give a message back to the broker; where that fails it is delivered again from here, in a while."""
        header = SendBackRequest(
            physical_offset=message.stored.physical_offset,
            group=self.group,
            delay_level=delay_level,
            origin_message_id=message.properties.get(properties.UNIQ_KEY, message.offset_message_id),
            origin_topic=message.stored.topic,
            max_reconsume_times=self._options.attempts_max,
        )
        try:
            await self._link.send_back(feed.queue, header)
        except OrbitlogError as error:
            log.warning("%s: %s cannot be sent back now: %s", self.group, message.message_id, error)
            message.again_here(AGAIN_HERE_SECONDS)
            return False
        return True

    async def take_back(self, message: Delivery, feed: QueueFeed, delay_level: int) -> None:
        """What `Delivery.give_back` does."""
        if not message.is_gone and await self._send_back(message, feed, delay_level):
            message.finish_after_retry()

    async def _overdue_loop(self, seconds: float) -> None:
        """Give back what users have had for too long: the rest of its queue could never be committed."""
        while not self._is_closed:
            await asyncio.sleep(min(seconds / 4, OVERDUE_LOOK_SECONDS))
            overdue = [each for each, since in self.at_work.items() if self._loop.time() - since > seconds]
            for delivery in overdue:
                if delivery.is_gone:
                    self.at_work.pop(delivery, None)
                    continue
                log.warning("%s: %s was given out %g s ago, and goes back", self.group, delivery.message_id, seconds)
                await delivery.give_back(_OVERDUE_LEVEL)

    async def consume_directly(self, stored: Message) -> bool | None:
        """Hand one message to whoever iterates, on an operator's behalf; None if nobody dealt with it in time."""
        feed = next(iter(self.share.feeds.values()), None)
        if feed is None:
            return None
        delivery = DirectDelivery(stored, feed, self)
        self._ready.appendleft(delivery)
        self._arrived.set()
        done, _ = await asyncio.wait({delivery.is_done_with}, timeout=DIRECT_SECONDS)
        if not done:
            delivery.is_done_with.cancel()
            return None
        return delivery.is_done_with.result()

    # Offsets and the end

    async def _commit_loop(self) -> None:
        while not self._is_closed:
            await asyncio.sleep(COMMIT_SECONDS)
            await self.commit()

    async def commit(self) -> None:
        """Tell the brokers how far this member is; done every few seconds anyway, and on closing.

        Example:
            await consumer.commit()
        """
        await self.share.commit()

    async def close(self, *, work_seconds: float = WORK_SECONDS) -> None:
        """Give the queues back; what was not done with is delivered to another member, or to this one next time.

        Listeners of `run` may finish the message that they work on, for so many seconds.

        Example:
            await consumer.close()
        """
        if self._is_closed:
            if asyncio.current_task() not in self._workers:
                await self._has_left.wait()
            return
        self._is_closed = True
        self._arrived.set()
        try:
            await self._leave(work_seconds)
        finally:
            self._has_left.set()

    async def _leave(self, work_seconds: float) -> None:
        if others := [worker for worker in self._workers if worker is not asyncio.current_task()]:
            await asyncio.wait(others, timeout=work_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.share.drop_all()
        except TimeoutError:
            log.warning("%s: left without an answer from every broker; some messages may come again", self.group)
        for message in self._ready:
            if isinstance(message, DirectDelivery):
                message.is_done_with.cancel()
        self._ready.clear()
        await self._forget(self)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class DeliveryLoop:
    """One `async for` over a consumer.

    Not a generator: one that a loop leaves is closed some time later, and the message at hand should be there for the
    next loop at once.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._at_hand: Delivery | None = None

    def __aiter__(self) -> DeliveryLoop:
        return self

    async def __anext__(self) -> Delivery:
        if self._at_hand is not None:
            await self._at_hand.ack()
        self._at_hand = await self._consumer.next()
        if self._at_hand is None:
            raise StopAsyncIteration
        return self._at_hand

    def __del__(self) -> None:
        if self._at_hand is not None:
            self._consumer.put_back(self._at_hand)


class Joining:
    """What `consume` returns: iterate over it, enter it with `async with`, or await it for the `Consumer`."""

    def __init__(self, join: Callable[[], Awaitable[Consumer]]) -> None:
        self._join = join
        self._consumer: Consumer | None = None

    def __await__(self) -> Generator[object, None, Consumer]:
        return self._joined().__await__()

    async def _joined(self) -> Consumer:
        return await self._join()

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        async with await self._join() as consumer:
            async for delivery in consumer:
                yield delivery

    async def __aenter__(self) -> Consumer:
        self._consumer = await self._join()
        return self._consumer

    async def __aexit__(self, *_: object) -> None:
        if self._consumer is not None:
            await self._consumer.close()


def delay_level_of(seconds: float) -> int:
    """Return the first level whose delay is at least so long."""
    return STANDARD_LEVELS.clamp(bisect_left(STANDARD_LEVELS.delays_ms, seconds * 1000) + 1)
