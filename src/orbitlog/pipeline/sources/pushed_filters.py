"""Filter pushdown: skips queues, offsets, times and tags that Spark's filters exclude.

Filters on topic, queue and queue offset are applied exactly. Filters on times and tags only narrow the read, so they
are returned to Spark, which evaluates them on the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from orbitlog.formats.java import LONG_MAX
from orbitlog.pipeline.sources.topic_offsets import QueueKey

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# Names in both schemas.
_TOPIC, _QUEUE, _OFFSET, _TIME = ("topic",), ("queueid", "partition"), ("queueoffset", "offset"), "storetimestamp"


@dataclass(slots=True)
class PushedFilters:
    """The read that filters leave: topics and queues in these sets (None: all), offsets and times in these ranges."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    offset_from: int = 0
    offset_to: int = LONG_MAX
    time_from_ms: int | None = None
    time_to_ms: int | None = None
    broker_names: frozenset[str] | None = None
    taken: list[str] = field(default_factory=list)

    def wants(self, key: QueueKey) -> bool:
        return (
            (self.topics is None or key.topic in self.topics)
            and (self.queue_ids is None or key.queue_id in self.queue_ids)
            and (self.broker_names is None or key.broker_name in self.broker_names)
        )

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Apply filters; return those that Spark must still evaluate."""
        remaining = []
        for pushed in filters:
            is_exact = self._take_one(pushed)
            if not is_exact:
                remaining.append(pushed)
            if is_exact is not None:
                self.taken.append(str(pushed))
        return remaining

    def _take_one(self, pushed: Filter) -> bool | None:
        """Return True if the filter is applied exactly, False if it only narrows the read, None if it is not used."""
        attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
        name = attribute[0].lower() if len(attribute) == 1 else ""
        kind = type(pushed).__name__
        value: Any = getattr(pushed, "value", None)
        if kind == "IsNotNull":
            return True if name in (*_TOPIC, *_QUEUE, *_OFFSET) else None
        if kind in ("EqualTo", "EqualNullSafe", "In") and value is not None:
            values = tuple(value) if kind == "In" else (value,)
            if all(item is not None for item in values):
                return self._take_values(name, values)
        if kind in ("GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual") and value is not None:
            return self._take_range(name, kind, value)
        return None

    def _take_values(self, name: str, values: tuple[Any, ...]) -> bool | None:
        if name in _TOPIC:
            self.topics = _both(self.topics, values)
            return True
        if name == "brokername":
            self.broker_names = _both(self.broker_names, values)
            return True
        if name in _QUEUE:
            self.queue_ids = _both(self.queue_ids, values)
            return True
        if name == "tags":
            self.tags = _both(self.tags, values)
            return False
        if name in _OFFSET:
            self.offset_from = max(self.offset_from, min(values))
            self.offset_to = min(self.offset_to, max(values) + 1)
            return len(values) == 1
        if name == _TIME or name == "timestamp":
            self._narrow_time(min(values), max(values))
            return False
        return None

    def _take_range(self, name: str, kind: str, value: Any) -> bool | None:
        if name in _OFFSET:
            if kind.startswith("Greater"):
                self.offset_from = max(self.offset_from, value + (kind == "GreaterThan"))
            else:
                self.offset_to = min(self.offset_to, value + (kind == "LessThanOrEqual"))
            return True
        if name == _TIME or name == "timestamp":
            if kind.startswith("Greater"):
                self._narrow_time(value, None)
            else:
                self._narrow_time(None, value)
            return False
        return None

    def _narrow_time(self, first: datetime | None, last: datetime | None) -> None:
        if first is not None:
            start_ms = _milliseconds(first)
            self.time_from_ms = start_ms if self.time_from_ms is None else max(self.time_from_ms, start_ms)
        if last is not None:
            # Filters may be inclusive or have microseconds: the first excluded time is one millisecond later.
            end_ms = _milliseconds(last) + 1
            self.time_to_ms = end_ms if self.time_to_ms is None else min(self.time_to_ms, end_ms)


def _both(allowed: frozenset[Any] | None, values: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(values) if allowed is None else allowed & frozenset(values)


def _milliseconds(instant: datetime) -> int:
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


class PushFiltersMethod:
    """The method `pushFilters` of a reader, hidden from Spark's check that filter pushdown is enabled.

    Spark refuses a reader that overrides the method while `spark.sql.python.filterPushdown.enabled` is off, which is
    the default. It detects an override by comparing `__func__` with its own function, so this object returns that
    function as `__func__`, and applies filters when Spark calls it.
    """

    def __init__(self, take: Callable[[Iterable[Filter]], list[Filter]]) -> None:
        self._take = take

    @property
    def __func__(self) -> object:
        from pyspark.sql.datasource import DataSourceReader

        return DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._take(filters)
