"""Lag metrics: the lag of every consumer group in messages and in time.

Apache's families have only groups with connected members, as Apache's broker does. Orbitlog's own have every group that
has committed an offset, so that the lag of a group whose consumers all died stays visible.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple, overload

from orbitlog.broker.metrics.group_names import is_system
from orbitlog.broker.pop.popped_queues import PopKey, PoppedQueues
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.formats.names import RETRY_PREFIX
from orbitlog.formats.tables.offset_tables import TopicGroup
from orbitlog.observe import metric_table as table
from orbitlog.observe.metric import PAUSE, Collected, Family, Row
from orbitlog.observe.metrics_settings import QUEUE_LAG
from orbitlog.settings.store_settings import RESERVED_HOURS

# Queues of a step: each costs a few microseconds, and some tens if a timestamp is read from the log.
_STEP_QUEUES = 250


class _Lag(NamedTuple):
    """The lag of a group in one topic."""

    key: TopicGroup
    is_online: bool
    messages: int
    age_ms: int
    in_flight: int
    ready: int
    queueing_ms: int
    queues: tuple[tuple[int, int], ...] = ()  # lag by queue id, if it is exported


class LagMetrics:
    """Computes the lag of all groups of one broker."""

    def __init__(self, state: BrokerState, popped: PoppedQueues) -> None:
        self._state = state
        self._popped = popped
        self._with_queues = state.settings[QUEUE_LAG]

    def read(self, limit: int) -> Collected:
        """Yield the families; of more than `limit` pairs of group and topic, those with members come first."""
        state = self._state
        total = state.offsets.key_count
        online = {group.group for group in state.clients.consumer_groups}
        lags: list[_Lag] = []
        kept_count = queues = 0
        for key in islice(self._keys_to_read(online), limit):
            kept_count += 1
            config = state.topics.find(key.topic)
            if config is None:
                continue
            queues += config.read_queue_count
            lags.append((yield from self._lag(key, config.read_queue_count, is_online=key.group in online)))
            if queues >= _STEP_QUEUES:
                queues = 0
                yield PAUSE
        yield from _families(lags, max(total - kept_count, 0))
        yield from _retention(lags, state.settings[RESERVED_HOURS])
        if self._with_queues:
            yield from _queue_lags(lags, limit)

    def _keys_to_read(self, online: set[str]) -> Iterator[TopicGroup]:
        """Yield the pairs of groups with members, then the others: by group, so that a limit ends the search early."""
        offsets = self._state.offsets
        groups = [group for group in offsets.groups if group]
        for wanted in (True, False):
            for group in groups:
                if (group in online) is wanted:
                    yield from (TopicGroup(topic, group) for topic in offsets.topics_of(group))

    def _lag(self, key: TopicGroup, queue_count: int, *, is_online: bool) -> Generator[Any, None, _Lag]:
        """Return the lag in one topic, with pauses; only queues that the group has committed an offset of count."""
        state, (topic, group) = self._state, key
        messages = in_flight = ready = 0
        queues: list[tuple[int, int]] = []
        oldest = oldest_ready = 0  # timestamps; 0: no such message
        # A copy: offsets are committed during the pauses.
        for number, (queue_id, stored) in enumerate(list(state.offsets.queues(topic, group).items())):
            if number % _STEP_QUEUES == _STEP_QUEUES - 1:
                yield PAUSE
            if queue_id >= queue_count:
                continue
            end, first = state.max_offset(topic, queue_id), state.min_offset(topic, queue_id)
            committed = max(stored, first, 0)
            if committed >= end:
                continue
            next_to_pop = self._popped.next_to_pop(PopKey(topic, group, queue_id))
            delivered = next_to_pop if next_to_pop is not None else state.offsets.pulled(topic, group, queue_id)
            delivered = min(max(delivered or 0, committed), end)
            messages += end - committed
            if self._with_queues:
                queues.append((queue_id, end - committed))
            ready += end - delivered
            in_flight += delivered - committed
            oldest = _earlier(oldest, state.store_time_ms(topic, queue_id, committed))
            if delivered < end:
                oldest_ready = _earlier(oldest_ready, state.store_time_ms(topic, queue_id, delivered))
        now_ms = state.now_ms()
        age_ms = max(now_ms - oldest, 0) if oldest else 0
        queueing_ms = max(now_ms - oldest_ready, 0) if oldest_ready else 0
        return _Lag(key, is_online, messages, age_ms, in_flight, ready, queueing_ms, tuple(queues))


def _earlier(known: int, store_time_ms: int) -> int:
    if store_time_ms < 0:
        return known
    return min(known, store_time_ms) if known else store_time_ms


def _families(lags: list[_Lag], dropped: int) -> Collected:
    own: list[tuple[str, _Lag]] = []
    shared: list[tuple[str, _Lag]] = []
    for number, lag in enumerate(lags):
        topic, group = lag.key
        own.append((table.GROUP_LAG.text(group, topic, lag.is_online), lag))
        if lag.is_online:
            is_retry = topic.startswith(RETRY_PREFIX)
            shared.append((table.LAG_MESSAGES.text(group, topic, is_retry, is_system(topic, group)), lag))
        if number % _STEP_QUEUES == _STEP_QUEUES - 1:
            yield PAUSE
    for metric, lagging, value in (
        (table.LAG_MESSAGES, shared, _messages),
        (table.LAG_LATENCY, shared, attrgetter("age_ms")),
        (table.INFLIGHT_MESSAGES, shared, attrgetter("in_flight")),
        (table.READY_MESSAGES, shared, attrgetter("ready")),
        (table.QUEUEING_LATENCY, shared, attrgetter("queueing_ms")),
        (table.GROUP_LAG, own, _messages),
        (table.GROUP_LAG_SECONDS, own, _seconds),
    ):
        yield Family(metric, _LagRows(lagging, value), dropped)


def _retention(lags: list[_Lag], reserved_hours: int) -> Collected:
    """Yield the time that unread messages of each topic are kept; topics without lag have none."""
    oldest: dict[str, _Lag] = {}
    for number, lag in enumerate(lags):
        topic, group = lag.key
        known = oldest.get(topic)
        if lag.age_ms and (known is None or lag.age_ms > known.age_ms) and not is_system(topic, group):
            oldest[topic] = lag
        if number % _STEP_QUEUES == _STEP_QUEUES - 1:
            yield PAUSE
    rows: list[tuple[str, _Lag]] = []
    for topic, lag in oldest.items():
        rows.append((table.RETENTION_LEFT.text(topic), lag))
        if len(rows) % _STEP_QUEUES == 0:
            yield PAUSE
    yield Family(table.RETENTION_LEFT, _LagRows(rows, lambda lag: reserved_hours * 3600 - lag.age_ms / 1000))


def _queue_lags(lags: list[_Lag], limit: int) -> Collected:
    """Yield the lag of each queue; those past the limit are counted."""
    rows: list[Row] = []
    total = 0
    for lag in lags:
        total += len(lag.queues)
        for queue_id, messages in lag.queues[: max(limit - len(rows), 0)]:
            rows.append(Row(table.QUEUE_LAG.text(lag.key.group, lag.key.topic, queue_id), messages))
            if len(rows) % _STEP_QUEUES == 0:
                yield PAUSE
    yield Family(table.QUEUE_LAG, rows, total - len(rows))


_messages = attrgetter("messages")


def _seconds(lag: _Lag) -> float:
    return lag.age_ms / 1000


class _LagRows(Sequence[Row]):
    """Rows that are made when they are read: tens of thousands at once would stop the event loop."""

    def __init__(self, lags: Sequence[tuple[str, _Lag]], value: Callable[[_Lag], float]) -> None:
        self._lags = lags
        self._value = value

    def __len__(self) -> int:
        return len(self._lags)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        value = self._value
        if isinstance(index, slice):
            return [Row(labels, value(lag)) for labels, lag in self._lags[index]]
        labels, lag = self._lags[index]
        return Row(labels, value(lag))
