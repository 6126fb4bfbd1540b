"""Cluster queues: discovers the subscribed queues of a cluster over routes, with their bounds and offsets by time.

Every planning call asks again, so topics, queues and brokers may come and go. A broker that does not answer is not a
deleted queue: its queues have no bounds, and make no progress until it is back.
"""

from __future__ import annotations

import asyncio
import difflib
import warnings
from collections.abc import Mapping, Sequence

from orbitlog.client.connection.routes import MASTER_ID, Route
from orbitlog.errors import NoRoute, RemotingError
from orbitlog.formats import names
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records.message import RECORD_PREFIX
from orbitlog.pipeline.network.cluster_session import ClusterSession
from orbitlog.pipeline.network.store_time_search import first_at_or_after
from orbitlog.pipeline.sources.broker_stores import TopicNotFound
from orbitlog.pipeline.sources.rate_limit import limit_by_mean_sizes
from orbitlog.pipeline.sources.read_plan import ClusterShape, QueueRange
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable
from orbitlog.pipeline.sources.source_options import TopicOptions
from orbitlog.pipeline.sources.store_snapshot import QueueBounds
from orbitlog.pipeline.sources.topic_offsets import Offsets, QueueKey
from orbitlog.wire.bodies.heartbeat_bodies import SubscriptionData
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.consume_headers import (
    GetMaxOffsetRequest,
    QueueOffsetResponse,
    SearchOffsetRequest,
    TopicQueueRequest,
)
from orbitlog.wire.header_codec import Header

_REQUESTS_AT_ONCE = 64
_SAMPLE_COUNT = 32
_SKIPS_MAX = 64
_SIZE_FIELD_BYTES = 4


