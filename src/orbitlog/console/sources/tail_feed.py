"""Live tail: one puller for each topic, shared by all its viewers; every message that a viewer misses is counted."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from orbitlog.client.admin.inspection import BrokerQueue, Inspection
from orbitlog.client.consumer.received import Received
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.errors import OrbitlogError
from orbitlog.formats.message_queue import MessageQueue

POLL_SECONDS = 0.25
FAILED_SECONDS = 2.0
WAITING_MAX = 1000
PER_QUEUE_MAX = 1000
VIEWERS_MAX = 200

log = logging.getLogger(__name__)


class Viewer:
    """One open tail: messages that wait to be sent, and the number of those that were dropped."""

    def __init__(self, wants: Callable[[Received], bool]) -> None:
        self._wants = wants
        self._waiting: deque[Received] = deque()
        self.dropped = 0
        self.seen = 0
        self.problem: str | None = None

    def offer(self, message: Received) -> None:
        self.seen += 1
        if not self._wants(message):
            return
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(message)

    def take(self, count: int) -> list[Received]:
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]


class TailFeed:
    """Reads new messages of one topic while it has viewers."""

    def __init__(self, source: ClusterSource, topic: str) -> None:
        self._source = source
        self._topic = topic
        self._positions: dict[MessageQueue, int] = {}
        self._brokers_missed: set[str] = set()
        self.viewers: set[Viewer] = set()
        self.reading: asyncio.Task[None] | None = None
        self.has_begun = False
        """Whether the first round is over: every later message is offered to the viewers or counted as dropped."""

    @property
    def has_ended(self) -> bool:
        """Whether reading stopped for good, by an unexpected error: its viewers join another feed."""
        return self.reading is not None and self.reading.done()

    def start(self) -> None:
        self.reading = asyncio.create_task(self._read_for_ever())
        self.reading.add_done_callback(self._log_end)

    def _log_end(self, reading: asyncio.Task[None]) -> None:
        if not reading.cancelled() and (error := reading.exception()) is not None:
            log.error("%s: the tail of %s ended: %s", self._source.name, self._topic, error, exc_info=error)

    async def _read_for_ever(self) -> None:
        """Poll until cancelled; a failed round is shown to the viewers and retried."""
        await self._poll(is_first=True)
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self._poll(is_first=False)

    async def _poll(self, *, is_first: bool) -> None:
        sample = await self._source.sample()
        inspection = Inspection(self._source.admin)
        problem: str | None = None
        for broker in sample.masters:
            if self._topic not in (broker.topics.value or {}):
                continue
            # The tail of a broker that could not be asked in the first round begins with its first answer.
            from_ends = is_first or broker.name in self._brokers_missed
            try:
                stats = await self._source.brokers.topic_stats(broker.address, self._topic)
                for queue, bounds in stats.offsets.items():
                    at = BrokerQueue(broker.name, broker.address, self._topic, queue.queue_id)
                    await self._read(inspection, queue, at, bounds.max_queue_offset, from_ends)
                self._brokers_missed.discard(broker.name)
            except OrbitlogError as error:
                problem = f"{broker.name}: {error}"
                if is_first:
                    self._brokers_missed.add(broker.name)
        self.has_begun = True
        for viewer in self.viewers:
            viewer.problem = problem
        if problem is not None:
            await asyncio.sleep(FAILED_SECONDS)

    async def _read(
        self, inspection: Inspection, queue: MessageQueue, at: BrokerQueue, end: int, from_ends: bool
    ) -> None:
        # A queue that appears later was created after the tail began, so it is read from its start.
        start = self._positions.get(queue, end if from_ends else 0)
        if end - start > PER_QUEUE_MAX:
            skipped = end - PER_QUEUE_MAX - start
            start += skipped
            for viewer in self.viewers:
                viewer.seen += skipped
                viewer.dropped += skipped
        self._positions[queue] = start
        async for message in inspection.walk(at, start, end):
            for viewer in self.viewers:
                viewer.offer(message)
        self._positions[queue] = max(start, end)


class TailFeeds:
    """All feeds of a console; a feed ends with its last viewer."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[str, str], TailFeed] = {}

    @property
    def viewer_count(self) -> int:
        return sum(len(feed.viewers) for feed in self._feeds.values())

    def join(self, source: ClusterSource, topic: str, viewer: Viewer) -> TailFeed:
        feed = self._feeds.get((source.name, topic))
        if feed is None or feed.has_ended:
            feed = self._feeds[source.name, topic] = TailFeed(source, topic)
            feed.start()
        feed.viewers.add(viewer)
        return feed

    async def leave(self, source: ClusterSource, topic: str, viewer: Viewer) -> None:
        feed = self._feeds.get((source.name, topic))
        if feed is None:
            return
        feed.viewers.discard(viewer)
        if not feed.viewers and feed.reading is not None:
            del self._feeds[source.name, topic]
            feed.reading.cancel()
            await asyncio.wait([feed.reading])
