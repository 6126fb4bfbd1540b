"""Group filters: SQL92 subscriptions of groups, kept while consumers are offline. Mirrors `ConsumerFilterManager`.

A table in `consumerFilter.json`. Orbitlog does not need it: each heartbeat carries the subscriptions. A Java broker
that takes the store over does if it computes filter bits in advance (`enableCalcFilterBitMap`): the bits of a message
are valid for a consumer that was registered before the message arrived.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orbitlog.broker.tables.clients import is_valid_sql
from orbitlog.broker.tables.topics import NowMs
from orbitlog.formats.tables.group_config import BloomData, FilterData, FilterTable, TopicFilters
from orbitlog.wire.bodies.heartbeat_bodies import SQL92, SubscriptionData

KEPT_MS = 24 * 3_600_000
# If the file has no end time for a filter, its consumers are assumed to have left when the broker stopped.
_GONE_MS = 30_000


class GroupFilters:
    """Expressions by topic and group, with the time since which no consumer has subscribed to them."""

    def __init__(self, now_ms: NowMs, saved: FilterTable | None = None) -> None:
        self._now_ms = now_ms
        saved = saved or FilterTable()
        self._unknown = saved.unknown
        self._filters: dict[tuple[str, str], FilterData] = {}
        for topic, filters in saved.topics.items():
            for group, data in filters.filters.items():
                self._filters[topic, group] = _as_found(data, now_ms())
        blooms = [data.bloom for data in self._filters.values() if data.bloom is not None and data.bloom.bit_count > 0]
        # A Java broker reads the table only if every filter has the bit length of its settings: that of the saved ones.
        self._saved_bloom = blooms[0] if blooms else None
        self.is_changed = False

    def find(self, topic: str, group: str) -> FilterData | None:
        return self._filters.get((topic, group))

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Register the subscriptions of a consumer; return whether the table changed."""
        given = {subscription.topic: subscription for subscription in subscriptions}
        before = {topic: data for (topic, owner), data in self._filters.items() if owner == group}
        news = [self._take(group, data) for data in given.values() if not data.is_tag and data.expression]
        gone = [topic for topic, data in before.items() if topic not in given and not data.is_dead]
        for topic in gone:
            self._end(topic, group)
        return self._note(any(news) or bool(gone))

    def unregister(self, group: str) -> bool:
        """Record that the group has no consumer any more; return whether the table changed."""
        gone = [topic for (topic, owner), data in self._filters.items() if owner == group and not data.is_dead]
        for topic in gone:
            self._end(topic, group)
        return self._note(bool(gone))

    def snapshot(self) -> FilterTable:
        """Return the table to save, without filters unused for a day."""
        self.is_changed = False
        oldest_ms = self._now_ms() - KEPT_MS
        self._filters = {
            key: data for key, data in self._filters.items() if not data.is_dead or data.dead_time_ms > oldest_ms
        }
        topics: dict[str, dict[str, FilterData]] = {}
        for (topic, group), data in sorted(self._filters.items()):
            topics.setdefault(topic, {})[group] = data
        return FilterTable(
            {topic: TopicFilters(topic, filters) for topic, filters in topics.items()}, unknown=self._unknown
        )

    def _take(self, group: str, wanted: SubscriptionData) -> bool:
        key = wanted.topic, group
        before = self._filters.get(key)
        if before is not None and wanted.version <= before.client_version:
            if wanted.version < before.client_version or not before.is_dead:
                return False  # members differ: the latest subscription counts
            self._filters[key] = replace(before, dead_time_ms=0)
            return True
        if before is not None and (before.expression, before.expression_type) == (
            wanted.expression,
            wanted.expression_type,
        ):
            self._filters[key] = replace(before, dead_time_ms=0, client_version=wanted.version)
            return True
        if not _is_valid(wanted):
            return self._filters.pop(key, None) is not None
        self._filters[key] = FilterData(
            group=group,
            topic=wanted.topic,
            expression=wanted.expression,
            expression_type=wanted.expression_type,
            born_time_ms=self._now_ms(),
            bloom=_bloom_data(f"{group}#{wanted.topic}", self._saved_bloom),
            client_version=wanted.version,
        )
        return True

    def _end(self, topic: str, group: str) -> None:
        data = self._filters[topic, group]
        self._filters[topic, group] = replace(data, dead_time_ms=max(self._now_ms(), data.born_time_ms))

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
