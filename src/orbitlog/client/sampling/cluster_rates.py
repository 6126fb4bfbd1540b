"""Cluster rates: rows of brokers, groups and slow requests from two consecutive samples, for `orbitlog top`."""

from __future__ import annotations

import re
from typing import Any

from orbitlog.client.sampling import runtime_values as values
from orbitlog.client.sampling.sampled_numbers import BrokerSample, ClusterSample

BROKER_FIELDS = (
    *("broker", "role", "address", "version", "inPerSecond", "outPerSecond", "diskPercent", "unflushedBytes"),
    *("undispatchedBytes", "memoryBytes", "problem"),
)
_SLOW = re.compile(r"slowRequest_[0-9]{1,3}")
_SLOW_WORDS = 5
_PUT_TOTAL, _GET_TOTAL = "msgPutTotalTodayNow", "msgGetTotalTodayNow"
# Values of brokers that report the time of their slowest requests, without the requests themselves.
_SLOWEST = {"putMessageEntireTimeMax": "store a message", "getMessageEntireTimeMax": "read messages"}


def broker_rows(sample: ClusterSample, before: ClusterSample | None) -> list[dict[str, Any]]:
    """Return one row for each broker; rates are those since `before`, or over a minute without it."""
    known = {broker.address: broker for broker in before.brokers} if before is not None else {}
    seconds = (sample.sampled_ms - before.sampled_ms) / 1000 if before is not None else 0.0
    rows = []
    for broker in sorted(sample.brokers, key=lambda each: (each.cluster, each.name, each.broker_id)):
        runtime, last = broker.runtime, known.get(broker.address)
        rows.append(
            {
                "broker": broker.name,
                "role": "master" if broker.is_master else f"slave {broker.broker_id}",
                "address": broker.address,
                "version": runtime.get("brokerVersionDesc", ""),
                "inPerSecond": _rate(broker, last, _PUT_TOTAL, seconds, broker.put_tps),
                "outPerSecond": _rate(broker, last, _GET_TOTAL, seconds, broker.get_tps),
                "diskPercent": _percent(values.number(runtime.get("commitLogDiskRatio"))),
                "unflushedBytes": _whole(values.unflushed_bytes(runtime)),
                "undispatchedBytes": values.whole(runtime.get("dispatchBehindBytes")),
                "memoryBytes": _whole(values.number(runtime.get("processResidentBytes"))),
                "problem": "",
            }
        )
    for address, problem in sample.unreachable.items():
        rows.append({**dict.fromkeys(BROKER_FIELDS), "broker": "?", "address": address, "problem": problem})
    return rows


def _rate(
    broker: BrokerSample, last: BrokerSample | None, key: str, seconds: float, per_minute: float | None
) -> float | None:
    total = values.number(broker.runtime.get(key))
    earlier = values.number(last.runtime.get(key)) if last is not None else None
    if total is None or earlier is None or seconds <= 0 or total < earlier:
        return None if per_minute is None else round(per_minute, 1)
    return round((total - earlier) / seconds, 1)


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio * 100, 1)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def group_rows(sample: ClusterSample, before: ClusterSample | None, count: int) -> list[dict[str, Any]]:
    """Return the groups with most lag, over all brokers, with the change of their lag in a second."""
    seconds = (sample.sampled_ms - before.sampled_ms) / 1000 if before is not None else 0.0
    lags, earlier = _lags(sample), _lags(before) if before is not None else {}
    rows = []
    largest = sorted(lags.items(), key=lambda item: (-item[1][0], item[0]))[:count]
    for (group, topic), (lag, since_ms, tps) in largest:
        known = earlier.get((group, topic))
        rows.append(
            {
                "group": group,
                "topic": topic,
                "lag": lag,
                "lagPerSecond": round((lag - known[0]) / seconds, 1) if known is not None and seconds > 0 else None,
                "waitingSeconds": max(sample.sampled_ms - since_ms, 0) // 1000 if since_ms else 0,
                "consumedPerSecond": round(tps, 1),
            }
        )
    return rows


def _lags(sample: ClusterSample) -> dict[tuple[str, str], tuple[int, int, float]]:
    """Return lag, timestamp before it and rate by group and topic, over all brokers."""
    lags: dict[tuple[str, str], tuple[int, int, float]] = {}
    for key, progress in sample.progress.items():
        lag, since_ms, tps = lags.get((key.group, key.topic), (0, 0, 0.0))
        stamps = [stamp for stamp in (since_ms, progress.waiting_since_ms) if stamp]
        lags[key.group, key.topic] = lag + progress.lag, min(stamps, default=0), tps + progress.consume_tps
    return lags


def slow_rows(sample: ClusterSample, count: int) -> list[dict[str, Any]]:
    """Return the slowest requests, the slowest first; Apache's brokers report only the longest time of two kinds."""
    rows: list[dict[str, Any]] = []
    for broker in sample.brokers:
        for key, text in broker.runtime.items():
            if not _SLOW.fullmatch(key):
                continue
            words = text.split(" ", _SLOW_WORDS - 1)
            if len(words) >= _SLOW_WORDS - 1:
                name, spent_ms, client, stamp_ms = words[:4]
                ago_ms = sample.sampled_ms - values.whole(stamp_ms)
                more = {"ago_s": max(ago_ms, 0) // 1000, "phases": "".join(words[4:])}
                rows.append(_slow_row(broker, name, values.whole(spent_ms), client=client, **more))
        for key, name in _SLOWEST.items():
            longest_ms = values.whole(broker.runtime.get(key))
            if longest_ms > 0:
                rows.append(_slow_row(broker, name, longest_ms))
    return sorted(rows, key=lambda row: -row["ms"])[:count]


def _slow_row(broker: BrokerSample, name: str, spent_ms: int, *, client: str = "", **more: Any) -> dict[str, Any]:
    return {
        "broker": broker.name,
        "request": name,
        "ms": spent_ms,
        "client": client,
        "secondsAgo": more.get("ago_s"),
        "phases": more.get("phases", ""),
    }
