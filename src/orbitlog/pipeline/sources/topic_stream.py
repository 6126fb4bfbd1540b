"""`spark.readStream.format("rocketmq")`: topics as a stream.

The offset of a stream holds the next queue offset of every queue. Starting options apply only to a new query; a
restarted one resumes at its checkpoint. Queues and topics that appear later are read from their start.
"""

from __future__ import annotations

import time
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
from orbitlog.pipeline.sources.rate_limit import limit_offsets
from orbitlog.pipeline.sources.read_plan import QueueRange
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable
from orbitlog.pipeline.sources.source_options import TopicOptions
from orbitlog.pipeline.sources.subscribed_queues import SubscribedQueues, open_subscribed_queues
from orbitlog.pipeline.sources.topic_offsets import Offsets, from_nested, nested
from orbitlog.pipeline.sources.topic_source import RowRequest, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_PAUSE_S = 0.5


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one Python process next to the driver for the life of the query; `read` runs in workers."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        RowMaker(schema, is_kafka=options.is_kafka)
        self._options = options
        self._schema = schema
        self._frozen: Offsets | None = None  # the end that availableNow has fixed
        self._began = False

    def initialOffset(self) -> dict[str, Any]:
        self._began = True
        with open_subscribed_queues(self._options) as queues:
            start, _ = queues.clip_to_existing(queues.start(), queues.latest)
            return nested(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with open_subscribed_queues(self._options) as queues:
            self._frozen = queues.latest

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        committed = from_nested(start)
        self._warn_if_restarted()
        with open_subscribed_queues(self._options, must_exist=False) as queues:
            latest = queues.latest if self._frozen is None else self._frozen
            # A queue that was deleted or truncated keeps its offset, so that `partitions` reports the loss.
            end = {**committed, **{key: max(stop, committed.get(key, 0)) for key, stop in latest.items()}}
            begun = {key: committed.get(key, queues.bounds[key].earliest if key in queues.bounds else 0) for key in end}
            return nested(self._limited(queues, begun, end, limit))

    def _limited(self, queues: SubscribedQueues, start: Offsets, end: Offsets, limit: ReadLimit) -> Offsets:
        if isinstance(limit, ReadAllAvailable):
            return end
        if self._options.offsets_per_trigger_max is not None:
            end = limit_offsets(start, end, self._options.offsets_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            present = {key: stop for key, stop in end.items() if key in queues.bounds}
            end = {**end, **queues.limit_bytes(start, present, self._options.bytes_per_trigger_max)}
        return end

    def _warn_if_restarted(self) -> None:
        if not self._began and self._options.start_is_given:
            warnings.warn(
                "the query resumes at its checkpoint; starting options apply only to new queries", stacklevel=2
            )
        self._began = True

    def reportLatestOffset(self) -> dict[str, Any] | None:
        with open_subscribed_queues(self._options, must_exist=False) as queues:
            return nested(queues.latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a planned batch; wait up to `brokerTimeoutMs` for a broker that does not answer."""
        cluster = self._options.cluster
        deadline = time.monotonic() + (0.0 if cluster is None else cluster.broker_timeout_s)
        while True:
            try:
                return [InputPartition(task) for task in self._tasks(from_nested(start), from_nested(end))]
            except BrokerUnavailable:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_S)

    def _tasks(self, start: Offsets, end: Offsets) -> list[tuple[QueueRange, ...]]:
        with open_subscribed_queues(self._options, must_exist=False) as queues:
            return queues.plan(*queues.clip_to_existing(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_ranges(partition.value or (), RowRequest(self._options, self._schema))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark keeps the offsets in the query's checkpoint."""

    def stop(self) -> None:
        """Do nothing: no file stays open between calls, and the connections end with this process."""
