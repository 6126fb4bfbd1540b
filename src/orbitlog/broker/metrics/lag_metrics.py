"""Lag metrics: the lag of every consumer group in messages and in time.

Apache's families have only groups with connected members, as Apache's broker does. Orbitlog's own have every group that
has committed an offset, so that the lag of a group whose consumers all died stays visible.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any, NamedTuple

from orbitlog.broker.metrics.group_names import is_system
from orbitlog.broker.pop.popped_queues import PopKey, PoppedQueues
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.formats.names import RETRY_PREFIX
from orbitlog.formats.tables.offset_tables import TopicGroup
from orbitlog.observe import metric_table as table
from orbitlog.observe.metric import PAUSE, Collected, Family, Row

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


class LagMetrics:
    """Computes the lag of all groups of one broker."""

    def __init__(self, state: BrokerState, popped: PoppedQueues) -> None:
        self._state = state
        self._popped = popped

    def read(self, limit: int) -> Collected:
        """Yield the families; of more than `limit` pairs of group and topic, those with members come first."""
        state = self._state
        total = state.offsets.key_count
        online = {group.group for group in state.clients.consumer_groups}
        kept = list(islice(self._keys_to_read(online), limit))
        yield PAUSE
        lags: list[_Lag] = []
        queues = 0
        for key in kept:
            config = state.topics.find(key.topic)
            if config is None:
                continue
            queues += config.read_queue_count
            lags.append((yield from self._lag(key, config.read_queue_count, is_online=key.group in online)))
            if queues >= _STEP_QUEUES:
                queues = 0
                yield PAUSE
        yield from _families(lags, total - len(kept))

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
            ready += end - delivered
            in_flight += delivered - committed
            oldest = _earlier(oldest, state.store_time_ms(topic, queue_id, committed))
            if delivered < end:
                oldest_ready = _earlier(oldest_ready, state.store_time_ms(topic, queue_id, delivered))
        now_ms = state.now_ms()
        age_ms = max(now_ms - oldest, 0) if oldest else 0
        queueing_ms = max(now_ms - oldest_ready, 0) if oldest_ready else 0
        return _Lag(key, is_online, messages, age_ms, in_flight, ready, queueing_ms)


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
    yield Family(table.LAG_MESSAGES, [Row(labels, lag.messages) for labels, lag in shared], dropped)
    yield Family(table.LAG_LATENCY, [Row(labels, lag.age_ms) for labels, lag in shared], dropped)
    yield Family(table.INFLIGHT_MESSAGES, [Row(labels, lag.in_flight) for labels, lag in shared], dropped)
    yield Family(table.READY_MESSAGES, [Row(labels, lag.ready) for labels, lag in shared], dropped)
    yield Family(table.QUEUEING_LATENCY, [Row(labels, lag.queueing_ms) for labels, lag in shared], dropped)
    yield Family(table.GROUP_LAG, [Row(labels, lag.messages) for labels, lag in own], dropped)
    yield Family(table.GROUP_LAG_SECONDS, [Row(labels, lag.age_ms / 1000) for labels, lag in own], dropped)
