"""Group filters: SQL92 subscriptions of groups, kept while consumers are offline. Mirrors `ConsumerFilterManager`.

A table in `consumerFilter.json`. Orbitlog does not need it: each heartbeat carries the subscriptions. A Java broker
that takes the store over does if it computes filter bits in advance (`enableCalcFilterBitMap`): the bits of a message
are valid for a consumer that was registered before the message arrived.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable
from dataclasses import replace

from orbitlog.broker.tables.clients import is_valid_sql
from orbitlog.broker.tables.topics import NowMs
from orbitlog.formats.tables.group_config import BloomData, FilterData, FilterTable, TopicFilters
from orbitlog.remoting.loop_slices import at_once
from orbitlog.settings.limits import SQL_FILTERS, Limits
from orbitlog.wire.bodies.heartbeat_bodies import SQL92, SubscriptionData

KEPT_MS = 24 * 3_600_000
# If the file has no end time for a filter, its consumers are assumed to have left when the broker stopped.
_GONE_MS = 30_000
_STEP_FILTERS = 20
"""Filters to compile in a step: some ten microseconds each."""


class GroupFilters:
    """Expressions by topic and group, with the time since which no consumer has subscribed to them."""

    def __init__(self, now_ms: NowMs, saved: FilterTable | None = None) -> None:
        self._now_ms = now_ms
        self.limits = Limits()
        saved = saved or FilterTable()
        self._unknown = saved.unknown
        self._filters: dict[str, dict[str, FilterData]] = {}  # by group and topic
        self._count = 0
        self._has_ended = True  # whether some filter may be without a consumer
        for topic, filters in saved.topics.items():
            for group, data in filters.filters.items():
                self._put(topic, group, _as_found(data, now_ms()))
        blooms = [data.bloom for data in self._all() if data.bloom is not None and data.bloom.bit_count > 0]
        # A Java broker reads the table only if every filter has the bit length of its settings: that of the saved ones.
        self._saved_bloom = blooms[0] if blooms else None
        self.is_changed = False

    def __len__(self) -> int:
        return self._count

    def find(self, topic: str, group: str) -> FilterData | None:
        return self._filters.get(group, {}).get(topic)

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Register the subscriptions of a consumer; return whether the table changed."""
        return at_once(self.register_steps(group, subscriptions))

    def register_steps(self, group: str, subscriptions: Iterable[SubscriptionData]) -> Generator[int, None, bool]:
        """Do the same in steps; yield the number of filters after each."""
        given = {subscription.topic: subscription for subscription in subscriptions}
        has_changed, count = False, 0
        for data in given.values():
            if data.is_tag or not data.expression:
                continue
            has_changed |= self._take(group, data)
            count += 1
            if count % _STEP_FILTERS == 0:
                yield _STEP_FILTERS
        return self._end_all(group, given) or self._note(has_changed)

    def unregister(self, group: str) -> bool:
        """Record that the group has no consumer any more; return whether the table changed."""
        return self._end_all(group, ())

    def snapshot(self) -> FilterTable:
        """Return the table to save, without filters unused for a day."""
        self.is_changed = False
        oldest_ms = self._now_ms() - KEPT_MS
        for dead_time_ms, topic, group in self._ended():
            if dead_time_ms <= oldest_ms:
                self._remove(topic, group)
        topics: dict[str, dict[str, FilterData]] = {}
        for group in sorted(self._filters):
            for topic, data in self._filters[group].items():
                topics.setdefault(topic, {})[group] = data
        return FilterTable(
            {topic: TopicFilters(topic, topics[topic]) for topic in sorted(topics)}, unknown=self._unknown
        )

    def _take(self, group: str, wanted: SubscriptionData) -> bool:
        topic = wanted.topic
        before = self.find(topic, group)
        if before is not None and wanted.version <= before.client_version:
            if wanted.version < before.client_version or not before.is_dead:
                return False  # members differ: the latest subscription counts
            self._put(topic, group, replace(before, dead_time_ms=0))
            return True
        if before is not None and (before.expression, before.expression_type) == (
            wanted.expression,
            wanted.expression_type,
        ):
            self._put(topic, group, replace(before, dead_time_ms=0, client_version=wanted.version))
            return True
        if not _is_valid(wanted):
            return before is not None and self._remove(topic, group)
        if before is None and not self._has_room():
            return False
        filter_data = FilterData(
            group=group,
            topic=topic,
            expression=wanted.expression,
            expression_type=wanted.expression_type,
            born_time_ms=self._now_ms(),
            bloom=_bloom_data(f"{group}#{topic}", self._saved_bloom),
            client_version=wanted.version,
        )
        self._put(topic, group, filter_data)
        return True

    def _has_room(self) -> bool:
        """Return whether one more filter may be kept; the older half of those without a consumer makes room.

        Only a Java broker that takes the store over misses one.
        """
        if self._count < self.limits[SQL_FILTERS]:
            return True
        self.limits.reach(SQL_FILTERS)
        if self._has_ended:
            ended = sorted(self._ended())
            for _, topic, group in ended[: (len(ended) + 1) // 2]:
                self._remove(topic, group)
            self._has_ended = bool(ended)
        return self._count < self.limits[SQL_FILTERS]

    def _all(self) -> Iterable[FilterData]:
        return (data for filters in self._filters.values() for data in filters.values())

    def _ended(self) -> list[tuple[int, str, str]]:
        """Return end time, topic and group of each filter without a consumer."""
        return [
            (data.dead_time_ms, topic, group)
            for group, filters in self._filters.items()
            for topic, data in filters.items()
            if data.is_dead
        ]

    def _put(self, topic: str, group: str, data: FilterData) -> None:
        filters = self._filters.setdefault(group, {})
        self._count += topic not in filters
        filters[topic] = data

    def _remove(self, topic: str, group: str) -> bool:
        filters = self._filters[group]
        del filters[topic]
        self._count -= 1
        if not filters:
            del self._filters[group]
        return True

    def _end_all(self, group: str, given: Container[str]) -> bool:
        """End the filters of a group but those of the topics `given`; return whether the table changed."""
        now_ms = self._now_ms()
        ended = {
            topic: replace(data, dead_time_ms=max(now_ms, data.born_time_ms))
            for topic, data in self._filters.get(group, {}).items()
            if topic not in given and not data.is_dead
        }
        for topic, data in ended.items():
            self._put(topic, group, data)
            self._has_ended = True
        return self._note(bool(ended))

    def _note(self, changes: bool) -> bool:
        self.is_changed = self.is_changed or changes
        return changes


def _as_found(data: FilterData, now_ms: int) -> FilterData:
    if data.dead_time_ms:
        return data
    return replace(data, dead_time_ms=max(now_ms - _GONE_MS, data.born_time_ms))


def _is_valid(data: SubscriptionData) -> bool:
    return data.expression_type == SQL92 and is_valid_sql(data.expression)


def _bloom_data(text: str, saved: BloomData | None) -> BloomData:
    """Return the bits of a group in a topic, with the lengths of the saved filters or Java's defaults."""
    from orbitlog.filters.bloom_bits import BIT_COUNT, BITS_PER_CONSUMER, bloom_bits  # few groups filter by SQL92

    bit_count = saved.bit_count if saved else BIT_COUNT
    bits_of_one = len(saved.bit_positions or ()) if saved else 0
    return BloomData(bit_count, bloom_bits(text, bit_count, bits_of_one or BITS_PER_CONSUMER))
