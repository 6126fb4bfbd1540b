"""Deliveries: messages of a consumer group, to be settled with `ack()` or `retry()`."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from orbitlog.client.consumer.queue_feed import QueueFeed
from orbitlog.client.consumer.received import Received
from orbitlog.formats.records.message import Message

if TYPE_CHECKING:
    from orbitlog.client.telemetry.delivery_tracers import DeliveryTracer


class DeliveryOwner(Protocol):
    """The part of a consumer that its deliveries use."""

    async def retry(self, delivery: Delivery, feed: QueueFeed, after: float | None) -> None: ...

    async def redeliver(self, delivery: Delivery, feed: QueueFeed, delay_level: int) -> None: ...

    def plain_name(self, topic: str) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def tracer(self) -> DeliveryTracer | None: ...

    @property
    def in_progress(self) -> dict[Delivery, float]: ...


class Delivery(Received):
    """A message delivered to a consumer group; settle it with `ack()` or `retry()`. Only the first call counts.

    Example:
        consumer = await mq.consume("Orders", group="billing", start_from="first")
        message = await consumer.next(10)
        if message is not None:
            print(message.text, message.attempts)
            await message.ack()
        await consumer.close()
    """

    __slots__ = ("_consumer", "_feed", "_span", "_window", "is_settled")

    def __init__(self, stored: Message, feed: QueueFeed, consumer: DeliveryOwner) -> None:
        super().__init__(stored, feed.queue.broker_name, feed.attempts(stored.queue_offset))
        self._feed = feed
        self._window = feed.window
        self._consumer = consumer
        self._span: Any = None
        self.is_settled = False

    @property
    def topic(self) -> str:
        """The topic it was sent to, without namespace, also for a retried message."""
        return self._consumer.plain_name(super().topic)

    @property
    def is_stale(self) -> bool:
        """Whether its queue was assigned to another member or reset: settling it has no effect then."""
        return self._feed.is_dropped or self._window is not self._feed.window

    async def ack(self) -> None:
        """Acknowledge the message: it is consumed, and its offset may be committed.

        Example:
            await message.ack()
        """
        if not self.is_settled:
            self.is_settled = True
            self._consumer.in_progress.pop(self, None)
            self._trace_end(success=True)
            self.finish()

    async def retry(self, after: float | None = None) -> None:
        """Have the message redelivered after about `after` seconds.

        An orderly consumer requeues it locally, and the rest of its queue waits. Otherwise the broker redelivers it:
        brokers have 18 delays from 1 s to 2 h. Without `after`, each attempt has a longer delay than the last.

        Example:
            await message.retry(after=30)
        """
        if not self.is_settled:
            self._settle_as_failed()
            await self._consumer.retry(self, self._feed, after)

    async def redeliver(self, delay_level: int) -> None:
        """Have the broker redeliver the message, because it was not settled in time."""
        if not self.is_settled:
            self._settle_as_failed()
            await self._consumer.redeliver(self, self._feed, delay_level)

    def _settle_as_failed(self) -> None:
        self.is_settled = True
        self._consumer.in_progress.pop(self, None)
        self._trace_end(success=False)

    def start(self, now: float) -> None:
        """Record that the message is handed to the user now."""
        self._feed.mark_busy()
        self._consumer.in_progress[self] = now
        if self._consumer.tracer is not None:
            self._span = self._consumer.tracer.started(self, self._consumer.group)

    def release(self) -> None:
        """Undo `start`: the user left the loop without settling the message."""
        self._consumer.in_progress.pop(self, None)
        self._feed.idle.set()
        self.end_span()

    def end_span(self) -> None:
        """End the trace of a delivery that is not settled."""
        if self._consumer.tracer is not None and self._span is not None:
            self._consumer.tracer.released(self._span)
            self._span = None

    def entered(self) -> AbstractContextManager[None]:
        """Return the context in which a listener runs."""
        if self._consumer.tracer is None or self._span is None:
            return nullcontext()
        return self._consumer.tracer.entered(self._span)

    def note_failure(self, error: Exception) -> None:
        """Add the exception of a listener to the trace."""
        if self._consumer.tracer is not None and self._span is not None:
            self._consumer.tracer.failed(self._span, error)

    def _trace_end(self, *, success: bool) -> None:
        if self._consumer.tracer is not None and self._span is not None:
            self._consumer.tracer.settled(self, self._consumer.group, self._span, success=success)
            self._span = None

    def finish(self) -> None:
        """Remove the message from its queue's window: it was consumed, or the broker redelivers it."""
        self._feed.finish(self._window, self.stored.queue_offset)

    def requeue_after(self, seconds: float) -> None:
        """Deliver the message from memory after `seconds`."""
        if not self.is_stale:
            self._feed.requeue(self._window, self.stored, seconds)


class DirectDelivery(Delivery):
    """A message sent to one consumer by an operator: its outcome is the response, and no offset changes."""

    __slots__ = ("outcome",)

    def __init__(self, stored: Message, feed: QueueFeed, consumer: DeliveryOwner) -> None:
        super().__init__(stored, feed, consumer)
        self.outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    @property
    def is_stale(self) -> bool:
        return self.outcome.done()

    async def ack(self) -> None:
        self._set_outcome(True)

    async def retry(self, after: float | None = None) -> None:
        self._set_outcome(False)

    def start(self, now: float) -> None:
        pass

    def release(self) -> None:
        pass

    def _set_outcome(self, is_consumed: bool) -> None:
        self.is_settled = True
        if not self.outcome.done():
            self.outcome.set_result(is_consumed)
