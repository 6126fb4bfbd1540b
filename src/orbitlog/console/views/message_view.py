"""Messages of a topic: browsed from the end or from a time, filtered, within a budget that the answer states."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from orbitlog.client.admin.inspection import BrokerQueue, Inspection
from orbitlog.client.consumer.received import Received
from orbitlog.console.sources.cluster_sample import ClusterSample
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import Answer, ConsoleError, Missing
from orbitlog.console.views.known_names import sample_with_topic
from orbitlog.console.views.message_filter import SKIP_MAX, MessageFilter, MessageQuery, parse_time
from orbitlog.console.views.message_rows import MessageRow, message_row
from orbitlog.errors import FormatError, OrbitlogError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records.message_id import parse_offset_message_id

LOOKED_AT_MAX = 5000
_KEY_MATCHES_MAX = 64


class MessageListing(Answer, kw_only=True):
    """Messages that match; `looked_at` of `in_range` were read, fewer than all if the budget ended.

    `more` are the parameters that continue. Messages may be repeated at the edge of a page. None is left out, unless
    more than `SKIP_MAX` messages, or a queue's whole share of the budget, are of one millisecond.
    """

    topic: str
    items: list[MessageRow]
    looked_at: int
    in_range: int | None
    complete: bool
    how: str
    as_of: int
    more: dict[str, str] = msgspec.field(default_factory=dict)
    problems: list[Missing] = msgspec.field(default_factory=list)


async def list_messages(source: ClusterSource, topic: str, query: MessageQuery) -> MessageListing:
    """Return messages of a topic, newest first; by key from the index, otherwise by reading queues."""
    sample = await sample_with_topic(source, topic)
    if query.offset >= 0 and query.queue < 0:
        raise ConsoleError(400, "`offset` needs `queue`")
    if query.skip and not (query.since or query.until):
        raise ConsoleError(400, "`skip` needs `since` or `until`: use the parameters of the page before")
    if query.key:
        return await _by_key(source, topic, query)
    return await _by_reading(source, sample, topic, query)


async def _by_key(source: ClusterSource, topic: str, query: MessageQuery) -> MessageListing:
    wanted = MessageFilter(query)
    since, until = parse_time(query.since, source.now_ms), parse_time(query.until, source.now_ms)
    found: list[Received] = []
    async for message in source.admin.find(topic, query.key, count=_KEY_MATCHES_MAX):
        at_ms = message.stored.store_timestamp_ms
        if wanted.wants(message) and (since is None or at_ms >= since) and (until is None or at_ms < until):
            found.append(message)
    found.sort(key=_stored_order, reverse=True)
    return MessageListing(
        topic=topic,
        items=[message_row(message) for message in found[: query.limit]],
        looked_at=len(found),
        in_range=None,
        complete=len(found) < _KEY_MATCHES_MAX and len(found) <= query.limit,
        how="by the index of keys",
        as_of=source.now_ms,
    )


async def _by_reading(source: ClusterSource, sample: ClusterSample, topic: str, query: MessageQuery) -> MessageListing:
    since, until = parse_time(query.since, source.now_ms), parse_time(query.until, source.now_ms)
    inspection, wanted = Inspection(source.admin), MessageFilter(query)
    problems: list[Missing] = []
    ranges: list[tuple[BrokerQueue, int, int, int]] = []
    for queue, address in _queues(sample, topic, query):
        try:
            start, end = await _range(source, queue, address, query.offset, (since, until))
            edge_count = await _edge_count(source, queue, address, (start, end), (since, until)) if query.skip else 0
            ranges.append((queue, start, end, edge_count))
        except OrbitlogError as error:
            problems.append(Missing(server=f"broker {queue.broker_name}", reason=problem_sentence(error)))
    page_end = query.skip + query.limit
    fair = 0 if wanted.is_empty else LOOKED_AT_MAX // max(len(ranges), 1)
    found: list[Received] = []
    edges: list[int] = []  # where queues were left that have further messages
    looked_at, from_start = 0, bool(query.since) or query.offset >= 0
    for queue, start, end, edge_count in ranges:
        # Skipped messages are of the first millisecond: a queue with nothing there is not read further for it.
        share = max(query.limit + min(edge_count, query.skip), fair)
        first = start if from_start else max(start, end - share)
        stop = min(end, first + share)
        times: list[int] = []
        try:
            async for message in inspection.walk(queue, first, stop):
                looked_at += 1
                times.append(message.stored.store_timestamp_ms)
                if wanted.wants(message):
                    found.append(message)
        except OrbitlogError as error:
            problems.append(Missing(server=f"broker {queue.broker_name}", reason=problem_sentence(error)))
        if times and (stop < end if from_start else first > start):
            edges.append(times[-1] if from_start else times[0])
    found.sort(key=_stored_order, reverse=not from_start)
    page = found[query.skip : page_end]
    page_times = [message.stored.store_timestamp_ms for message in page]
    if len(found) > page_end:
        edges.append(page_times[-1])
    in_range = sum(end - start for _, start, end, _ in ranges)
    return MessageListing(
        topic=topic,
        items=[message_row(message) for message in page],
        looked_at=looked_at,
        in_range=in_range,
        complete=looked_at >= in_range and len(found) <= page_end and not problems,
        how="oldest first" if from_start else "newest first",
        as_of=source.now_ms,
        more=_more(edges, (since, until), page_times, query, from_start=from_start),
        problems=problems,
    )


def _more(
    edges: list[int],
    times: tuple[int | None, int | None],
    page_times: list[int],
    query: MessageQuery,
    *,
    from_start: bool,
) -> dict[str, str]:
    """Return the parameters of the next page; inside of a millisecond that fills this page, it skips what was shown."""
    if not edges:
        return {}
    since, until = times
    if from_start:
        name, edge = "since", min(edges)
        same, following, is_stuck = edge, edge + 1, since is not None and edge <= since
    else:
        name, edge = "until", max(edges)
        same, following, is_stuck = edge + 1, edge, until is not None and edge + 1 >= until
    if not is_stuck:
        return {name: str(same)}
    shown = query.skip + len(page_times)
    is_full = len(page_times) == query.limit and page_times[-1] == edge
    return {name: str(same), "skip": str(shown)} if is_full and shown <= SKIP_MAX else {name: str(following)}


def _queues(sample: ClusterSample, topic: str, query: MessageQuery) -> list[tuple[BrokerQueue, str]]:
    queues = []
    for broker in sample.masters:
        config = (broker.topics.value or {}).get(topic)
        if config is None or query.broker not in ("", broker.name):
            continue
        for queue_id in range(max(config.read_queue_count, config.write_queue_count)):
            if query.queue in (-1, queue_id):
                queues.append((BrokerQueue(broker.name, broker.address, topic, queue_id), broker.address))
    if not queues:
        raise ConsoleError(404, f"topic {topic[:130]} has no such queue")
    return queues


async def _range(
    source: ClusterSource, queue: BrokerQueue, address: str, offset: int, times: tuple[int | None, int | None]
) -> tuple[int, int]:
    """Return the offsets of a queue that the query asks for."""
    first, end = await Inspection(source.admin).bounds(queue)
    target = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
    since, until = times
    if offset >= 0:
        first = min(max(first, offset), end)
    if since is not None:
        first = min(max(first, await source.groups.offset_at(address, target, since)), end)
    if until is not None:
        end = min(end, max(first, await source.groups.offset_at(address, target, until)))
    return first, end


async def _edge_count(
    source: ClusterSource,
    queue: BrokerQueue,
    address: str,
    offsets: tuple[int, int],
    times: tuple[int | None, int | None],
) -> int:
    """Return how many messages of a queue are of the millisecond at which the page begins."""
    target = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
    (first, end), (since, until) = offsets, times
    if since is not None:
        return max(min(end, await source.groups.offset_at(address, target, since + 1)) - first, 0)
    assert until is not None  # `skip` needs one of them
    return max(end - max(first, await source.groups.offset_at(address, target, until - 1)), 0)


def _stored_order(message: Received) -> tuple[int, int]:
    return message.stored.store_timestamp_ms, message.stored.physical_offset


async def find_message(source: ClusterSource, message_id: str, topic: str) -> Received:
    """Return one message by the producer's id (with its topic) or the broker's id.

    A broker's id contains an address: it is asked only if a broker with that address is registered.
    """
    if topic:
        async for message in _found(source, topic, message_id):
            return message
    try:
        address = str(parse_offset_message_id(message_id).store_host)
    except FormatError:
        hint = "no message has this id in the topic" if topic else "this is the id of a producer; give its topic"
        raise ConsoleError(404, hint) from None
    sample = await source.sample()
    if address not in {broker.address for broker in sample.brokers}:
        raise ConsoleError(404, f"the id names the broker {address}, which is not registered in this cluster")
    found = await source.admin.message(message_id)
    if found is None:
        raise ConsoleError(404, "the broker has no message with this id; it may have been deleted with its segment")
    return found


async def _found(source: ClusterSource, topic: str, message_id: str) -> AsyncIterator[Received]:
    await sample_with_topic(source, topic)
    async for message in source.admin.find(topic, message_id, count=1, by_id=True):
        yield message
