"""Traffic metrics: messages in and out, dead letters and transactions, by topic and group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orbitlog.broker.metrics.group_names import is_system, is_system_topic
from orbitlog.broker.metrics.message_counts import MessageCounts
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.statistics import KEYS_MAX
from orbitlog.formats.names import DLQ_PREFIX
from orbitlog.observe import metric_table as table
from orbitlog.observe.metric import PAUSE, Collected, Family, Histogram, Metric, Row, Value

_STEP = 500


class TrafficMetrics:
    """Counts dead letters and ends of transactions, and reads them together with the broker's own statistics."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.stored: dict[tuple[str, str], MessageCounts] = {}
        self.halves: dict[str, int] = {}
        self._dead_letters: dict[tuple[str, str], int] = {}
        self._ends: dict[tuple[str, bool], int] = {}
        self._finish_s: dict[str, Histogram] = {}
        self.on_forget: Callable[[], None] = lambda: None
        """Called before series are dropped: one of them may be kept for the next message."""

    def note_dead_letter(self, topic: str, group: str) -> None:
        """Count a dead letter."""
        _add(self._dead_letters, (topic, group))

    def note_end(self, topic: str, is_commit: bool, born_ms: int) -> None:
        """Count the end of a transaction."""
        _add(self._ends, (topic, is_commit))
        if self.halves.get(topic):
            self.halves[topic] -= 1
        if is_commit and (topic in self._finish_s or len(self._finish_s) < KEYS_MAX):
            histogram = self._finish_s.setdefault(topic, Histogram(table.FINISH_LATENCY.buckets))
            histogram.observe(max(self._state.now_ms() - born_ms, 0) // 1000)

    def _forget_deleted(self) -> None:
        """Drop the series of topics that were deleted; statistics forget them as well."""
        self.on_forget()
        find = self._state.topics.find
        tables: tuple[dict[Any, Any], ...] = (self.stored, self._dead_letters, self._ends)
        for counts in tables:
            for key in [key for key in counts if find(key[0]) is None]:
                del counts[key]
        for topic in [topic for topic in (*self.halves, *self._finish_s) if find(topic) is None]:
            self.halves.pop(topic, None)
            self._finish_s.pop(topic, None)

    def read(self, limit: int) -> Collected:
        """Yield the families."""
        self._forget_deleted()
        yield PAUSE
        yield from self._read_stored(limit)
        yield from self._read_delivered(limit)
        dead = [
            Row(table.SEND_TO_DLQ.text(group, topic, is_system(topic, group)), count)
            for (topic, group), count in self._dead_letters.items()
        ]
        yield Family(table.SEND_TO_DLQ, dead)
        for metric, is_commit in ((table.COMMIT_MESSAGES, True), (table.ROLLBACK_MESSAGES, False)):
            ends = [Row(metric.text(topic), count) for (topic, kind), count in self._ends.items() if kind is is_commit]
            yield Family(metric, ends)
        yield Family(table.HALF_MESSAGES, [Row(table.HALF_MESSAGES.text(topic), n) for topic, n in self.halves.items()])
        finished = [Row(table.FINISH_LATENCY.text(topic), histogram) for topic, histogram in self._finish_s.items()]
        yield Family(table.FINISH_LATENCY, finished)
        yield from self._read_letters(limit)

    def _read_stored(self, limit: int) -> Collected:
        # Label texts are the same in all three families, and made once.
        labelled: list[tuple[str, MessageCounts]] = []
        for number, ((topic, kind), counts) in enumerate(list(self.stored.items())):
            labelled.append((table.MESSAGES_IN.text(topic, kind, is_system_topic(topic)), counts))
            if number % _STEP == _STEP - 1:
                yield PAUSE
        values: tuple[tuple[Metric, Callable[[MessageCounts], Value]], ...] = (
            (table.MESSAGES_IN, lambda counts: counts.messages),
            (table.THROUGHPUT_IN, lambda counts: counts.size_bytes),
            (table.MESSAGE_SIZE, lambda counts: counts.sizes),
        )
        for metric, value in values:
            yield Family(metric, [Row(labels, value(counts)) for labels, counts in labelled])

    def _read_delivered(self, limit: int) -> Collected:
        labelled = []
        for number, ((topic, group), counters) in enumerate(list(self._state.statistics.delivered.items())):
            labelled.append((table.MESSAGES_OUT.text(topic, group, is_system(topic, group)), counters))
            if number % _STEP == _STEP - 1:
                yield PAUSE
        for metric, index in ((table.MESSAGES_OUT, 0), (table.THROUGHPUT_OUT, 1)):
            yield Family(metric, [Row(labels, counters[index].total) for labels, counters in labelled])

    def _read_letters(self, limit: int) -> Collected:
        state = self._state
        groups = [topic.removeprefix(DLQ_PREFIX) for topic in state.topics.table if topic.startswith(DLQ_PREFIX)]
        rows = []
        for number, group in enumerate(groups[:limit]):
            if number % _STEP == _STEP - 1:
                yield PAUSE
            topic = f"{DLQ_PREFIX}{group}"
            stored = state.max_offset(topic, 0) - max(state.min_offset(topic, 0), 0)
            rows.append(Row(table.DEAD_LETTERS.text(group), max(stored, 0)))
        yield Family(table.DEAD_LETTERS, rows, max(len(groups) - limit, 0))


def _add(counts: dict[Any, int], key: tuple[str, str | bool]) -> None:
    if key in counts or len(counts) < KEYS_MAX:
        counts[key] = counts.get(key, 0) + 1
