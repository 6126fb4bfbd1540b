"""Consumer lag, pending delayed messages and pending transactions, from queue bounds and the tables in config/.

Reads no log except operation messages. The lag of a group on a queue is the number of messages from the group's next
offset on; as in brokers, a queue that a group never consumed from is not listed. Delayed messages wait in the queue of
their level; half messages wait until an operation message names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from orbitlog.errors import FormatError
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.tables.config_files import choose_config
from orbitlog.formats.tables.offset_tables import (
    ConsumerOffsets,
    DelayOffsets,
    TopicGroup,
    decode_delay_offsets,
)
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.pipeline.sources.queue_scan import QueueScan, ScanRules
from orbitlog.pipeline.sources.read_plan import QueueRange, shape_of
from orbitlog.pipeline.sources.source_options import Subscription
from orbitlog.pipeline.sources.store_snapshot import QueueBounds, StoreSnapshot
from orbitlog.pipeline.sources.topic_offsets import QueueKey
from orbitlog.storefiles.config_reading import stored_table
from orbitlog.storefiles.confined.regular_files import read_below
from orbitlog.storefiles.offset_files import offsets_file
from orbitlog.storefiles.rocksdb.databases import has_binding
from orbitlog.storefiles.store_contents import IN_ROCKSDB, READABLE, Part, refuse_reading

T = TypeVar("T")
_EVERY_TOPIC = Subscription(pattern=".*")


@dataclass(frozen=True, slots=True)
class StoreProgress:
    """Rows of five small tables."""

    lag: list[dict[str, Any]]
    delays: list[dict[str, Any]]
    transactions: list[dict[str, Any]]
    retries: list[dict[str, Any]]
    dead_letters: list[dict[str, Any]]


def read_progress(store: BrokerStore) -> StoreProgress:
    """Read the progress of one store."""
    refuse_reading(Path(store.root), Part.TABLES, except_for=READABLE | (IN_ROCKSDB if has_binding() else frozenset()))
    with StoreSnapshot(store) as snapshot:
        bounds = {key: snapshot.bounds(key.topic, key.queue_id) for key in snapshot.queue_keys(_EVERY_TOPIC)}
        file = offsets_file(Path(store.root))
        offsets: ConsumerOffsets = _config(store, file.name, file.decode) or ConsumerOffsets()
        delays = _config(store, "delayOffset.json", decode_delay_offsets) or DelayOffsets()
        return StoreProgress(
            lag=list(_lag(store.broker_name, bounds, offsets.offsets)),
            delays=list(_delays(snapshot, bounds, delays)),
            transactions=list(_transactions(snapshot, bounds, offsets)),
            retries=list(_message_counts(bounds, names.RETRY_PREFIX)),
            dead_letters=list(_message_counts(bounds, names.DLQ_PREFIX)),
        )


def _config(store: BrokerStore, name: str, decode: Callable[[str], T]) -> T | None:
    path = Path(store.root) / tree.CONFIG / name
    stored = stored_table(path)
    if stored is not None:
        return decode(stored.decode())
    backup = path.with_name(name + tree.BACKUP_SUFFIX)
    read = [read_below(Path(store.root), file) for file in (path, backup)]
    chosen = choose_config(read[0], read[1], decode)
    return None if chosen is None else chosen.value


def _lag(
    broker_name: str, bounds: Mapping[QueueKey, QueueBounds], offsets: Mapping[TopicGroup, Mapping[int, int]]
) -> Iterator[dict[str, Any]]:
    for (topic, group), queues in sorted(offsets.items()):
        for queue_id, next_offset in sorted(queues.items()):
            queue = bounds.get(QueueKey(topic, broker_name, queue_id), QueueBounds(0, 0))
            yield {
                "brokerName": broker_name,
                "group": group,
                "topic": topic,
                "queueId": queue_id,
                "nextOffset": next_offset,
                "latestOffset": queue.latest,
                # Messages that retention deleted do not count.
                "lag": max(queue.latest - max(next_offset, queue.earliest), 0),
            }


def _delays(
    snapshot: StoreSnapshot, bounds: Mapping[QueueKey, QueueBounds], delays: DelayOffsets
) -> Iterator[dict[str, Any]]:
    for key, queue in sorted(bounds.items()):
        if key.topic == names.SCHEDULE_TOPIC:
            next_offset = max(delays.offsets.get(key.queue_id + 1, 0), queue.earliest)
            pending = max(queue.latest - next_offset, 0)
            yield {
                "brokerName": key.broker_name,
                "level": key.queue_id + 1,
                "pending": pending,
                "nextDueTimestamp": _due_ms(snapshot, key, next_offset) if pending else None,
            }


def _due_ms(snapshot: StoreSnapshot, key: QueueKey, queue_offset: int) -> int | None:
    """Return the delivery time in a delayed message's unit; None for a tag hash, which some 4.9 rebuilds store."""
    try:
        entry = snapshot.unit(key.topic, key.queue_id, queue_offset)
    except FormatError:
        return None
    return entry.tags_code if entry is not None and entry.tags_code > INT_MAX else None


def _transactions(
    snapshot: StoreSnapshot, bounds: Mapping[QueueKey, QueueBounds], offsets: ConsumerOffsets
) -> Iterator[dict[str, Any]]:
    broker_name = snapshot.store.broker_name
    progress = offsets.offsets.get(TopicGroup(names.HALF_TOPIC, names.TRANSACTION_GROUP), {})
    done_progress = offsets.offsets.get(TopicGroup(names.OP_HALF_TOPIC, names.TRANSACTION_GROUP), {})
    for key, queue in sorted(bounds.items()):
        if key.topic == names.HALF_TOPIC:
            first = max(progress.get(key.queue_id, 0), queue.earliest)
            done_key = QueueKey(names.OP_HALF_TOPIC, broker_name, key.queue_id)
            done_bounds = bounds.get(done_key, QueueBounds(0, 0))
            done_first = max(done_progress.get(key.queue_id, 0), done_bounds.earliest)
            done = _decided(snapshot, key.queue_id, done_first, done_bounds.latest)
            waiting = range(first, queue.latest)
            yield {
                "brokerName": broker_name,
                "queueId": key.queue_id,
                "halfMessages": queue.latest - queue.earliest,
                "pending": len(waiting) - sum(number in waiting for number in done),
            }


def _decided(snapshot: StoreSnapshot, queue_id: int, start: int, stop: int) -> set[int]:
    """Return the half messages that operation messages name: one offset per body, or several with commas (5.x)."""
    shape = shape_of(snapshot)
    scan = QueueScan(["topic", "queue_id", "queue_offset", "body"], ScanRules(fail_on_data_loss=False))
    decided: set[int] = set()
    if start < stop:
        for batch in scan.batches(QueueRange(shape, names.OP_HALF_TOPIC, queue_id, start, stop)):
            for body in batch.column("body").to_pylist():
                texts = (text.strip() for text in body.decode("ascii", "replace").split(","))
                decided |= {int(text) for text in texts if text.isdecimal() and len(text) < 20}
    return decided


def _message_counts(bounds: Mapping[QueueKey, QueueBounds], prefix: str) -> Iterator[dict[str, Any]]:
    counts: dict[tuple[str, str], int] = {}
    for key, queue in bounds.items():
        if key.topic.startswith(prefix):
            name = key.broker_name, key.topic
            counts[name] = counts.get(name, 0) + queue.latest - queue.earliest
    for (broker_name, topic), count in sorted(counts.items()):
        yield {"brokerName": broker_name, "topic": topic, "group": topic.removeprefix(prefix), "messages": count}
