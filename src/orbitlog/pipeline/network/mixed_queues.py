"""Mixed queues: messages that a mounted store has are read from its files, the rest from the broker.

The broker decides where a queue ends. A store may start earlier than its broker, for example if it was archived before
retention deleted its segments. Before files are used, one message of each queue is compared with the broker's.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orbitlog.errors import FormatError
from orbitlog.formats.records.message import decode_message
from orbitlog.pipeline.network.cluster_queues import ClusterQueues
from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.read_plan import ClusterShape, QueueRange, shape_of
from orbitlog.pipeline.sources.store_snapshot import QueueBounds, StoreSnapshot
from orbitlog.pipeline.sources.topic_offsets import Offsets, QueueKey


class MixedQueues:
    """The queues of a cluster, and the part of each that the store of its broker has."""

    def __init__(self, cluster: ClusterQueues, snapshots: Mapping[str, StoreSnapshot], *, must_exist: bool) -> None:
        self._cluster, self._snapshots = cluster, snapshots
        if must_exist:
            self._check_names()
        self._of_files = dict(self._parts())
        self.bounds = {
            key: QueueBounds(min(bounds.earliest, self._of_files[key].earliest), bounds.latest)
            if key in self._of_files
            else bounds
            for key, bounds in cluster.bounds.items()
        }

    def _check_names(self) -> None:
        brokers = {key.broker_name for key in (*self._cluster.bounds, *self._cluster.unavailable)}
        for name, snapshot in self._snapshots.items():
            if brokers and name not in brokers:
                raise OptionError(
                    f"store {snapshot.store.root} has the name {name!r}, but the brokers of the topics are"
                    f" {', '.join(sorted(brokers))}; give storePath=BROKER=PATH"
                )

    def _parts(self) -> Sequence[tuple[QueueKey, QueueBounds]]:
        """Return the offsets of each queue that its store has and its broker does not contradict."""
        parts = []
        for key, (earliest, latest) in self._cluster.bounds.items():
            snapshot = self._snapshots.get(key.broker_name)
            if snapshot is None or not snapshot.has_queue(key.topic, key.queue_id):
                continue
            stored = snapshot.bounds(key.topic, key.queue_id)
            stop = min(stored.latest, latest)
            if stop > max(stored.earliest, earliest):
                parts.append((key, QueueBounds(stored.earliest, stop)))
            elif stop > stored.earliest:
                warnings.warn(
                    f"{key}: its store ends at {stop}, before the first message of its broker at {earliest};"
                    " the store is not read",
                    stacklevel=2,
                )
        return parts

    @property
    def shapes(self) -> Mapping[str, ClusterShape]:
        return self._cluster.shapes

    def is_of_replica(self, key: QueueKey) -> bool:
        return self._cluster.is_of_replica(key)

    def lost_ends(self) -> list[str]:
        return [lost for snapshot in self._snapshots.values() if (lost := snapshot.lost_end()) is not None]

    def why_missing(self, key: QueueKey) -> str | None:
        return self._cluster.why_missing(key)

    def limit_bytes(self, start: Mapping[QueueKey, int], end: Offsets, bytes_max: int) -> Offsets:
        return self._cluster.limit_bytes(start, end, bytes_max)

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time, or the end of the queue."""
        if key in self._of_files:
            found = self._snapshots[key.broker_name].offset_at(key.topic, key.queue_id, timestamp_ms)
            if found < self._of_files[key].latest:
                return found
        return self._cluster.offset_at(key, timestamp_ms)

    def placed(self, ranges: Sequence[QueueRange]) -> list[QueueRange]:
        """Cut ranges into parts of stores and of brokers; raise `OptionError` for the store of another broker."""
        return [part for queue_range in ranges for part in self._cut(queue_range)]

    def _cut(self, queue_range: QueueRange) -> list[QueueRange]:
        key = QueueKey(queue_range.topic, queue_range.shape.broker_name, queue_range.queue_id)
        stored = self._of_files.get(key)
        if stored is None or queue_range.start >= stored.latest or queue_range.stop <= stored.earliest:
            return [queue_range]
        self._check_store_of(key, stored.latest - 1)
        shape = shape_of(self._snapshots[key.broker_name])
        first, last = max(queue_range.start, stored.earliest), min(queue_range.stop, stored.latest)
        parts = (
            replace(queue_range, stop=first),
            replace(queue_range, shape=shape, start=first, stop=last),
            replace(queue_range, start=last),
        )
        return [part for part in parts if part.message_count]

    def _check_store_of(self, key: QueueKey, queue_offset: int) -> None:
        """Compare one message of a queue in the store with the broker's: physical offset, store time and id."""
        snapshot = self._snapshots[key.broker_name]
        served = self._cluster.record_at(key, queue_offset)
        stored = snapshot.record_at(key.topic, key.queue_id, queue_offset)
        if served is None or stored is None or _identity(served) != _identity(stored):
            raise OptionError(
                f"{key}: message {queue_offset} of store {snapshot.store.root} is not that of the broker;"
                " storePath must be the store of this broker or of a replica"
            )


def _identity(record: bytes) -> tuple[object, ...] | None:
    try:
        message = decode_message(record, check_crc=False)
    except FormatError:
        return None
    return message.physical_offset, message.queue_offset, message.store_timestamp_ms, message.body_crc
