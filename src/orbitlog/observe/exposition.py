"""Text formats of metrics: Prometheus 0.0.4 and OpenMetrics 1.0, chosen by the `Accept` header."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from orbitlog.observe.metric import COUNTER, GAUGE, INFO, Family, Histogram, Metric, Reader, Row
from orbitlog.observe.metric_table import SERIES_DROPPED

if TYPE_CHECKING:
    from orbitlog.observe.otlp_metrics import MetricPoints

STEP_ROWS = 500
_TOTAL, _INFO_SUFFIX = "_total", "_info"
_OVERFLOW = 'otel_metric_overflow="true"'
_OPEN_METRICS = "application/openmetrics-text"


@dataclass(frozen=True, slots=True)
class TextFormat:
    """One of the two formats."""

    content_type: str
    is_open_metrics: bool


PROMETHEUS = TextFormat("text/plain; version=0.0.4; charset=utf-8", False)
OPEN_METRICS = TextFormat(f"{_OPEN_METRICS}; version=1.0.0; charset=utf-8", True)


def format_for(accept: str) -> TextFormat:
    """Return the format that a client asks for; Prometheus' own without a wish."""
    return OPEN_METRICS if _OPEN_METRICS in accept else PROMETHEUS


def head_lines(metric: Metric, text_format: TextFormat) -> str:
    """Return the lines HELP and TYPE of a family."""
    name, kind = metric.name, metric.kind
    if text_format.is_open_metrics:
        name = name.removesuffix(_TOTAL) if kind == COUNTER else name.removesuffix(_INFO_SUFFIX)
    elif kind == INFO:
        kind = GAUGE
    return f"# HELP {name} {metric.help}\n# TYPE {name} {kind}\n"


def row_lines(metric: Metric, row: Row, shared: str) -> str:
    """Return the lines of one series; `shared` is the text of the labels of all series."""
    labels = ",".join(filter(None, (row.labels, metric.fixed, shared)))
    if isinstance(row.value, Histogram):
        return _histogram_lines(metric.name, labels, row.value)
    return f"{metric.name}{{{labels}}} {row.value}\n" if labels else f"{metric.name} {row.value}\n"


def _step_lines(metric: Metric, rows: Sequence[Row], shared: str) -> str:
    """Return the lines of some series; those of counters and gauges in one pass, for there may be very many."""
    if metric.kind not in (COUNTER, GAUGE) or not metric.labels:
        return "".join([row_lines(metric, row, shared) for row in rows])
    name, tail = metric.name, "".join(f",{text}" for text in (metric.fixed, shared) if text)
    return "".join([f"{name}{{{labels}{tail}}} {value}\n" for labels, value in rows])


def _histogram_lines(name: str, labels: str, histogram: Histogram) -> str:
    prefix = f"{labels}," if labels else ""
    bounds = (*map(str, map(float, histogram.bounds)), "+Inf")
    totals = tuple(accumulate(histogram.counts))
    lines = [f'{name}_bucket{{{prefix}le="{bound}"}} {total}\n' for bound, total in zip(bounds, totals, strict=True)]
    shown = f"{{{labels}}}" if labels else ""
    return "".join((*lines, f"{name}_sum{shown} {histogram.total}\n", f"{name}_count{shown} {totals[-1]}\n"))


def family_pieces(family: Family, shared: str, text_format: TextFormat, limit: int) -> Iterator[str]:
    """Yield the text of a family in pieces of `STEP_ROWS` series; nothing for a family without series.

    Past `limit` series the rest of a counter is one series that states the overflow, and other families end.
    """
    metric, rows, _ = family
    if not rows:
        return
    yield head_lines(metric, text_format)
    if metric.kind != INFO:
        count = min(len(rows), limit)
        for first in range(0, count, STEP_ROWS):
            yield _step_lines(metric, rows[first : min(first + STEP_ROWS, count)], shared)
    else:
        yield "".join(row_lines(metric, row, "") for row in rows)
    if len(rows) > limit and metric.kind == COUNTER:
        yield row_lines(metric, Row(_OVERFLOW, _sum(rows[limit:])), shared)


def _sum(rows: Iterable[Row]) -> float:
    return sum(row.value for row in rows if not isinstance(row.value, Histogram))


class Exposition:
    """The page of metrics: collects all readers when it is asked for."""

    def __init__(self, readers: Sequence[Reader], shared: str, limit: int) -> None:
        self.readers = list(readers)
        self._shared = shared
        self._limit = limit
        self._dropped: dict[str, int] = {}
        # Collections take turns piece by piece: two at once would double the work in a turn of the event loop. None
        # has the lock while its peer reads: one that does not read would stop the others.
        self._lock = asyncio.Lock()

    async def pieces(self, text_format: TextFormat) -> AsyncIterator[bytes]:
        """Yield the text; the event loop runs other tasks after each piece."""
        steps = self.steps(text_format)
        while True:
            async with self._lock:
                text = next(steps, None)
                await asyncio.sleep(0)
            if text is None:
                return
            if text:
                yield text.encode()

    async def collected(self) -> list[MetricPoints]:
        """Return all families as they are now; the event loop runs other tasks in between."""
        from orbitlog.observe.otlp_metrics import frozen

        found = []
        async with self._lock:
            for reader in self.readers:
                for family in reader(self._limit):
                    if isinstance(family, Family):
                        found.append(frozen(family, self._limit))
                        self._note_dropped(family)
                    await asyncio.sleep(0)
        rows = [Row(SERIES_DROPPED.text(name), count) for name, count in self._dropped.items()]
        return [*found, frozen(Family(SERIES_DROPPED, rows), self._limit)]

    def steps(self, text_format: TextFormat) -> Iterator[str]:
        """Yield the text in pieces, each some milliseconds of work; an empty one if a reader pauses."""
        for reader in self.readers:
            for family in reader(self._limit):
                if not isinstance(family, Family):
                    yield ""
                    continue
                yield from family_pieces(family, self._shared, text_format, self._limit)
                self._note_dropped(family)
        rows = [Row(SERIES_DROPPED.text(name), count) for name, count in self._dropped.items()]
        yield from family_pieces(Family(SERIES_DROPPED, rows), self._shared, text_format, self._limit)
        if text_format.is_open_metrics:
            yield "# EOF\n"

    def _note_dropped(self, family: Family) -> None:
        dropped = family.dropped + max(len(family.rows) - self._limit, 0)
        if dropped:
            name = family.metric.name
            self._dropped[name] = self._dropped.get(name, 0) + dropped
