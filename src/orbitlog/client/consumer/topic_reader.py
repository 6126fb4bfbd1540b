"""Reader: reads queues of a topic from any position, without a consumer group.

Mirrors Java `DefaultLitePullConsumer` in its assign mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime

from orbitlog.client.connection.namespaces import unwrapped
from orbitlog.client.connection.routes import Routes
from orbitlog.client.consumer.group_link import GroupLink, StartFrom, start_of
from orbitlog.client.consumer.queue_feed import QueueFeed
from orbitlog.client.consumer.received import NamespacedMessage, Received
from orbitlog.errors import ClientError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records.message import Message
from orbitlog.wire.bodies.heartbeat_bodies import SubscriptionData


class Reader:
    """A reader of some queues of a topic, created by `read`; iterate over it, or call `next`.

    Example:
        async with await mq.read("Orders", start="first") as reader:
            async for message in reader:
                print(message.queue_id, message.queue_offset, message.text)
                break
    """

    def __init__(
        self,
        link: GroupLink,
        routes: Routes,
        subscription: SubscriptionData,
        *,
        on_close: Callable[[Reader], None],
        namespace: str = "",
    ) -> None:
        self._link = link
        self._routes = routes
        self._subscription = subscription
        self._feeds: dict[MessageQueue, QueueFeed] = {}
        self._on_close = on_close
        self._namespace = namespace
        self._ready: asyncio.Queue[tuple[QueueFeed, Message] | None] = asyncio.Queue()
        self._is_closed = False

    @property
    def topic(self) -> str:
        """The topic, without namespace."""
        return unwrapped(self._namespace, self._subscription.topic)

    @property
    def queues(self) -> list[MessageQueue]:
        """The assigned queues."""
        return sorted(self._feeds)

    async def assign(
        self, queues: Sequence[MessageQueue] | None = None, start: StartFrom | datetime | str | int = StartFrom.FIRST
    ) -> None:
        """Read only these queues (all of the topic if None), from `start`: "first", "last", a datetime or an offset.

        Example:
            await reader.assign(reader.queues[:1], start="last")
        """
        await self._drop_all()
        wanted = queues if queues is not None else (await self._routes.of(self._subscription.topic)).read_queues
        await asyncio.gather(*(self.seek(queue, start) for queue in wanted))

    async def seek(self, queue: MessageQueue, to: int | StartFrom | datetime | str) -> None:
        """Continue a queue at an offset, at "first", "last", or at a datetime.

        Example:
            await reader.seek(reader.queues[0], 0)
        """
        if queue.topic != self._subscription.topic:
            raise ClientError(f"queue of topic {queue.topic} given to a reader of {self.topic}")
        feed = self._feeds.pop(queue, None)
        if feed is not None:
            await feed.stop()
        start = await self._offset(queue, to)
        self._feeds[queue] = QueueFeed(queue, start, self._link, self._subscription, self._deliver, commits=False)

    async def _offset(self, queue: MessageQueue, to: int | StartFrom | datetime | str) -> int:
        if isinstance(to, int):
            return to
        if isinstance(to, datetime):
            return await self._link.offset_at(queue, to)
        return await (self._link.min_offset(queue) if start_of(to) is StartFrom.FIRST else self._link.max_offset(queue))

    def pause(self, *queues: MessageQueue) -> None:
        """Stop pulling these queues (all, if none are given) until `resume`.

        Example:
            reader.pause(reader.queues[0])
        """
        self._set_paused(queues, paused=True)

    def resume(self, *queues: MessageQueue) -> None:
        """Resume pulling these queues (all, if none are given).

        Example:
            reader.resume()
        """
        self._set_paused(queues, paused=False)

    def _set_paused(self, queues: Sequence[MessageQueue], *, paused: bool) -> None:
        for queue in queues or self.queues:
            feed = self._feeds.get(queue)
            if feed is None:
                raise ClientError(f"{queue} is not assigned; assigned: {', '.join(map(str, self.queues)) or 'none'}")
            feed.is_paused = paused
            feed.wake()

    def positions(self) -> Mapping[MessageQueue, int]:
        """Return the queue offset of the next message to return, by queue.

        Example:
            for queue, queue_offset in reader.positions().items():
                print(queue.queue_id, queue_offset)
        """
        return {queue: feed.window.commit_offset for queue, feed in self._feeds.items()}

    async def next(self, seconds: float | None = None) -> Received | None:
        """Wait for the next message; None after `seconds`, or if the reader is closed.

        Example:
            message = await reader.next(10)
        """
        if self._is_closed:
            return None
        try:
            async with asyncio.timeout(seconds):
                while (ready := await self._ready.get()) is not None:
                    feed, message = ready
                    if self._feeds.get(feed.queue) is feed and feed.finish(feed.window, message.queue_offset):
                        return NamespacedMessage(message, feed.queue.broker_name, self._namespace)
        except TimeoutError:
            pass
        return None

    async def __aiter__(self) -> AsyncIterator[Received]:
        while (message := await self.next()) is not None:
            yield message

    def _deliver(self, feed: QueueFeed, message: Message) -> None:
        self._ready.put_nowait((feed, message))

    async def close(self) -> None:
        """Stop reading; a pending `next` returns None.

        Example:
            await reader.close()
        """
        self._is_closed = True
        await self._drop_all()
        self._ready.put_nowait(None)
        self._on_close(self)

    async def _drop_all(self) -> None:
        feeds, self._feeds = list(self._feeds.values()), {}
        for feed in feeds:
            await feed.stop()

    async def __aenter__(self) -> Reader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
