"""Filters that Spark pushes down: which queues, offsets, times and tags need not be read at all.

Only what surely holds is used; every filter that is not fully answered here is given back, and Spark asks it again.
Topic, queue and queue offset are answered exactly. Times and tags only narrow what is read.
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
    """What is left to read: topics and queues in these sets (None: all), offsets and times in these ranges."""

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
        """Take what can be used; return what Spark must still ask."""
        left = []
        for asked in filters:
            is_answered = self._take_one(asked)
            if is_answered is None or not is_answered:
                left.append(asked)
            if is_answered is not None:
                self.taken.append(str(asked))
        return left

    def _take_one(self, asked: Filter) -> bool | None:
        """Return True where the filter is fully answered, False where it only narrows, None where it is of no use."""
        attribute: tuple[str, ...] = getattr(asked, "attribute", ())
        name = attribute[0].lower() if len(attribute) == 1 else ""
        kind = type(asked).__name__
        value: Any = getattr(asked, "value", None)
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
            # The end is the first time that is surely too late.
            end_ms = _milliseconds(last) + 1
            self.time_to_ms = end_ms if self.time_to_ms is None else min(self.time_to_ms, end_ms)


def _both(known: frozenset[Any] | None, values: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(values) if known is None else known & frozenset(values)


def _milliseconds(instant: datetime) -> int:
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


class FilterTaker:
    """Looks like a reader's method `pushFilters` that is there only when Spark has filter pushdown switched on.

    Spark refuses a reader that overrides the method while `spark.sql.python.filterPushdown.enabled` is off, and by
    default it is off. It compares `__func__` with its own: there it finds its own, and when it calls, it gets ours.
    """

    def __init__(self, take: Callable[[Iterable[Filter]], list[Filter]]) -> None:
        self._take = take

    @property
    def __func__(self) -> object:
        from pyspark.sql.datasource import DataSourceReader

        return DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._take(filters)
