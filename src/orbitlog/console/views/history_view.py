"""History of a cluster from memory: rates and lag in time buckets, and heat maps of groups and queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from msgspec import Meta

from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.sources.lag_history import HistoryPoint
from orbitlog.console.views.answers import Answer, NoQuery

BUCKETS_MAX = 120
# The first one is wider than the distance of two points, so that no bucket of a watched time is empty.
_STEPS_MS = (15_000, 30_000, 60_000, 120_000, 300_000, 600_000)
_ROWS_MAX = 40


class HistoryQuery(NoQuery, kw_only=True):
    """The span to show."""

    minutes: Annotated[int, Meta(ge=1, le=60, description="Minutes to show")] = 60


class RatesQuery(HistoryQuery, kw_only=True):
    """The span to show, of the whole cluster or of one broker."""

    broker: Annotated[str, Meta(max_length=256, description="Only this broker; its lag is unknown")] = ""


class HistorySample(Answer, kw_only=True):
    """Figures of one bucket: means of rates, the largest lag; None stands for an unknown one."""

    at: int
    in_per_second: float | None
    out_per_second: float | None
    lag: int | None


class LagRow(Answer, kw_only=True):
    """The largest lag of a group or queue in each bucket; None if it was unknown or did not exist."""

    name: str
    lags: list[int | None]


class HistoryAnswer(Answer, kw_only=True):
    """Buckets of equal width, oldest first. The history begins when the console starts."""

    points: list[HistorySample]
    groups: list[LagRow]
    bucket_ms: int
    since: int | None


class HeatAnswer(Answer, kw_only=True):
    """Lag by queue of one group; it begins when a page has first shown the group."""

    name: str
    at: list[int]
    rows: list[LagRow]
    bucket_ms: int
    left_out: int


async def show_history(source: ClusterSource, query: RatesQuery) -> HistoryAnswer:
    await source.sample()
    points = _recent(source, query.minutes)
    bucket_ms, buckets = _buckets(points)
    rows, _ = _rows(buckets, lambda point: point.lags)
    return HistoryAnswer(
        points=[
            HistorySample(
                at=at,
                in_per_second=_mean(_rates(point, query.broker)[0] for point in bucket),
                out_per_second=_mean(_rates(point, query.broker)[1] for point in bucket),
                lag=None if query.broker else _largest(point.lag for point in bucket),
            )
            for at, bucket in buckets
        ],
        groups=rows,
        bucket_ms=bucket_ms,
        since=points[0].at_ms if points else None,
    )


async def show_heat(source: ClusterSource, group: str, query: HistoryQuery) -> HeatAnswer:
    await source.sample()
    source.history.watch(group)
    bucket_ms, buckets = _buckets(_recent(source, query.minutes))
    rows, left_out = _rows(
        buckets,
        lambda point: {
            f"{queue.topic} {queue.broker_name} {queue.queue_id}": lag
            for queue, lag in point.queue_lags.get(group, {}).items()
        },
    )
    return HeatAnswer(name=group, at=[at for at, _ in buckets], rows=rows, bucket_ms=bucket_ms, left_out=left_out)


def _rates(point: HistoryPoint, broker: str) -> tuple[float | None, float | None]:
    if broker:
        return point.brokers.get(broker, (None, None))
    return point.in_per_second, point.out_per_second


def _recent(source: ClusterSource, minutes: int) -> Sequence[HistoryPoint]:
    oldest_ms = source.now_ms - minutes * 60_000
    return [point for point in source.history.points if point.at_ms >= oldest_ms]


def _buckets(points: Sequence[HistoryPoint]) -> tuple[int, list[tuple[int, list[HistoryPoint]]]]:
    """Group points into buckets of the smallest width that gives at most `BUCKETS_MAX`; gaps stay gaps."""
    span_ms = points[-1].at_ms - points[0].at_ms if points else 0
    width_ms = next((step for step in _STEPS_MS if span_ms // step < BUCKETS_MAX), _STEPS_MS[-1])
    found: dict[int, list[HistoryPoint]] = {}
    for point in points:
        found.setdefault(point.at_ms // width_ms * width_ms, []).append(point)
    return width_ms, sorted(found.items())


def _rows(
    buckets: list[tuple[int, list[HistoryPoint]]], lags_of: Callable[[HistoryPoint], dict[str, int]]
) -> tuple[list[LagRow], int]:
    """Return rows with the largest lags, largest first, and the number of rows that are left out."""
    columns: list[dict[str, int]] = []
    largest: dict[str, int] = {}
    for _, bucket in buckets:
        column: dict[str, int] = {}
        for point in bucket:
            for name, lag in lags_of(point).items():
                column[name] = max(lag, column.get(name, 0))
        columns.append(column)
        for name, lag in column.items():
            largest[name] = max(lag, largest.get(name, 0))
    names = sorted(largest, key=lambda name: (-largest[name], name))
    rows = [LagRow(name=name, lags=[column.get(name) for column in columns]) for name in names[:_ROWS_MAX]]
    return rows, max(0, len(names) - _ROWS_MAX)


def _mean(values: Iterable[float | None]) -> float | None:
    known = list(values)
    numbers = [value for value in known if value is not None]
    return sum(numbers) / len(numbers) if numbers and len(numbers) == len(known) else None


def _largest(values: Iterable[int | None]) -> int | None:
    known = list(values)
    numbers = [value for value in known if value is not None]
    return max(numbers) if numbers and len(numbers) == len(known) else None
