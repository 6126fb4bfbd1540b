"""Log statistics: message counts and sizes by topic, queue, tag, hour and producer's address.

Tasks count ranges of the log with the kernels and return sums; messages never leave them. The driver adds the sums of
all tasks, so its memory use depends on the number of distinct groups, not of messages. Quantiles come from histograms
with steps of 3 % and have that precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from orbitlog.formats.hosts import Host
from orbitlog.formats.java import LONG_MAX, LONG_MIN
from orbitlog.jobs.local_runner import PhaseProgress, Runner, TaskReport, phase_of
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.kernels.tally import HOUR_MS, Counted, Tally, bucket_bounds
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.pipeline.sources.log_partitions import (
    LogPartition,
    check_end,
    plan_whole_log,
    scan_partition,
    total_bytes,
)
from orbitlog.pipeline.sources.store_snapshot import StoreSnapshot

KINDS = ("topic", "queue", "tag", "hour", "host")


@dataclass(frozen=True, slots=True)
class StatsTask:
    """A partition to count, and how to treat CRCs and damage."""

    partition: LogPartition
    check_crc: bool
    fail_on_damage: bool


@dataclass(slots=True)
class GroupTotals:
    """Sums of one group; `histogram` counts bodies by size."""

    messages: int = 0
    stored_bytes: int = 0
    body_bytes: int = 0
    first_ms: int = LONG_MAX
    last_ms: int = LONG_MIN
    histogram: dict[int, int] = field(default_factory=dict)

    def add(self, other: GroupTotals) -> None:
        self.messages += other.messages
        self.stored_bytes += other.stored_bytes
        self.body_bytes += other.body_bytes
        self.first_ms = min(self.first_ms, other.first_ms)
        self.last_ms = max(self.last_ms, other.last_ms)
        for bucket, count in other.histogram.items():
            self.histogram[bucket] = self.histogram.get(bucket, 0) + count

    def body_size_at(self, share: float) -> int:
        """Return the size that this share of the bodies does not exceed, with a precision of 3 %."""
        wanted, seen = share * self.messages, 0
        for bucket in sorted(self.histogram):
            seen += self.histogram[bucket]
            if seen >= wanted:
                return bucket_bounds(bucket)[1]
        return 0

    @property
    def messages_per_second(self) -> float | None:
        """The mean rate between the first and the last message; None if they have the same timestamp."""
        span_ms = self.last_ms - self.first_ms
        return self.messages * 1000 / span_ms if span_ms > 0 else None


GroupKey = tuple[str, str, str, Any]
"""Kind of group, broker, topic, and the queue id, tag, hour (ms) or address (None for a whole topic)."""


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """Totals by group."""

    groups: dict[GroupKey, GroupTotals]
    messages: int
    log_bytes: int

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """Return the groups of one kind as sorted rows."""
        chosen = [(key, totals) for key, totals in self.groups.items() if key[0] == kind]
        chosen.sort(key=lambda item: (item[0][1], item[0][2], item[0][3] is not None, item[0][3] or 0))
        return [_row(key, totals) for key, totals in chosen]


_VALUE_NAMES = {"queue": "queueId", "tag": "tag", "hour": "hour", "host": "host"}


def _row(key: GroupKey, totals: GroupTotals) -> dict[str, Any]:
    kind, broker_name, topic, value = key
    rate = totals.messages_per_second
    named = {} if kind == "topic" else {_VALUE_NAMES[kind]: value}
    return {
        "brokerName": broker_name,
        "topic": topic,
        **named,
        "messages": totals.messages,
        "storedBytes": totals.stored_bytes,
        "bodyBytes": totals.body_bytes,
        "bodyP50": totals.body_size_at(0.5),
        "bodyP99": totals.body_size_at(0.99),
        "messagesPerSecond": None if rate is None else round(rate, 3),
        "oldestTimestamp": totals.first_ms,
        "newestTimestamp": totals.last_ms,
    }


def count_logs(
    run: Runner,
    stores: Sequence[BrokerStore],
    *,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    check_crc: bool = False,
    fail_on_damage: bool = True,
    progress: PhaseProgress | None = None,
) -> LogStatistics:
    """Count all messages in the logs of the given stores."""
    partitions: list[LogPartition] = []
    for store in stores:
        with StoreSnapshot(store) as snapshot:
            partitions += plan_whole_log(snapshot, split_bytes, fail_on_damage=fail_on_damage)
    tasks = [StatsTask(partition, check_crc, fail_on_damage) for partition in partitions]
    log_bytes = total_bytes(partitions)
    reports = run(count_range, tasks, progress=phase_of(progress, "counting", log_bytes), name="statistics")
    groups: dict[GroupKey, GroupTotals] = {}
    for task, report in zip(tasks, reports, strict=True):
        for key, totals in _groups_of(report, task.partition.broker_name):
            groups.setdefault(key, GroupTotals()).add(totals)
            if key[0] == "queue":
                groups.setdefault(("topic", key[1], key[2], None), GroupTotals()).add(totals)
    return LogStatistics(groups, sum(report["messages"] for report in reports), log_bytes)


def count_range(task: StatsTask) -> TaskReport:
    """Count one partition in a worker."""
    partition = task.partition
    tally = Tally()
    counted = list(chain.from_iterable(scan_partition(tally.count, partition, check_crc=task.check_crc)))
    check_end(partition, tally.ended, fail_on_damage=task.fail_on_damage)
    parts = [_as_report(totals) for totals in (*counted, *tally.take())]
    return {"parts": parts, "messages": tally.message_count, "scanned_bytes": partition.stop - partition.start}


def _as_report(counted: Counted) -> dict[str, Any]:
    sums = counted.sums
    rows, buckets = np.nonzero(sums.histogram)
    values = [value.hex() if isinstance(value, bytes) else value for value in counted.values]
    return {
        "kind": counted.kind,
        "topics": counted.topics,
        "values": values,
        "sums": [column.tolist() for column in sums[:5]],
        "histogram": [rows.tolist(), buckets.tolist(), sums.histogram[rows, buckets].tolist()],
    }


def _groups_of(report: TaskReport, broker_name: str) -> Iterator[tuple[GroupKey, GroupTotals]]:
    for part in report["parts"]:
        totals = [GroupTotals(*sums) for sums in zip(*part["sums"], strict=True)]
        for row, bucket, count in zip(*part["histogram"], strict=True):
            totals[row].histogram[bucket] = count
        kind = part["kind"]
        for topic, value, group in zip(part["topics"], part["values"], totals, strict=True):
            yield (kind, broker_name, topic, _value(kind, value)), group


def _value(kind: str, value: Any) -> Any:
    if kind == "hour":
        return value * HOUR_MS
    return Host(bytes.fromhex(value), 0).ip if kind == "host" else value


def busiest(rows: Iterable[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return the rows with the most messages."""
    return sorted(rows, key=lambda row: -row["messages"])[:count]
