"""Time query: finds messages of a topic by store timestamp, newest first, through its queues.

Each queue is in time order, so its part of the window is found by binary search; the newest messages of all queues are
merged. As with key queries, the result states if there may be more.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from orbitlog.errors import FormatError
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.records.message import Message
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.reads.key_query import QUERY_LIMIT_DEFAULT
from orbitlog.store.reads.time_search import Boundary, TimeSearch


@dataclass(frozen=True, slots=True)
class TimeQuery:
    """A topic, the first and last millisecond of a window, and the maximum number of messages."""

    topic: str
    begin_ms: int = 0
    end_ms: int = LONG_MAX
    limit: int = QUERY_LIMIT_DEFAULT


@dataclass(frozen=True, slots=True)
class FoundByTime:
    """Messages, newest first; `reason` states why there may be more."""

    messages: list[Message] = field(default_factory=list)
    complete: bool = True
    reason: str = ""


def query_by_time(query: TimeQuery, log: CommitLog, queues: Iterable[ConsumeQueue], *, indexed_to: int) -> FoundByTime:
    """Return the messages of the window; `queues` are all queues of the topic."""
    parts = [_newest_first(query, log, queue) for queue in queues]
    merged = heapq.merge(*parts, key=_age)
    found = list(islice(merged, query.limit))
    if next(merged, None) is not None:
        return FoundByTime(found, complete=False, reason=f"there are more than {query.limit}")
    if indexed_to < log.written_to:
        behind = log.written_to - indexed_to
        return FoundByTime(found, complete=False, reason=f"the queues are {behind} bytes behind the log")
    return FoundByTime(found)


def _age(message: Message) -> tuple[int, int]:
    return -message.store_timestamp_ms, -message.physical_offset


def _newest_first(query: TimeQuery, log: CommitLog, queue: ConsumeQueue) -> Iterator[Message]:
    search = TimeSearch(log)
    first = search.search(queue, query.begin_ms, Boundary.LOWER)
    for queue_offset in range(search.search(queue, query.end_ms, Boundary.UPPER), first - 1, -1):
        entry = queue.entry(queue_offset)
        try:
            message = entry and log.read_message(entry.physical_offset, entry.size_bytes)
        except FormatError:
            continue  # reading the queue reports it
        if message and query.begin_ms <= message.store_timestamp_ms <= query.end_ms:
            yield message
