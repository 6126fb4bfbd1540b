"""Consumer: a member of a consumer group that delivers messages of its queues and retries failed ones.

Mirrors Java `DefaultMQPushConsumerImpl`, `ConsumeMessageConcurrentlyService` and `ConsumeMessageOrderlyService`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING

from orbitlog.client.connection.namespaces import unwrapped
from orbitlog.client.consumer.delivery import Delivery, DirectDelivery
from orbitlog.client.consumer.group_link import GroupLink
from orbitlog.client.consumer.member_assignment import ConsumeOptions, MemberAssignment
from orbitlog.client.consumer.queue_feed import Deliver, QueueFeed
from orbitlog.errors import ClientError, OrbitlogError
from orbitlog.formats.delay_levels import STANDARD_LEVELS
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties
from orbitlog.formats.records.message import Message
from orbitlog.wire.bodies.heartbeat_bodies import ConsumerData
from orbitlog.wire.consume_headers import SendBackRequest

if TYPE_CHECKING:
    from orbitlog.client.telemetry.delivery_tracers import DeliveryTracer
    from orbitlog.client.telemetry.otel_spans import OtelSpans

log = logging.getLogger(__name__)

COMMIT_SECONDS = 5.0
CLOSE_SECONDS = 8.0
WORK_SECONDS = 5.0
SUSPEND_SECONDS = 1.0
REQUEUE_SECONDS = 5.0
DIRECT_SECONDS = 9.0
_TURN_SECONDS = 0.005
OVERDUE_CHECK_SECONDS = 60.0
_DEAD_LETTER_LEVEL = -1
_OVERDUE_LEVEL = 3

ListenerResult = Awaitable[object] | object
Listener = Callable[[Delivery], ListenerResult]


class Consumer:
    """A member of a consumer group; iterate with `async for`. Requesting the next message acknowledges the last one.

    Leaving the loop by `break` or by an exception does not acknowledge the current message: it is requeued for the
    next caller, and redelivered to the group if this member closes first.

    Example:
        async with mq.consume("Orders", group="shipping", start_from="first") as consumer:
            async for message in consumer:
                print(message.text)
                break
    """

    def __init__(
        self,
        link: GroupLink,
        options: ConsumeOptions,
        make_assignment: Callable[[Deliver], MemberAssignment],
        *,
        on_close: Callable[[Consumer], Awaitable[None]],
        tracer: DeliveryTracer | None = None,
        spans: OtelSpans | None = None,
    ) -> None:
        self._link = link
        self._options = options
        self._on_close = on_close
        self.tracer = tracer
        self._spans = spans
        self.assignment = make_assignment(self._deliver)
        self._ready: deque[Delivery] = deque()
        self._arrived = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: set[asyncio.Task[None]] = set()
        self.in_progress: dict[Delivery, float] = {}
        """Deliveries handed to users and not settled, with their start times; oldest first."""
        self._loop = asyncio.get_running_loop()
        self._turn_ends_at = 0.0
        self._is_closed = False
        self._has_left = asyncio.Event()
        self.started_ms = time.time_ns() // 1_000_000

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._link.group

    @property
    def options(self) -> ConsumeOptions:
        return self._options

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues assigned to this member."""
        return sorted(self.assignment.feeds)

    @property
    def is_leaving(self) -> bool:
        """Whether the consumer is closed or closing."""
        return self._is_closed

    def heartbeat_data(self) -> ConsumerData:
        """Return the part of a heartbeat about this member."""
        return self.assignment.heartbeat_data()

    def membership_changed(self) -> None:
        """Rebalance, because a broker reported that members joined or left."""
        self.assignment.request_rebalance()

    async def start(self) -> Consumer:
        await self.assignment.start()
        loops = [self.assignment.keep_balanced(), self._commit_loop()]
        if self._options.consume_seconds is not None and not (self._options.orderly or self._options.broadcasting):
            loops.append(self._overdue_loop(self._options.consume_seconds))
        self._tasks = [self._loop.create_task(loop) for loop in loops]
        return self

    # Delivery

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return DeliveryLoop(self)

    async def next(self, seconds: float | None = None) -> Delivery | None:
        """Wait for the next message; None after `seconds`, or if the consumer is closed. Settle it with `ack()`.

        Example:
            message = await consumer.next(10)
            if message is not None:
                await message.ack()
        """
        if self._spans is None:
            return await self._take(seconds)
        started_ns = time.time_ns()
        delivery = await self._take(seconds)
        if delivery is not None:
            self._spans.received(self.group, [delivery], started_ns)
        return delivery

    async def _take(self, seconds: float | None = None) -> Delivery | None:
        """Do the same as `next`, without a span for the call: for loops that hand out one message after the other."""
        if self._ready:
            # Yield now and then: otherwise a backlog in memory would starve heartbeats and pulls.
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
            if not delivery.is_stale:
                delivery.start(self._loop.time())
                return delivery
        return None

    def requeue(self, delivery: Delivery) -> None:
        """Deliver a message to the next caller, because its user left without settling it."""
        if not (delivery.is_settled or delivery.is_stale):
            delivery.release()
            self._ready.appendleft(delivery)
            self._arrived.set()

    async def batches(self, count: int = 32) -> AsyncGenerator[list[Delivery], None]:
        """Iterate over lists of at most `count` available messages; requesting the next list acknowledges the last.

        Example:
            async for batch in consumer.batches(100):
                print(len(batch))
                break
        """
        if count < 1:
            raise ClientError(f"invalid batch size {count}: must be at least 1")
        started_ns = time.time_ns()
        while (first := await self._take()) is not None:
            batch = [first]
            while len(batch) < count and (more := await self._take(0)) is not None:
                batch.append(more)
            if self._spans is not None:
                self._spans.received(self.group, batch, started_ns)
            try:
                yield batch
            except GeneratorExit:
                for delivery in reversed(batch):
                    self.requeue(delivery)
                raise
            for delivery in batch:
                await delivery.ack()
            started_ns = time.time_ns()

    async def run(self, listener: Listener, *, concurrency: int = 20) -> None:
        """Call `listener` for every message until closed: a return acknowledges, an exception retries.

        At most `concurrency` calls run at a time. `listener` should be an `async def`: a plain function runs on the
        event loop and blocks it.

        Example:
            async def listener(message):
                print(message.text)
                await consumer.close()  # usually on a signal

            await consumer.run(listener, concurrency=4)
        """
        if concurrency < 1:
            raise ClientError(f"invalid concurrency {concurrency}: must be at least 1")
        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                worker = workers.create_task(self._work(listener))
                self._workers.add(worker)
                worker.add_done_callback(self._workers.discard)

    async def _work(self, listener: Listener) -> None:
        while (delivery := await self._take()) is not None:
            try:
                if self.tracer is None:
                    result = listener(delivery)
                    if inspect.isawaitable(result):
                        await result
                else:
                    with delivery.entered():
                        result = listener(delivery)
                        if inspect.isawaitable(result):
                            await result
            except Exception as error:
                delivery.note_failure(error)
                log.exception("%s: listener failed; retrying message %s", self.group, delivery.message_id)
                await delivery.retry()
            else:
                await delivery.ack()

    def _deliver(self, feed: QueueFeed, message: Message) -> None:
        self._ready.append(Delivery(message, feed, self))
        self._arrived.set()

    def plain_name(self, topic: str) -> str:
        return unwrapped(self._options.namespace, topic)

    # Retries

    async def retry(self, delivery: Delivery, feed: QueueFeed, after: float | None) -> None:
        """Retry a failed delivery: from memory if orderly or broadcasting, else by the broker; or give up on it."""
        if delivery.is_stale:
            return
        limit = self._options.attempts_max
        is_last = limit is not None and delivery.attempts >= limit
        if (self._options.broadcasting or self._options.orderly) and not is_last:
            delivery.requeue_after(SUSPEND_SECONDS if after is None else after)
        elif self._options.broadcasting:
            log.warning("%s: dropping %s after %d attempts", self.group, delivery.message_id, delivery.attempts)
            delivery.finish()
        elif self._options.orderly:
            await self.redeliver(delivery, feed, _DEAD_LETTER_LEVEL)
        else:
            await self.redeliver(delivery, feed, 0 if after is None else delay_level_of(after))

    async def redeliver(self, delivery: Delivery, feed: QueueFeed, delay_level: int) -> None:
        """Have the broker redeliver a message; requeue it locally if the broker does not accept it now."""
        if delivery.is_stale:
            return
        header = SendBackRequest(
            physical_offset=delivery.stored.physical_offset,
            group=self.group,
            delay_level=delay_level,
            origin_message_id=delivery.properties.get(properties.UNIQ_KEY, delivery.offset_message_id),
            origin_topic=delivery.stored.topic,
            max_reconsume_times=self._options.attempts_max,
        )
        try:
            await self._link.redeliver(feed.queue, header)
        except OrbitlogError as error:
            log.warning("%s: could not send back %s: %s", self.group, delivery.message_id, error)
            delivery.requeue_after(REQUEUE_SECONDS)
        else:
            delivery.finish()

    async def _overdue_loop(self, seconds: float) -> None:
        """Have the broker redeliver messages that were not settled in time: they block the commits of their queues."""
        while not self._is_closed:
            await asyncio.sleep(min(seconds / 4, OVERDUE_CHECK_SECONDS))
            now = self._loop.time()
            overdue = [delivery for delivery, since in self.in_progress.items() if now - since > seconds]
            for delivery in overdue:
                if delivery.is_stale:
                    self.in_progress.pop(delivery, None)
                    continue
                log.warning(
                    "%s: message %s was not settled within %g s; redelivering", self.group, delivery.message_id, seconds
                )
                await delivery.redeliver(_OVERDUE_LEVEL)

    async def consume_directly(self, stored: Message) -> bool | None:
        """Deliver one message for an operator; return whether it was acknowledged, None if not settled in time."""
        feed = next(iter(self.assignment.feeds.values()), None)
        if feed is None:
            return None
        delivery = DirectDelivery(stored, feed, self)
        self._ready.appendleft(delivery)
        self._arrived.set()
        done, _ = await asyncio.wait({delivery.outcome}, timeout=DIRECT_SECONDS)
        if not done:
            delivery.outcome.cancel()
            return None
        return delivery.outcome.result()

    # Commit and close

    async def _commit_loop(self) -> None:
        while not self._is_closed:
            await asyncio.sleep(COMMIT_SECONDS)
            await self.commit()

    async def commit(self) -> None:
        """Commit the offsets of this member now; also done every 5 s and on close.

        Example:
            await consumer.commit()
        """
        await self.assignment.commit()

    async def close(self, *, work_seconds: float = WORK_SECONDS) -> None:
        """Commit, and leave the group; unsettled messages are redelivered to the group.

        Waits up to `work_seconds` for listeners of `run` to finish their current message.

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
                await self.assignment.drop_all()
        except TimeoutError:
            log.warning("%s: closed without a response from every broker; some messages may be redelivered", self.group)
        for delivery in self.in_progress:
            delivery.end_span()
        for message in self._ready:
            if isinstance(message, DirectDelivery):
                message.outcome.cancel()
        self._ready.clear()
        await self._on_close(self)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class DeliveryLoop:
    """One `async for` over a consumer.

    Not a generator: Python closes an abandoned async generator some time later, but the current message must be
    available to the next loop immediately. `__del__` runs as soon as the loop drops its iterator.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._current: Delivery | None = None

    def __aiter__(self) -> DeliveryLoop:
        return self

    async def __anext__(self) -> Delivery:
        if self._current is not None:
            await self._current.ack()
        self._current = await self._consumer._take()
        if self._current is None:
            raise StopAsyncIteration
        return self._current

    def __del__(self) -> None:
        if self._current is not None:
            self._consumer.requeue(self._current)


class ConsumerContext:
    """Result of `consume`: iterate over it, enter it with `async with`, or await it for the `Consumer`."""

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
    """Return the first delay level of at least `seconds`."""
    return STANDARD_LEVELS.clamp(bisect_left(STANDARD_LEVELS.delays_ms, seconds * 1000) + 1)
