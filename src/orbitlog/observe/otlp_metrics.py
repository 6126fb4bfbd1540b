"""OTLP metrics: collected families as the request of OpenTelemetry's protocol, in the form of its JSON encoding.

Names have no suffix and units are fields of their own, as Apache's broker 5.5 exports them. Integers of 64 bits are
texts, as the JSON encoding of protocol buffers demands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from orbitlog.observe.metric import COUNTER, HISTOGRAM, INFO, Family, Histogram, Metric

DELTA, CUMULATIVE = 1, 2
_UNITS = ("milliseconds", "seconds", "bytes")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_OTHER = {"n": "\n"}
_SCOPE_LABEL = "otel_scope_name"
SCOPE = "broker-meter"

Json = dict[str, Any]


class Buckets(NamedTuple):
    """A histogram at the time of its collection."""

    bounds: Sequence[float]
    counts: tuple[int, ...]
    total: float


class Point(NamedTuple):
    """One series: its label text and its value when it was collected."""

    labels: str
    value: int | float | Buckets


class MetricPoints(NamedTuple):
    """A family with its points; unlike `Family` it does not change after its collection."""

    metric: Metric
    points: tuple[Point, ...]


def frozen(family: Family, limit: int) -> MetricPoints:
    """Return the values of a family as they are now."""
    points = []
    for row in family.rows[:limit]:
        value = row.value
        if isinstance(value, Histogram):
            points.append(Point(row.labels, Buckets(value.bounds, tuple(value.counts), value.total)))
        else:
            points.append(Point(row.labels, value))
    return MetricPoints(family.metric, tuple(points))


def otlp_name(metric: Metric) -> tuple[str, str]:
    """Return name and unit: `rocketmq_rpc_latency_milliseconds` is `rocketmq_rpc_latency` in `milliseconds`."""
    name = metric.name.removesuffix("_total") if metric.kind == COUNTER else metric.name
    for unit in _UNITS:
        if name.endswith(f"_{unit}"):
            return name.removesuffix(f"_{unit}"), unit
    return name, ""


def attributes(*texts: str) -> list[Json]:
    """Return label texts as attributes; the label of the scope is a field of its own."""
    return [
        {"key": name, "value": {"stringValue": _ESCAPE.sub(lambda match: _OTHER.get(match[1], match[1]), value)}}
        for text in texts
        for name, value in _LABEL.findall(text)
        if name != _SCOPE_LABEL
    ]


class OtlpEncoder:
    """Encodes collections of one process; with `in_delta`, counters and histograms state the change since the last."""

    def __init__(self, shared: str, resource: Sequence[tuple[str, str]], *, in_delta: bool, started_ns: int) -> None:
        self._shared = shared
        self._resource = [{"key": key, "value": {"stringValue": value}} for key, value in resource]
        self._in_delta = in_delta
        self._since_ns = started_ns
        self._before: dict[tuple[str, str], int | float | Buckets] = {}

    def requests(self, collected: Iterable[MetricPoints], now_ns: int, points_max: int) -> Iterator[Json]:
        """Yield requests of at most `points_max` data points each."""
        metrics: list[Json] = []
        room = points_max
        for metric, points in collected:
            if metric.kind == INFO and not metric.labels:
                continue  # `target_info` states the resource
            for first in range(0, len(points), points_max):
                part = points[first : first + points_max]
                if len(part) > room and metrics:
                    yield self._request(metrics)
                    metrics, room = [], points_max
                metrics.append(self._metric(metric, part, now_ns))
                room -= len(part)
        if metrics:
            yield self._request(metrics)
        if self._in_delta:
            self._since_ns = now_ns

    def _request(self, metrics: list[Json]) -> Json:
        scope = {"scope": {"name": SCOPE}, "metrics": metrics}
        return {"resourceMetrics": [{"resource": {"attributes": self._resource}, "scopeMetrics": [scope]}]}

    def _metric(self, metric: Metric, points: Sequence[Point], now_ns: int) -> Json:
        name, unit = otlp_name(metric)
        declared: Json = {"name": name, "description": metric.help, "unit": unit}
        data = [self._point(metric, point, now_ns) for point in points]
        temporality = DELTA if self._in_delta else CUMULATIVE
        if metric.kind == COUNTER:
            declared["sum"] = {"dataPoints": data, "aggregationTemporality": temporality, "isMonotonic": True}
        elif metric.kind == HISTOGRAM:
            declared["histogram"] = {"dataPoints": data, "aggregationTemporality": temporality}
        else:
            declared["gauge"] = {"dataPoints": data}
        return declared

    def _point(self, metric: Metric, point: Point, now_ns: int) -> Json:
        value = self._changed(metric, point) if self._in_delta else point.value
        encoded: Json = {
            "attributes": attributes(point.labels, metric.fixed, self._shared),
            "timeUnixNano": str(now_ns),
        }
        if metric.kind in (COUNTER, HISTOGRAM):
            encoded["startTimeUnixNano"] = str(self._since_ns)
        if isinstance(value, Buckets):
            encoded |= {
                "count": str(sum(value.counts)),
                "sum": float(value.total),
                "bucketCounts": [str(count) for count in value.counts],
                "explicitBounds": [float(bound) for bound in value.bounds],
            }
        elif isinstance(value, int):
            encoded["asInt"] = str(value)
        else:
            encoded["asDouble"] = value
        return encoded

    def _changed(self, metric: Metric, point: Point) -> int | float | Buckets:
        """Return the change of a counter or histogram since the last collection."""
        if metric.kind not in (COUNTER, HISTOGRAM):
            return point.value
        key, value = (metric.name, point.labels), point.value
        before = self._before.get(key)
        self._before[key] = value
        if isinstance(value, Buckets):
            if not isinstance(before, Buckets) or any(a < b for a, b in zip(value.counts, before.counts, strict=True)):
                return value
            counts = tuple(now - then for now, then in zip(value.counts, before.counts, strict=True))
            return Buckets(value.bounds, counts, value.total - before.total)
        if before is None or isinstance(before, Buckets) or value < before:
            return value
        return value - before
