"""History of a cluster in memory: rates and lags of the last hour, lost when the console stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample
from orbitlog.console.sources.group_lag import group_lag, queue_lags
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.names import is_system_group

SAMPLES_MAX = 360
STEP_MS = 10_000
GROUPS_MAX = 1000
# 360 points of 1,000 groups, and of 256 queues of 20 groups, are a few hundred thousand numbers a cluster at most.
WATCHED_MAX = 20
QUEUES_MAX = 256
PUT_TPS, GET_TPS = "putTps", "getTransferredTps"


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """Figures of one moment; None stands for an unknown figure. `brokers` has the rates of each master."""

    at_ms: int
    in_per_second: float | None
    out_per_second: float | None
    lag: int | None
    lags: dict[str, int]
    queue_lags: dict[str, dict[MessageQueue, int]]
    brokers: dict[str, tuple[float | None, float | None]]


class LagHistory:
    """The last hour, one point every ten seconds at most; queues only of groups that a page has shown."""

    def __init__(self) -> None:
        self._points: deque[HistoryPoint] = deque(maxlen=SAMPLES_MAX)
        self._watched: dict[str, None] = {}

    def watch(self, group: str) -> None:
        """Keep the lag of each queue of a group from now on; the group that was shown longest ago is given up."""
        self._watched.pop(group, None)
        self._watched[group] = None
        if len(self._watched) > WATCHED_MAX:
            del self._watched[next(iter(self._watched))]

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
        queues = {group: _lags_of_queues(sample, group) for group in self._watched}
        rates = total_rate(sample, PUT_TPS), total_rate(sample, GET_TPS)
        brokers = {broker.name: _rates(broker) for broker in sample.masters}
        self._points.append(HistoryPoint(sample.as_of_ms, *rates, total, kept, queues, brokers))


def _rates(broker: BrokerSample) -> tuple[float | None, float | None]:
    numbers = broker.runtime.value
    if numbers is None or broker.runtime.problem is not None:
        return None, None
    return broker_rate(numbers, PUT_TPS), broker_rate(numbers, GET_TPS)


def _lags_of_queues(sample: ClusterSample, group: str) -> dict[MessageQueue, int]:
    lags = {entry.queue: entry.lag for entry in queue_lags(sample, group) if entry.lag is not None}
    return dict(sorted(lags.items())[:QUEUES_MAX])


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
