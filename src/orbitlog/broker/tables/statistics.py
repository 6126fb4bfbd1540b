"""Broker statistics: counters by name and key, with sums and rates over the last minute, hour and day.

Mirrors `BrokerStatsManager` and `StatsItem`. Counting is two additions; call `sample` every few seconds. Pure: callers
pass the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from orbitlog.broker.tables.observers import Observers

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

SAMPLE_MS = 10_000
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
# Sampling interval of each window: a window keeps a few hundred samples at most.
_STEPS = ((_MINUTE_MS, SAMPLE_MS), (_HOUR_MS, 10 * 60_000), (_DAY_MS, _HOUR_MS))
KEYS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Window:
    """Counts of one time window: sum, per second, and per event."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0


@dataclass(slots=True)
class _Sample:
    at_ms: int
    total: int
    times: int


@dataclass(slots=True)
class Counter:
    """One counter: the sum `total` over a number of events."""

    total: int = 0
    times: int = 0
    _samples: tuple[deque[_Sample], ...] = field(default_factory=lambda: tuple(deque() for _ in _STEPS))

    def add(self, amount: int) -> None:
        self.total += amount
        self.times += 1

    def sample(self, now_ms: int) -> None:
        for (window_ms, step_ms), samples in zip(_STEPS, self._samples, strict=True):
            if not samples:
                # Counted before the first sample: assume zero one interval ago.
                samples.append(_Sample(now_ms - step_ms, 0, 0))
            if now_ms - samples[-1].at_ms >= step_ms:
                samples.append(_Sample(now_ms, self.total, self.times))
                while len(samples) > 1 and now_ms - samples[1].at_ms >= window_ms:
                    samples.popleft()

    def windows(self, now_ms: int) -> tuple[Window, Window, Window]:
        """Return the last minute, hour and day."""
        minute, hour, day = (self._window(samples, now_ms) for samples in self._samples)
        return minute, hour, day

    def _window(self, samples: deque[_Sample], now_ms: int) -> Window:
        first = samples[0] if samples else _Sample(now_ms, 0, 0)
        amount, times, elapsed_ms = self.total - first.total, self.times - first.times, now_ms - first.at_ms
        tps = amount * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0
        return Window(amount, tps, amount / times if times else 0.0)


class Statistics:
    """Counters by name and key, and the totals of the broker."""

    def __init__(self, now_ms: int) -> None:
        self.started_ms = now_ms
        self._counters: dict[tuple[str, str], Counter] = {}
        self._put_counters: dict[str, tuple[Counter, Counter]] = {}
        self._get_counters: dict[tuple[str, str], tuple[Counter, Counter]] = {}
        self.put_messages, self.get_messages, self.get_requests_found, self.get_requests_missed = (
            Counter(),
            Counter(),
            Counter(),
            Counter(),
        )
        self.put_bytes = 0
        self.put_today = DayTotals()
        self.get_today = DayTotals()
        self.observers = Observers()

    def add(self, name: str, key: str, amount: int) -> None:
        """Count something."""
        self._counter(name, key).add(amount)

    def _counter(self, name: str, key: str) -> Counter:
        counter = self._counters.get((name, key))
        if counter is None:
            counter = Counter()
            if len(self._counters) < KEYS_MAX:  # names come from clients; those past the limit are not counted
                self._counters[name, key] = counter
        return counter

    def find(self, name: str, key: str) -> Counter | None:
        return self._counters.get((name, key))

    def note_put(self, topic: str, count: int, size_bytes: int, times: int = 1) -> None:
        """Count stored messages, as `times` events."""
        total = self.put_messages
        total.total += count
        total.times += times
        self.put_bytes += size_bytes
        # Looked up together and incremented in place: this runs for every message.
        counters = self._put_counters.get(topic)
        if counters is None:
            counters = self._put_counters[topic] = (
                self._counter(TOPIC_PUT_NUMS, topic),
                self._counter(TOPIC_PUT_SIZE, topic),
            )
        messages, size = counters
        messages.total += count
        messages.times += times
        size.total += size_bytes
        size.times += times

    def note_get(self, topic: str, group: str, count: int, size_bytes: int) -> None:
        """Count messages sent to a consumer."""
        self.get_messages.add(count)
        self.get_requests_found.add(1)
        counters = self._get_counters.get((topic, group))
        if counters is None:
            key = f"{topic}@{group}"
            counters = self._counter(GROUP_GET_NUMS, key), self._counter(GROUP_GET_SIZE, key)
            if len(self._get_counters) < KEYS_MAX:
                self._get_counters[topic, group] = counters
        messages, size = counters
        messages.add(count)
        size.add(size_bytes)

    @property
    def delivered(self) -> Mapping[tuple[str, str], tuple[Counter, Counter]]:
        """Messages and bytes delivered since the start, by topic and group."""
        return self._get_counters

    def sample(self, now_ms: int, local_day: int) -> None:
        for counter in (self.put_messages, self.get_messages, self.get_requests_found, self.get_requests_missed):
            counter.sample(now_ms)
        for counter in self._counters.values():
            counter.sample(now_ms)
        self.put_today.turn(local_day, self.put_messages.total)
        self.get_today.turn(local_day, self.get_messages.total)

    def forget_topic(self, topic: str) -> None:
        self._put_counters.pop(topic, None)
        for read in [read for read in self._get_counters if read[0] == topic]:
            del self._get_counters[read]
        for name, key in list(self._counters):
            if key == topic or key.startswith(f"{topic}@"):
                del self._counters[name, key]


@dataclass(slots=True)
class DayTotals:
    """A total as of the last two midnights."""

    day: int = -1
    this_morning: int = 0
    yesterday_morning: int = 0

    def turn(self, local_day: int, total: int) -> None:
        if self.day not in (-1, local_day):
            self.yesterday_morning, self.this_morning = self.this_morning, total
        self.day = local_day
