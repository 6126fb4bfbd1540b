"""`spark.readStream.format("rocketmq")`: topics as a stream, from checkpoint to checkpoint.

The offset of a stream says for every queue which message is next. Where a query starts is the user's choice only when
it is new; a restarted one goes on where its checkpoint says. Queues and topics that appear later are read from their
beginning.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from orbitlog.pipeline.sources.message_columns import RowMaker
from orbitlog.pipeline.sources.rate_limit import limit_bytes, limit_offsets
from orbitlog.pipeline.sources.read_plan import plan_ranges, plan_tasks
from orbitlog.pipeline.sources.source_options import TopicOptions
from orbitlog.pipeline.sources.topic_bounds import TopicBounds, look_at_topics
from orbitlog.pipeline.sources.topic_offsets import Offsets, from_nested, nested
from orbitlog.pipeline.sources.topic_source import RowRequest, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives beside the driver for as long as the query does; `read` runs in workers."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        RowMaker(schema, is_kafka=options.is_kafka)
        self._options = options
        self._schema = schema
        self._frozen: Offsets | None = None
        self._began = False

    def initialOffset(self) -> dict[str, Any]:
        self._began = True
        with look_at_topics(self._options) as bounds:
            start, _ = bounds.without_lost(bounds.start(), bounds.latest)
            return nested(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with look_at_topics(self._options) as bounds:
            self._frozen = bounds.latest

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        known = from_nested(start)
        self._warn_if_restarted()
        with look_at_topics(self._options) as bounds:
            latest = bounds.latest if self._frozen is None else self._frozen
            # A queue that is gone, or shorter than it was, keeps its place: `partitions` says what is lost.
            end = {**known, **{key: max(stop, known.get(key, 0)) for key, stop in latest.items()}}
            begun = {key: known.get(key, bounds.queues[key].earliest if key in bounds.queues else 0) for key in end}
            return nested(self._limited(bounds, begun, end, limit))

    def _limited(self, bounds: TopicBounds, start: Offsets, end: Offsets, limit: ReadLimit) -> Offsets:
        if isinstance(limit, ReadAllAvailable):
            return end
        if self._options.offsets_per_trigger_max is not None:
            end = limit_offsets(start, end, self._options.offsets_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            present = {key: stop for key, stop in end.items() if key in bounds.queues}
            end = {**end, **limit_bytes(start, present, self._options.bytes_per_trigger_max, bounds.sizes_from)}
        return end

    def _warn_if_restarted(self) -> None:
        if not self._began and self._options.start_is_given:
            warnings.warn(
                "the query goes on where its checkpoint says; starting options are for new ones", stacklevel=2
            )
        self._began = True

    def reportLatestOffset(self) -> dict[str, Any] | None:
        with look_at_topics(self._options) as bounds:
            return nested(bounds.latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with look_at_topics(self._options) as bounds:
            kept_start, kept_end = bounds.without_lost(from_nested(start), from_nested(end))
            ranges = plan_ranges(kept_start, kept_end, bounds.shapes)
        return [InputPartition(task) for task in plan_tasks(ranges, self._options.partitions_min)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_ranges(partition.value or (), RowRequest(self._options, self._schema))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept here: the checkpoint is the query's own."""

    def stop(self) -> None:
        """Nothing stays open between calls."""
