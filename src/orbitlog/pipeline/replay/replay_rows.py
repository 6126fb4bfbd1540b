"""Replay rows: selects the messages to replay, maps their topics, and gives them the columns of the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from orbitlog.client.producer.outgoing import SHARDING_KEY
from orbitlog.pipeline.replay.replay_tables import ReplayError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TEXT = pa.string()
# Columns that a replay reads if the source has them, and the types that it casts them to.
SOURCE_COLUMNS: Mapping[str, pa.DataType] = {
    "topic": _TEXT,
    "brokerName": _TEXT,
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "body": pa.binary(),
    "tags": _TEXT,
    "keys": _TEXT,
    "uniqKey": _TEXT,
    "properties": pa.map_(_TEXT, _TEXT),
    "flag": pa.int32(),
    "storeTimestamp": pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """Which messages to replay, and into which topics; empty selections match everything."""

    topics: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None
    topic_map: tuple[tuple[str, str], ...] = ()
    to_topic: str | None = None
    keeps_queues: bool = False

    def target_of(self, topic: str | None) -> str | None:
        if self.to_topic is not None:
            return self.to_topic
        return dict(self.topic_map).get(topic, topic) if topic is not None else None


def sink_schema(rules: ReplayRules) -> StructType:
    """Return the schema of `sink_batch`, as the sink checks it."""
    sent = ("topic", "body", "tags", "keys", "properties", "flag")
    kinds = {name: SOURCE_COLUMNS[name] for name in sent}
    kinds |= {"queueId": pa.int32()} if rules.keeps_queues else {"shardingKey": _TEXT}
    kinds |= {"_fromTopic": _TEXT, "_fromBroker": _TEXT, "_fromQueueId": pa.int32(), "_fromQueueOffset": pa.int64()}
    return spark_schema(kinds)


def spark_schema(kinds: Mapping[str, pa.DataType]) -> StructType:
    """Return columns as a schema of Spark; needs no session, unlike a schema as text."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema(list(kinds.items())), prefer_timestamp_ntz=False)


def source_columns(batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    """Return the columns of a replay; absent ones are null. Raise `ReplayError` for a column of another type."""
    arrays: list[Any] = []
    names = set(batch.schema.names)
    if "body" not in names and "value" not in names:
        raise ReplayError(f"{where} has no column body (or value), which contains the messages")
    for name, kind in SOURCE_COLUMNS.items():
        given = "value" if name == "body" and "body" not in names else name
        if given not in names:
            arrays.append(pa.nulls(batch.num_rows, kind))
            continue
        column = batch.column(given)
        try:
            arrays.append(column if column.type.equals(kind) else column.cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise ReplayError(f"column {given} of {where} has type {column.type}, not {kind}") from None
    return pa.RecordBatch.from_arrays(arrays, names=list(SOURCE_COLUMNS))


def select_rows(batch: pa.RecordBatch, rules: ReplayRules) -> pa.RecordBatch:
    """Return the rows that the rules select."""
    wanted: list[Any] = []
    for name, values in (("topic", rules.topics), ("tags", rules.tags)):
        if values:
            wanted.append(pc.is_in(batch.column(name), value_set=pa.array(values, _TEXT)))
    if rules.keys:
        wanted.append(_has_key(batch, frozenset(rules.keys)))
    times = batch.column("storeTimestamp").cast(pa.int64())
    if rules.from_ms is not None:
        wanted.append(pc.greater_equal(times, rules.from_ms * 1000))
    if rules.to_ms is not None:
        wanted.append(pc.less(times, rules.to_ms * 1000))
    if not wanted:
        return batch
    mask = wanted[0]
    for other in wanted[1:]:
        mask = pc.and_kleene(mask, other)
    return batch.filter(pc.fill_null(mask, False))


def _has_key(batch: pa.RecordBatch, keys: frozenset[str]) -> pa.Array:
    """Return which rows have one of the keys, or one of them as their unique key."""
    pairs = zip(batch.column("keys").to_pylist(), batch.column("uniqKey").to_pylist(), strict=True)
    return pa.array([unique in keys or not keys.isdisjoint((text or "").split(" ")) for text, unique in pairs])


def sink_batch(batch: pa.RecordBatch, rules: ReplayRules) -> pa.RecordBatch:
    """Return selected rows with the columns of the sink, and their source position in columns that are not sent."""
    topics = batch.column("topic")
    columns = {
        "topic": pa.array([rules.target_of(topic) for topic in topics.to_pylist()], _TEXT),
        **{name: batch.column(name) for name in ("body", "tags", "keys", "properties", "flag")},
    }
    if rules.keeps_queues:
        columns["queueId"] = batch.column("queueId")
    else:
        # Messages that were sent in order keep their sharding key, and so their order within a task.
        columns["shardingKey"] = pc.map_lookup(batch.column("properties"), SHARDING_KEY, "first")
    columns |= {
        "_fromTopic": topics,
        "_fromBroker": batch.column("brokerName"),
        "_fromQueueId": batch.column("queueId"),
        "_fromQueueOffset": batch.column("queueOffset"),
    }
    return pa.RecordBatch.from_pydict(columns)
