"""History of a cluster in memory: rates and lags of the last hour, lost when the console stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from orbitlog.console.sources.cluster_sample import ClusterSample
from orbitlog.console.sources.group_lag import group_lag
from orbitlog.formats.names import is_system_group

SAMPLES_MAX = 360
STEP_MS = 10_000
GROUPS_MAX = 1000


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """Figures of one moment; None stands for an unknown figure."""

    at_ms: int
    in_per_second: float | None
    out_per_second: float | None
    lag: int | None
    lags: dict[str, int]


class LagHistory:
    """The last hour, one point every ten seconds at most."""

    def __init__(self) -> None:
        self._points: deque[HistoryPoint] = deque(maxlen=SAMPLES_MAX)

    @property
    def points(self) -> tuple[HistoryPoint, ...]:
        return tuple(self._points)

    def add(self, sample: ClusterSample) -> None:
        if self._points and sample.as_of_ms - self._points[-1].at_ms < STEP_MS:
            return
        lags: dict[str, int] = {}
        known = True
        for group in sorted(sample.group_names):
            if is_system_group(group):
                continue
            found = group_lag(sample, group)
            if found.lag is not None:
                lags[group] = found.lag
            elif found.topics:
                known = False
        total = sum(lags.values()) if known else None
        kept = dict(sorted(lags.items(), key=lambda entry: -entry[1])[:GROUPS_MAX])
        self._points.append(
            HistoryPoint(
                sample.as_of_ms, total_rate(sample, "putTps"), total_rate(sample, "getTransferredTps"), total, kept
            )
        )


def total_rate(sample: ClusterSample, key: str) -> float | None:
    """Return the sum of a rate over all masters; None if one is unknown."""
    total = 0.0
    masters = list(sample.masters)
    for broker in masters:
        rate = broker_rate(broker.runtime.value or {}, key)
        if rate is None or broker.runtime.problem is not None:
            return None
        total += rate
    return total if masters else None


def broker_rate(numbers: Mapping[str, str], key: str) -> float | None:
    """Return the first of the three averages that brokers print; 4.9 brokers spell one of the keys differently."""
    text = numbers.get(key) or (numbers.get("getTransferedTps") if key == "getTransferredTps" else None)
    try:
        return float(str(text).split()[0])
    except (ValueError, IndexError):
        return None
