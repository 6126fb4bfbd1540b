"""Store metrics: disk, log, flush, dispatch, replication and timers, read when metrics are collected."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator

from orbitlog.broker.delayed.timed_delivery import TIMER_QUEUE, TimedDelivery
from orbitlog.broker.pop.popped_queues import PoppedQueues
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.master_role import MasterRole
from orbitlog.broker.tables.statistics import KEYS_MAX
from orbitlog.formats import names
from orbitlog.observe import metric_table as table
from orbitlog.observe.metric import Family, Histogram, Row, single
from orbitlog.storefiles.disk import RealDisk

_OVERDUE_MAX = 1024


class StoreMetrics:
    """Measures flushes, and reads the marks of a store."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        # Changed by the thread that flushes and read by the event loop; a list item is assigned at once.
        self.flush_seconds = Histogram(table.FLUSH_SECONDS.buckets)
        self.group_commits = Histogram(table.GROUP_COMMIT_SIZE.buckets)

    def timed_flush(self, flush: Callable[[], int]) -> Callable[[], int]:
        """Return a flush that measures itself; it may be called in any thread."""

        def timed() -> int:
            started = time.perf_counter()
            flushed_to = flush()
            self.flush_seconds.observe(time.perf_counter() - started)
            return flushed_to

        return timed

    def read(self, _: int) -> Iterator[Family]:
        """Yield the families of the store."""
        state, store = self._state, self._state.store
        usage = RealDisk().usage(state.root)
        yield single(table.STORAGE_SIZE, usage.total_bytes - usage.free_bytes)
        yield single(table.FLUSH_BEHIND, max(store.written_to - store.flushed_to, 0))
        yield single(table.DISPATCH_BEHIND, max(store.written_to - store.dispatched_to, 0))
        first = store.read_at(store.min_physical_offset)
        if first is not None:
            yield single(table.RESERVE_TIME, max(state.now_ms() - first.store_timestamp_ms, 0))
        yield single(table.DISPATCH_LAG, max(store.written_to - store.dispatched_to, 0))
        yield single(table.LOG_MIN_OFFSET, store.min_physical_offset)
        yield single(table.LOG_MAX_OFFSET, store.written_to)
        yield single(table.LOG_FLUSHED_OFFSET, store.flushed_to)
        yield single(table.DISK_USED_RATIO, round(usage.used_ratio, 4))
        availability = store.availability
        yield single(table.DISK_REFUSES, int(bool(availability.full_disk)))
        yield single(table.READ_ONLY, int(bool(availability.failure)))
        yield single(table.DAMAGE, len(store.damage))
        yield single(table.FLUSH_SECONDS, self.flush_seconds)
        if self.group_commits.total:
            yield single(table.GROUP_COMMIT_SIZE, self.group_commits)


def replication_families(master: MasterRole) -> Iterator[Family]:
    """Yield the number of slaves, and the lag of the slowest."""
    slaves = [slave for slave in master.slaves if not slave.is_observer]
    yield single(table.REPLICAS, len(slaves))
    if slaves:
        yield single(table.REPLICA_LAG, max(slave.lag_bytes for slave in slaves))


class TimerMetrics:
    """Counts timer messages by topic, and reads the heap of those that wait."""

    def __init__(self, state: BrokerState, timed: TimedDelivery) -> None:
        self._state = state
        self._timed = timed
        self._waiting: dict[str, int] = {}
        self._loaded: dict[str, int] = {}
        self._delivered: dict[str, int] = {}
        self._delays: dict[str, Histogram] = {}

    def note_loaded(self, topic: str, delay_ms: int) -> None:
        """Count a timer message that waits from now on."""
        if topic not in self._loaded and len(self._loaded) >= KEYS_MAX:
            return
        self._loaded[topic] = self._loaded.get(topic, 0) + 1
        self._waiting[topic] = self._waiting.get(topic, 0) + 1
        self._delays.setdefault(topic, Histogram(table.DELAY_LATENCY.buckets)).observe(delay_ms // 1000)

    def note_left(self, topic: str, is_delivered: bool) -> None:
        """Count a timer message that no longer waits."""
        if self._waiting.get(topic):
            self._waiting[topic] -= 1
        if is_delivered and topic in self._loaded:
            self._delivered[topic] = self._delivered.get(topic, 0) + 1

    def read(self, _: int) -> Iterator[Family]:
        """Yield the families of timer messages."""
        now_ms = self._state.now_ms()
        count, first = self._timed.unloaded
        yield single(table.TIMER_ENQUEUE_LAG, count)
        stored_ms = self._state.store_time_ms(names.TIMER_TOPIC, TIMER_QUEUE, first) if count else -1
        yield single(table.TIMER_ENQUEUE_LATENCY, max(now_ms - stored_ms, 0) if stored_ms >= 0 else 0)
        wake_times = self._timed.wake_times_ms
        overdue = [wake_ms for wake_ms in wake_times if wake_ms < now_ms]
        yield single(table.TIMER_DEQUEUE_LAG, len(overdue))
        yield single(table.TIMER_DEQUEUE_LATENCY, now_ms - min(overdue) if overdue else 0)
        by_bound = [0] * (len(table.TIMER_BOUNDS_S) + 1)
        for wake_ms in wake_times:
            by_bound[bisect_left(table.TIMER_BOUNDS_S, max(wake_ms - now_ms, 0) / 1000)] += 1
        bounds = zip(table.TIMER_BOUNDS_S, by_bound, strict=False)
        yield Family(table.TIMER_SNAPSHOT, [Row(table.TIMER_SNAPSHOT.text(bound), n) for bound, n in bounds])
        for metric, counts in (
            (table.TIMING_MESSAGES, self._waiting),
            (table.TIMER_ENQUEUE, self._loaded),
            (table.TIMER_DEQUEUE, self._delivered),
        ):
            yield Family(metric, [Row(metric.text(topic), number) for topic, number in counts.items()])
        delays = [Row(table.DELAY_LATENCY.text(topic), histogram) for topic, histogram in self._delays.items()]
        yield Family(table.DELAY_LATENCY, delays)


def pop_families(popped: PoppedQueues, now_ms: int) -> Iterator[Family]:
    """Yield the families of POP consumption."""
    yield single(table.POP_OFFSET_BUFFER, 0)
    yield single(table.POP_CHECKPOINT_BUFFER, 0)
    overdue = popped.expired(now_ms, _OVERDUE_MAX)
    yield Family(table.POP_REVIVE_LAG, (Row(table.POP_REVIVE_LAG.text(0), len(overdue)),))
    late_ms = max((now_ms - expired.flight.visible_ms for expired in overdue), default=0)
    yield Family(table.POP_REVIVE_LATENCY, (Row(table.POP_REVIVE_LATENCY.text(0), late_ms),))
