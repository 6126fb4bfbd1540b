"""Messages of a topic over time, counted by searches of offsets by timestamp; no message is read."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

from orbitlog.client.admin.inspection import BrokerQueue, Inspection
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import Answer, ConsoleError, Missing, NoQuery
from orbitlog.console.views.known_names import sample_with_topic
from orbitlog.console.views.topic_view import configs_of
from orbitlog.errors import OrbitlogError
from orbitlog.formats.message_queue import MessageQueue

BUCKETS_MAX = 48
_SEARCHES_MAX = 2000
_AT_ONCE = 8
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_SPANS_HOURS = (1, 24, 168, 720)
_OLDEST_ASKED_MAX = 64
_STEPS_MS = tuple(
    minutes * _MINUTE_MS for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 1440, 2880, 10_080, 43_200)
)


class StatisticsQuery(NoQuery, kw_only=True):
    """The span to count; the width of the buckets follows from it."""

    hours: Annotated[float, Meta(gt=0, le=24 * 365, description="Hours; else as the oldest message needs")] | None = (
        None
    )


class CountBucket(Answer, kw_only=True):
    """Messages that were stored from `at` until the next bucket, and are still there."""

    at: int
    count: int


class StatisticsAnswer(Answer, kw_only=True):
    """Messages in buckets of equal width; queues of brokers that did not answer are missing."""

    topic: str
    hours: float
    bucket_ms: int
    items: list[CountBucket]
    total: int
    as_of: int
    complete: bool
    problems: list[Missing] = msgspec.field(default_factory=list)


def bucket_starts(now_ms: int, span_ms: int) -> tuple[int, list[int]]:
    """Return the width of buckets and their starts: the smallest width that gives at most `BUCKETS_MAX`."""
    width_ms = next((step for step in _STEPS_MS if span_ms / step < BUCKETS_MAX), _STEPS_MS[-1])
    first = (now_ms - span_ms) // width_ms * width_ms
    return width_ms, list(range(first, now_ms + 1, width_ms))


async def show_statistics(source: ClusterSource, topic: str, query: StatisticsQuery) -> StatisticsAnswer:
    sample = await sample_with_topic(source, topic)
    queues = [
        BrokerQueue(broker.name, broker.address, topic, queue_id)
        for broker, config in configs_of(sample, topic)
        for queue_id in range(max(config.read_queue_count, config.write_queue_count))
    ]
    hours = query.hours or await _fitting_hours(source, queues)
    width_ms, starts = bucket_starts(source.now_ms, int(hours * _HOUR_MS))
    if len(queues) * len(starts) > _SEARCHES_MAX:
        raise ConsoleError(422, f"the topic has {len(queues)} queues: counting them over time would take too long")
    slots = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(*(_counts(source, queue, starts, slots) for queue in queues))
    problems = {entry.server: entry for entry in found if isinstance(entry, Missing)}
    counts = [entry for entry in found if not isinstance(entry, Missing)]
    items = [CountBucket(at=at, count=sum(column[place] for column in counts)) for place, at in enumerate(starts)]
    return StatisticsAnswer(
        topic=topic,
        hours=hours,
        bucket_ms=width_ms,
        items=items,
        total=sum(item.count for item in items),
        as_of=source.now_ms,
        complete=not problems,
        problems=list(problems.values()),
    )


async def _fitting_hours(source: ClusterSource, queues: list[BrokerQueue]) -> float:
    """Return the shortest of the usual spans that contains every message."""

    async def oldest(queue: BrokerQueue) -> int:
        try:
            target = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
            return await source.groups.earliest_time_ms(queue.address, target)
        except OrbitlogError:
            return -1

    times = [time_ms for time_ms in await asyncio.gather(*map(oldest, queues[:_OLDEST_ASKED_MAX])) if time_ms > 0]
    span_ms = source.now_ms - min(times, default=source.now_ms)
    return next((hours for hours in _SPANS_HOURS if span_ms <= hours * _HOUR_MS), _SPANS_HOURS[-1])


async def _counts(
    source: ClusterSource, queue: BrokerQueue, starts: list[int], slots: asyncio.Semaphore
) -> list[int] | Missing:
    """Return the messages of one queue in each bucket."""
    target = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
    try:
        async with slots:
            first, end = await Inspection(source.admin).bounds(queue)
            if first == end:
                return [0] * len(starts)
            offsets = [await source.groups.offset_at(queue.address, target, at) for at in starts]
    except OrbitlogError as error:
        return Missing(server=f"broker {queue.broker_name}", reason=problem_sentence(error))
    bounded = [min(max(offset, first), end) for offset in offsets]
    return [max(0, following - offset) for offset, following in zip(bounded, [*bounded[1:], end], strict=True)]
