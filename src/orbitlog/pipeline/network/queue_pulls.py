"""Queue pulls: fetches ranges of queues from brokers as raw records, in order, with several pulls in flight.

A broker returns at most some 32 messages a pull, so one pull at a time would wait for the network most of the time.
Ranges are cut into windows of offsets, which are pulled concurrently and returned in order. The first pulls of a
window go to the master; a replica serves while the master is down, or if the master suggests it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from orbitlog.client.connection.routes import MASTER_ID
from orbitlog.client.consumer.group_link import PullResult
from orbitlog.errors import BrokerRefused, NoRoute, RemotingError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.pipeline.network.cluster_session import ClusterSession
from orbitlog.pipeline.network.pull_pace import PullPace
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable
from orbitlog.wire.bodies.heartbeat_bodies import SubscriptionData
from orbitlog.wire.codes import ResponseCode

_WINDOW_BYTES = 1 << 20  # planned size of a window
_WINDOW_BYTES_MAX = 8 << 20  # a window with larger records than planned is cut here
_WINDOW_OFFSETS_FIRST, _WINDOW_OFFSETS_MIN, _WINDOW_OFFSETS_MAX = 64, 8, 1024
# A broker skips up to 16,000 messages that a filter excludes in one pull: shorter windows would repeat that work.
_FILTERED_WINDOW_OFFSETS = 16_384
_PULL_COUNT_MAX = 1024
_CHUNK_BYTES = 2 << 20
_FIRST_PAUSE_S, _PAUSE_S_MAX = 0.05, 1.0
_BUSY_CODES = (ResponseCode.FLOW_CONTROL, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class Window:
    """Offsets of one queue, from `start` to before `stop`; `number` is the index of the range it belongs to."""

    number: int
    queue: MessageQueue
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Offsets that a broker no longer has, from `start` to before `stop`."""

    start: int
    stop: int
    why: str


@dataclass(slots=True)
class PulledRecords:
    """Records of one range in order, as stored, and the offsets that were lost between them."""

    number: int
    bodies: list[bytes]
    lost: list[LostOffsets]
    reached: int

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.bodies))


class WindowCutter:
    """Cuts ranges into windows; learns from pulled records how many offsets make a window."""

    def __init__(self, ranges: Iterable[tuple[MessageQueue, int, int]], *, is_filtered: bool) -> None:
        self._ranges = enumerate(ranges)
        self._is_filtered = is_filtered
        self._offsets = _FILTERED_WINDOW_OFFSETS if is_filtered else _WINDOW_OFFSETS_FIRST

    def windows(self) -> Iterator[Window]:
        for number, (queue, start, stop) in self._ranges:
            position = start
            while position < stop:
                following = min(position + self._offsets, stop)
                yield Window(number, queue, position, following)
                position = following

    def learn(self, offsets: int, size_bytes: int) -> None:
        """Adapt the length of later windows to the size of pulled records."""
        if self._is_filtered or not size_bytes or not offsets:
            return
        fitting = _WINDOW_BYTES * offsets // size_bytes
        self._offsets = max(_WINDOW_OFFSETS_MIN, min(fitting, _WINDOW_OFFSETS_MAX))


