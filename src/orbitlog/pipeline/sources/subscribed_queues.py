"""Subscribed queues of stores or a cluster: resolves positions (marks, offsets, times) to queue offsets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.rate_limit import limit_bytes
from orbitlog.pipeline.sources.read_plan import ClusterShape, QueueRange, StoreShape, plan_ranges, plan_tasks, shape_of
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable, DataLoss
from orbitlog.pipeline.sources.source_options import Position, TopicOptions
from orbitlog.pipeline.sources.store_snapshot import QueueBounds, StoreSnapshot, check_topics
from orbitlog.pipeline.sources.topic_offsets import ANY_BROKER, EARLIEST, LATEST, Offsets, QueueKey

_SHOWN_MAX = 3


class QueueDirectory(Protocol):
    """Where queues are read from: stores, or the brokers of a cluster."""

    bounds: dict[QueueKey, QueueBounds]

    @property
    def shapes(self) -> Mapping[str, StoreShape] | Mapping[str, ClusterShape]: ...
    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int: ...
    def limit_bytes(self, start: Mapping[QueueKey, int], end: Offsets, bytes_max: int) -> Offsets: ...
    def why_missing(self, key: QueueKey) -> str | None: ...
    def is_of_replica(self, key: QueueKey) -> bool: ...
    def lost_ends(self) -> list[str]: ...
    def placed(self, ranges: Sequence[QueueRange]) -> list[QueueRange]: ...


class StoreQueues:
    """The bounds of all subscribed queues of stores, from one snapshot of each."""

    def __init__(self, options: TopicOptions, snapshots: Mapping[str, StoreSnapshot]) -> None:
        self._snapshots = snapshots
        check_topics(list(snapshots.values()), options.subscription)
        self.bounds: dict[QueueKey, QueueBounds] = {
            key: snapshot.bounds(key.topic, key.queue_id)
            for snapshot in snapshots.values()
            for key in snapshot.queue_keys(options.subscription)
        }

    @property
    def shapes(self) -> dict[str, StoreShape]:
        return {name: shape_of(snapshot) for name, snapshot in self._snapshots.items()}

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        return self._snapshots[key.broker_name].offset_at(key.topic, key.queue_id, timestamp_ms)

    def limit_bytes(self, start: Mapping[QueueKey, int], end: Offsets, bytes_max: int) -> Offsets:
        return limit_bytes(start, end, bytes_max, self._sizes_from)

    def _sizes_from(self, key: QueueKey, start: int, stop: int, bytes_max: int) -> list[int]:
        return self._snapshots[key.broker_name].sizes_from(key.topic, key.queue_id, start, stop, bytes_max)

    def why_missing(self, key: QueueKey) -> str | None:
        return None

    def is_of_replica(self, key: QueueKey) -> bool:
        return False

    def lost_ends(self) -> list[str]:
        return [lost for snapshot in self._snapshots.values() if (lost := snapshot.lost_end()) is not None]

    def placed(self, ranges: Sequence[QueueRange]) -> list[QueueRange]:
        return list(ranges)


class SubscribedQueues:
    """The bounds of all subscribed queues, and the positions of a query in them."""

    def __init__(self, options: TopicOptions, directory: QueueDirectory) -> None:
        self._options = options
        self._directory = directory
        self.bounds = directory.bounds

    @property
    def earliest(self) -> Offsets:
        return {key: bounds.earliest for key, bounds in self.bounds.items()}

    @property
    def latest(self) -> Offsets:
        return {key: bounds.latest for key, bounds in self.bounds.items()}

    @property
    def shapes(self) -> Mapping[str, StoreShape] | Mapping[str, ClusterShape]:
        return self._directory.shapes

    def plan(self, start: Mapping[QueueKey, int], end: Offsets) -> list[tuple[QueueRange, ...]]:
        """Return the tasks that read from `start` to `end`."""
        ranges = self._directory.placed(plan_ranges(start, end, self.shapes))
        return plan_tasks(ranges, self._options.partitions_min)

    def start(self) -> Offsets:
        return self._resolve(self._options.start, "starting")

    def end(self) -> Offsets:
        return self._resolve(self._options.end, "ending")

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        return self._directory.offset_at(key, timestamp_ms)

    def limit_bytes(self, start: Mapping[QueueKey, int], end: Offsets, bytes_max: int) -> Offsets:
        """Return an end about `bytes_max` bytes of records after `start`."""
        return self._directory.limit_bytes(start, end, bytes_max)

    def _resolve(self, position: Position, which: str) -> Offsets:
        if position.mark is not None:
            return self.earliest if position.mark == EARLIEST else self.latest
        if position.timestamp_ms is not None:
            times = dict.fromkeys(self.bounds, position.timestamp_ms)
            return {key: self._at(key, time_ms, which) for key, time_ms in times.items()}
        given = self._with_brokers(position.offsets or position.timestamps_ms)
        option = f"{which}Offsets" + ("" if position.offsets else "ByTimestamp")
        self._check_all_given(given, option)
        if position.timestamps_ms:
            return {key: self._at(key, given[key], which) for key in self.bounds}
        marks = {EARLIEST: self.earliest, LATEST: self.latest}
        return {key: marks[given[key]][key] if given[key] in marks else given[key] for key in self.bounds}

    def _with_brokers(self, given: Offsets) -> Offsets:
        """Give queues without a broker name that of the only broker of their topic."""
        result: Offsets = {}
        for key, number in given.items():
            broker_name = key.broker_name
            if broker_name == ANY_BROKER:
                brokers = sorted({queue.broker_name for queue in self.bounds if queue.topic == key.topic})
                if len(brokers) > 1:
                    raise OptionError(
                        f"offsets of topic {key.topic!r} must name the broker, one of {', '.join(brokers)}:"
                        f' {{"{key.topic}":{{"{brokers[0]}":{{"0":23}}}}}}'
                    )
                broker_name = brokers[0] if brokers else ANY_BROKER
            result[key._replace(broker_name=broker_name)] = number
        return result

    def _check_all_given(self, given: Offsets, option: str) -> None:
        unknown = [key for key in given if key not in self.bounds]
        if unknown:
            raise OptionError(f"{option} names {_shown(unknown)}, which does not exist or is not subscribed")
        if missing := [key for key in self.bounds if key not in given]:
            raise OptionError(f"{option} lacks {_shown(missing)}; give each queue an offset, -2 for the earliest")

    def _at(self, key: QueueKey, timestamp_ms: int, which: str) -> int:
        queue_offset = self.offset_at(key, timestamp_ms)
        is_too_late = which == "starting" and queue_offset == self.bounds[key].latest
        if is_too_late and not self._options.too_late_is_latest:
            raise OptionError(
                f"{key} has no message stored at or after {timestamp_ms} ms;"
                " startingOffsetsByTimestampStrategy=latest starts at its end instead"
            )
        return queue_offset

    def clip_to_existing(self, start: Mapping[QueueKey, int], end: Offsets) -> tuple[Offsets, Offsets]:
        """Return the part of the range that still exists; raise `DataLoss` for the rest unless failOnDataLoss=false.

        Lost are offsets outside of a queue's bounds, and the end of a log without its last files. Offsets that a filter
        excludes or that have no message are not.
        """
        kept_start, kept_end = dict(start), dict(end)
        for sentence in self._directory.lost_ends():
            self._lost(sentence)
        for key, stop in end.items():
            bounds = self.bounds.get(key)
            first = start.get(key, 0)
            if bounds is None:
                if first < stop:
                    self._check_deleted(key)
                    self._lost(f"{key} was deleted, offsets {first} to {stop} were requested")
                kept_end[key] = kept_start[key] = stop
                continue
            if first < stop and first < bounds.earliest and key in start:
                self._lost(f"{key} now starts at {bounds.earliest}, offset {first} was requested")
            if max(first, stop) > bounds.latest:
                self._check_lag(key, first, stop)
            if max(first, stop) > bounds.latest and not self._directory.is_of_replica(key):
                self._lost(f"{key} ends at {bounds.latest}, offset {max(first, stop)} was requested")
            kept_end[key] = min(stop, bounds.latest)
            kept_start[key] = min(max(first, bounds.earliest), kept_end[key])
        return kept_start, kept_end

    def _check_deleted(self, key: QueueKey) -> None:
        """Raise `BrokerUnavailable` if a queue may exist although it was not found: its messages are not lost."""
        if (why := self._directory.why_missing(key)) is not None:
            raise BrokerUnavailable(f"{key} cannot be read now: {why}; restart the query when the broker is back")

    def _check_lag(self, key: QueueKey, first: int, stop: int) -> None:
        """Raise `BrokerUnavailable` if a replica, asked for the master, does not have the range yet."""
        if self._directory.is_of_replica(key) and first < stop:
            raise BrokerUnavailable(
                f"{key}: its master does not answer, and its replica ends at {self.bounds[key].latest},"
                f" offset {stop} was requested; restart the query when the master is back"
            )

    def _lost(self, sentence: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{sentence}; option failOnDataLoss=false reads what remains")
        warnings.warn(f"data was lost: {sentence}", stacklevel=2)


def _shown(keys: list[QueueKey]) -> str:
    more = len(keys) - _SHOWN_MAX
    return ", ".join(map(str, sorted(keys)[:_SHOWN_MAX])) + (f" and {more} more" if more > 0 else "")


@contextmanager
def open_subscribed_queues(options: TopicOptions, *, must_exist: bool = True) -> Iterator[SubscribedQueues]:
    """Yield the subscribed queues; files stay open for searches within the block.

    In a cluster, `must_exist` demands that every topic that is subscribed by name exists and all brokers answer.
    """
    if options.cluster is not None:
        from orbitlog.pipeline.network.cluster_queues import ClusterQueues
        from orbitlog.pipeline.network.cluster_session import session_of

        cluster = ClusterQueues(options, session_of(options.cluster), must_exist=must_exist)
        if not options.stores:
            yield SubscribedQueues(options, cluster)
            return
        from orbitlog.pipeline.network.mixed_queues import MixedQueues

        with _snapshots(options) as snapshots:
            yield SubscribedQueues(options, MixedQueues(cluster, snapshots, must_exist=must_exist))
        return
    with _snapshots(options) as snapshots:
        yield SubscribedQueues(options, StoreQueues(options, snapshots))


@contextmanager
def _snapshots(options: TopicOptions) -> Iterator[dict[str, StoreSnapshot]]:
    with ExitStack() as stack:
        yield {store.broker_name: stack.enter_context(StoreSnapshot(store)) for store in options.stores}