class ClusterQueues:
    """The subscribed queues that brokers report now; `unavailable` are those of brokers that do not answer."""

    def __init__(self, options: TopicOptions, session: ClusterSession, *, must_exist: bool) -> None:
        self._options = options
        self._session = session
        self._limit = asyncio.Semaphore(_REQUESTS_AT_ONCE)
        self.bounds: dict[QueueKey, QueueBounds] = {}
        self.unavailable: dict[QueueKey, str] = {}
        self._broker_ids: dict[QueueKey, int] = {}  # the broker that reported the bounds
        self._masters: frozenset[str] = frozenset()  # names of brokers whose master was registered all the time
        if must_exist:
            session.run(self._discover(must_exist=True))
        else:
            # A running query waits for name servers; one that starts reports an address without a server at once.
            session.run(session.retried(lambda: self._discover(must_exist=False)))

    @property
    def shapes(self) -> Mapping[str, ClusterShape]:
        return {key.broker_name: ClusterShape(key.broker_name) for key in self.bounds}

    def is_of_replica(self, key: QueueKey) -> bool:
        """Return whether a replica reported the bounds, because the master does not answer; it may lag."""
        return self._broker_ids.get(key, MASTER_ID) != MASTER_ID

    def lost_ends(self) -> list[str]:
        return []

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time, or the end of the queue."""
        return self._session.run(self._offset_at(key, timestamp_ms))

    def limit_bytes(self, start: Mapping[QueueKey, int], end: Offsets, bytes_max: int) -> Offsets:
        """Return an end about `bytes_max` bytes of records after `start`; sizes are those of the first records."""
        waiting = [key for key, stop in end.items() if start.get(key, stop) < stop]
        means = self._session.run(self._mean_sizes({key: start[key] for key in waiting}))
        return limit_by_mean_sizes(start, end, bytes_max, means)

    def why_missing(self, key: QueueKey) -> str | None:
        """Return why a queue without bounds may exist all the same; None if its broker runs and does not have it."""
        if key in self.unavailable:
            return self.unavailable[key]
        # Slaves register no topics: without its master a queue that exists may be unknown.
        if key.broker_name not in self._masters:
            return f"no master named {key.broker_name} is registered, or it has just started"
        return None

    def placed(self, ranges: Sequence[QueueRange]) -> list[QueueRange]:
        return list(ranges)

    def record_at(self, key: QueueKey, queue_offset: int) -> bytes | None:
        """Return the first record of a queue from an offset on, None after the last one."""
        return self._session.run(self._first_records(key, queue_offset, 1))

    # Discovery

    async def _discover(self, *, must_exist: bool) -> None:
        self.bounds.clear()
        self.unavailable.clear()
        masters_before = await self._registered_masters()
        topics = await self._topics()
        routes = await asyncio.gather(*(self._route(topic) for topic in topics))
        wanted: dict[QueueKey, Route] = {}
        for topic, route in zip(topics, routes, strict=True):
            if route is None:
                if must_exist and topic in self._options.subscription.named_topics:
                    raise await self._no_topic(topic)
                continue
            keys = (QueueKey(topic, queue.broker_name, queue.queue_id) for queue in route.read_queues)
            wanted |= {key: route for key in keys if self._options.subscription.wants(key)}
        await asyncio.gather(*(self._ask_bounds(key, route) for key, route in wanted.items()))
        if must_exist and self.unavailable:
            key, problem = min(self.unavailable.items())
            raise BrokerUnavailable(f"{key} has a route, but its broker does not answer: {problem}")
        for broker_name in sorted({key.broker_name for key in self.unavailable}):
            warnings.warn(f"broker {broker_name} does not answer; its queues wait until it is back", stacklevel=2)
        # A broker that starts or stops in between has no routes, and all of its queues.
        self._masters = masters_before & await self._registered_masters()

    async def _registered_masters(self) -> frozenset[str]:
        registered = (await self._session.admin.cluster()).brokers
        return frozenset(name for name, broker in registered.items() if MASTER_ID in broker.addresses)

    async def _topics(self) -> list[str]:
        subscription = self._options.subscription
        if subscription.pattern is None:
            return sorted(subscription.named_topics)
        topics = await self._session.admin.topics()
        return [topic for topic in topics if subscription.wants_topic(topic) and names.is_topic(topic)]

    async def _route(self, topic: str) -> Route | None:
        async with self._limit:
            try:
                return await self._session.routes.refresh(topic)
            except NoRoute:
                return None

    async def _no_topic(self, topic: str) -> TopicNotFound:
        topics = [name for name in await self._session.admin.topics() if not names.is_system_topic(name)]
        near = difflib.get_close_matches(topic, topics, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"available: {', '.join(sorted(topics)[:8]) or 'none'}"
        return TopicNotFound(f"no broker serves topic {topic!r}; {hint}")

    async def _ask_bounds(self, key: QueueKey, route: Route) -> None:
        first = TopicQueueRequest(topic=key.topic, queue_id=key.queue_id)
        last = GetMaxOffsetRequest(topic=key.topic, queue_id=key.queue_id)
        problem = "the route has no address"
        for broker_id in sorted(route.brokers.get(key.broker_name, {})):
            address = route.brokers[key.broker_name][broker_id]
            try:
                earliest = await self._ask_offset(address, RequestCode.GET_MIN_OFFSET, first)
                latest = await self._ask_offset(address, RequestCode.GET_MAX_OFFSET, last)
            except RemotingError as error:
                problem = str(error)
                continue
            # Brokers answer -1 for a queue without a file.
            self.bounds[key] = QueueBounds(max(earliest, 0), max(latest, earliest, 0))
            self._broker_ids[key] = broker_id
            return
        self.unavailable[key] = problem

    async def _ask_offset(self, address: str, code: RequestCode, header: Header) -> int:
        async with self._limit:
            answer = await self._session.link.invoke(address, code, header)
        return QueueOffsetResponse.from_ext_fields(answer.ext_fields).queue_offset

    # Times and sizes

    async def _offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        header = SearchOffsetRequest(topic=key.topic, queue_id=key.queue_id, timestamp_ms=timestamp_ms)
        hint = await self._ask_offset(self._address(key), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

        async def store_time_at(queue_offset: int) -> int | None:
            body = await self._first_records(key, queue_offset, 1)
            return None if body is None else _store_time_ms(body)

        earliest, latest = self.bounds[key]
        return await first_at_or_after(store_time_at, earliest, latest, timestamp_ms, hint)

    async def _mean_sizes(self, starts: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        async def mean(key: QueueKey, queue_offset: int) -> int:
            body = await self._first_records(key, queue_offset, _SAMPLE_COUNT)
            return max(len(body) // max(_record_count(body), 1), 1) if body else 1

        keys = [key for key in starts if key in self.bounds]
        sizes = await asyncio.gather(*(mean(key, starts[key]) for key in keys))
        return dict(zip(keys, sizes, strict=True))

    async def _first_records(self, key: QueueKey, queue_offset: int, count: int) -> bytes | None:
        """Return some records from an offset on, None after the last one."""
        queue, broker_id = MessageQueue(*key), self._broker_ids[key]
        for _ in range(_SKIPS_MAX):
            async with self._limit:
                result = await self._session.group.pull(
                    queue, queue_offset, SubscriptionData(key.topic), None, broker_id, count, suspend_seconds=0.0
                )
            if result.body or result.next_queue_offset <= queue_offset:
                return result.body or None
            queue_offset = result.next_queue_offset
        return None

    def _address(self, key: QueueKey) -> str:
        return self._session.routes.address_of(MessageQueue(*key), self._broker_ids[key])


def _store_time_ms(record: bytes) -> int:
    from orbitlog.formats.records.message import decode_message

    return decode_message(record, check_crc=False).store_timestamp_ms


def _record_count(body: bytes) -> int:
    """Return the number of records; stop at an invalid size, which the decoder reports later."""
    position = count = 0
    while position + _SIZE_FIELD_BYTES <= len(body):
        size_bytes = int.from_bytes(body[position : position + _SIZE_FIELD_BYTES], "big")
        if size_bytes < RECORD_PREFIX.size_bytes:
            break
        position, count = position + size_bytes, count + 1
    return count