class WindowPull:
    """Pulls one window; retries at other brokers of the group until the time limit."""

    def __init__(self, session: ClusterSession, subscription: SubscriptionData, pace: PullPace) -> None:
        self._session = session
        self._subscription = subscription
        self._pace = pace
        self._subscriptions: dict[str, SubscriptionData] = {}  # by topic
        self._broker_ids: dict[str, int] = {}  # by broker name, as brokers suggest
        self._returned_max = 0  # messages of one pull, if brokers limit them

    async def pull(self, window: Window) -> PulledRecords:
        """Return the records of a window; `reached` is less than its end if it was cut."""
        pulled = PulledRecords(window.number, [], [], window.start)
        size_bytes = 0
        while pulled.reached < window.stop and size_bytes < _WINDOW_BYTES_MAX:
            result = await self._pull_with_retries(window, pulled.reached)
            body = self._take(window, pulled, result)
            size_bytes += len(body)
            if body and (pause := self._pace.pause(len(body), time.monotonic())):
                await asyncio.sleep(pause)
        return pulled

    def _take(self, window: Window, pulled: PulledRecords, result: PullResult) -> bytes:
        """Add the records of a response; note offsets that the broker no longer has."""
        first, following = pulled.reached, min(result.next_queue_offset, window.stop)
        if first < result.min_queue_offset:
            kept_from = min(result.min_queue_offset, window.stop)
            pulled.lost.append(LostOffsets(first, kept_from, f"the queue now starts at {result.min_queue_offset}"))
            following = max(following, kept_from)
        elif result.offset_moved and result.next_queue_offset < first:
            why = f"the queue now ends at {result.next_queue_offset}"
            pulled.lost.append(LostOffsets(first, window.stop, why))
            following = window.stop
        elif not result.body and not self._is_filtered and first < following:
            pulled.lost.append(LostOffsets(first, following, "the broker has no record at these offsets"))
        if result.body:
            pulled.bodies.append(result.body)
        pulled.reached = following
        return result.body

    @property
    def _is_filtered(self) -> bool:
        return self._subscription.expression != "*"

    async def _pull_with_retries(self, window: Window, queue_offset: int) -> PullResult:
        """Return a response that advances; raise `BrokerUnavailable` at the time limit."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._session.options.broker_timeout_s
        pause, attempt = _FIRST_PAUSE_S, 0
        while True:
            try:
                broker_id = await self._broker_id(window.queue, attempt)
                result = await self._request(window, queue_offset, broker_id)
            except (RemotingError, NoRoute) as error:
                problem = str(error)
            except BrokerRefused as error:
                if error.code not in _BUSY_CODES:
                    raise
                problem = str(error)
            else:
                is_loss = result.offset_moved or result.min_queue_offset > queue_offset
                # A replica may lag, or keep less than its master: only the master reports lost messages.
                if (result.next_queue_offset > queue_offset and not is_loss) or (is_loss and broker_id == MASTER_ID):
                    self._broker_ids[window.queue.broker_name] = result.suggested_broker_id
                    return result
                problem = f"it has no message at offset {queue_offset}; its queue ends at {result.max_queue_offset}"
            self._broker_ids.pop(window.queue.broker_name, None)
            if loop.time() + pause >= deadline:
                raise BrokerUnavailable(_unavailable(window.queue, queue_offset, problem))
            await asyncio.sleep(pause)
            pause, attempt = min(2 * pause, _PAUSE_S_MAX), attempt + 1

    async def _request(self, window: Window, queue_offset: int, broker_id: int) -> PullResult:
        remaining = window.stop - queue_offset
        # A broker reads the header of a repeated pull without parsing it, if the count is the same. One that never
        # returns as many messages does not exceed the window.
        is_limited = 0 < self._returned_max <= remaining
        count = _PULL_COUNT_MAX if is_limited else min(remaining, _PULL_COUNT_MAX)
        subscription = self._subscriptions.get(window.queue.topic) or self._subscription_of(window.queue.topic)
        result = await self._session.group.pull(
            window.queue, queue_offset, subscription, None, broker_id, count, suspend_seconds=0.0
        )
        returned = result.next_queue_offset - queue_offset
        if returned < count and not self._is_filtered:
            self._returned_max = max(self._returned_max, returned)
        return result

    def _subscription_of(self, topic: str) -> SubscriptionData:
        subscription = self._subscriptions[topic] = replace(self._subscription, topic=topic)
        return subscription

    async def _broker_id(self, queue: MessageQueue, attempt: int) -> int:
        """Return the broker to ask: the suggested one, then in turn every broker of the group."""
        routes = self._session.routes
        route = routes.known(queue.topic) if attempt == 0 else None
        if route is None:
            route = await routes.freshest(queue.topic)
        ids = sorted(route.brokers.get(queue.broker_name, {MASTER_ID: ""}))
        suggested = self._broker_ids.get(queue.broker_name, MASTER_ID)
        return suggested if attempt == 0 and suggested in ids else ids[attempt % len(ids)]


def _unavailable(queue: MessageQueue, queue_offset: int, problem: str) -> str:
    return (
        f"could not pull queue {queue.queue_id} of {queue.topic} at {queue.broker_name} from offset {queue_offset}:"
        f" {problem}; brokerTimeoutMs sets how long to retry"
    )


class PullPipeline:
    """Pulls ranges with several windows in flight; `next` returns records in the order of the ranges."""

    def __init__(
        self,
        session: ClusterSession,
        ranges: Iterable[tuple[MessageQueue, int, int]],
        subscription: SubscriptionData,
    ) -> None:
        self._session = session
        self._cutter = WindowCutter(ranges, is_filtered=subscription.expression != "*")
        self._windows = self._cutter.windows()
        self._puller = WindowPull(session, subscription, PullPace(session.options.bytes_per_second_max))
        self._pending: deque[tuple[Window, asyncio.Task[PulledRecords]]] = deque()
        self._held: PulledRecords | None = None

    def next(self) -> PulledRecords | None:
        """Wait for the next records of one range, about 2 MiB of them; None after the last range."""
        return self._session.run(self._next())

    def close(self) -> None:
        """Cancel pulls in flight."""
        self._session.run(self._cancel())

    async def _next(self) -> PulledRecords | None:
        collected, self._held = self._held, None
        while True:
            self._fill()
            if not self._pending:
                return collected
            window, task = self._pending.popleft()
            pulled = await task
            self._cutter.learn(pulled.reached - window.start, pulled.size_bytes)
            if pulled.reached < window.stop:
                self._start(replace(window, start=pulled.reached), first=True)
            if collected is not None and collected.number != pulled.number:
                self._held = pulled
                return collected
            if collected is None:
                collected = pulled
            else:
                collected.bodies += pulled.bodies
                collected.lost += pulled.lost
                collected.reached = pulled.reached
            if collected.size_bytes >= _CHUNK_BYTES:
                return collected

    def _fill(self) -> None:
        while len(self._pending) < self._session.options.pulls_in_flight:
            window = next(self._windows, None)
            if window is None:
                return
            self._start(window)

    def _start(self, window: Window, *, first: bool = False) -> None:
        task = asyncio.get_running_loop().create_task(self._puller.pull(window))
        (self._pending.appendleft if first else self._pending.append)((window, task))

    async def _cancel(self) -> None:
        tasks = [task for _, task in self._pending]
        self._pending.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
