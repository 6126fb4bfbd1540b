"""A message that waits for a word: done with, or to be tried again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from orbitlog.client.consumer.queue_feed import QueueFeed
from orbitlog.client.consumer.received import Received
from orbitlog.formats.records.message import Message

if TYPE_CHECKING:
    from orbitlog.client.producer.tracing import Given, Tracer


class Retries(Protocol):
    """Whoever knows how a message is tried again, and what its topic is called."""

    async def try_again(self, message: Delivery, feed: QueueFeed, after: float | None) -> None: ...

    async def take_back(self, message: Delivery, feed: QueueFeed, delay_level: int) -> None: ...

    def plain_name(self, topic: str) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def tracer(self) -> Tracer | None: ...

    @property
    def at_work(self) -> dict[Delivery, float]: ...


class Delivery(Received):
    """A message of a consumer group. Say `ack` or `retry`; the first word counts, a second changes nothing."""

    __slots__ = ("_consumer", "_feed", "_given", "_window", "is_settled")

    def __init__(self, stored: Message, feed: QueueFeed, consumer: Retries) -> None:
        super().__init__(stored, feed.queue.broker_name, feed.attempts(stored.queue_offset))
        self._feed = feed
        self._window = feed.window
        self._consumer = consumer
        self._given: Given | None = None
        self.is_settled = False

    @property
    def topic(self) -> str:
        """The topic it was sent to, as the sender named it, also when it comes back for a retry."""
        return self._consumer.plain_name(super().topic)

    @property
    def is_gone(self) -> bool:
        """Its queue belongs to another member now, or goes on elsewhere: a word about it would not count."""
        return self._feed.is_dropped or self._window is not self._feed.window

    async def ack(self) -> None:
        """It is done with.

        Example:
            await message.ack()
        """
        if not self.is_settled:
            self.is_settled = True
            self._consumer.at_work.pop(self, None)
            self._trace_end(success=True)
            self._finish()

    async def retry(self, after: float | None = None) -> None:
        """Have it delivered again, after about so many seconds.

        In order, it stays where it is and the rest of its queue waits. Else it goes back to the broker, which has
        eighteen delays from 1 s to 2 h, each longer than the one before if `after` is not given, and the rest goes on.

        Example:
            await message.retry(after=30)
        """
        if not self.is_settled:
            self._end_in_vain()
            await self._consumer.try_again(self, self._feed, after)

    async def give_back(self, delay_level: int) -> None:
        """Its user has had it for too long: another copy of it comes from the broker."""
        if not self.is_settled:
            self._end_in_vain()
            await self._consumer.take_back(self, self._feed, delay_level)

    def _end_in_vain(self) -> None:
        self.is_settled = True
        self._consumer.at_work.pop(self, None)
        self._trace_end(success=False)

    def taken(self, now: float) -> None:
        """It is handed to the user now."""
        self._feed.taken()
        self._consumer.at_work[self] = now
        if self._consumer.tracer is not None:
            self._given = self._consumer.tracer.given(self, self._consumer.group)

    def _trace_end(self, *, success: bool) -> None:
        if self._consumer.tracer is not None and self._given is not None:
            self._consumer.tracer.settled(self, self._consumer.group, self._given, success=success)

    def put_back(self) -> None:
        """The user left it without a word: it waits for the next one who asks."""
        self._consumer.at_work.pop(self, None)
        self._feed.settled.set()

    def _finish(self) -> None:
        self._feed.finish(self._window, self.stored.queue_offset)

    def finish_after_retry(self) -> None:
        """Another copy of it will come."""
        self._finish()

    def again_here(self, after_seconds: float) -> None:
        """Deliver it once more from here, not from the broker."""
        if not self.is_gone:
            self._feed.again(self._window, self.stored, after_seconds)


class DirectDelivery(Delivery):
    """A message that an operator hands to one consumer: the word about it is the answer, and nothing else happens."""

    __slots__ = ("is_done_with",)

    def __init__(self, stored: Message, feed: QueueFeed, consumer: Retries) -> None:
        super().__init__(stored, feed, consumer)
        self.is_done_with: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    @property
    def is_gone(self) -> bool:
        return self.is_done_with.done()

    async def ack(self) -> None:
        self._say(True)

    async def retry(self, after: float | None = None) -> None:
        self._say(False)

    def taken(self, now: float) -> None:
        pass

    def put_back(self) -> None:
        pass

    def _say(self, done_with: bool) -> None:
        self.is_settled = True
        if not self.is_done_with.done():
            self.is_done_with.set_result(done_with)
