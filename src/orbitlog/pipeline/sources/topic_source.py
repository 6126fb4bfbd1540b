"""`spark.read.format("rocketmq")`: topics of stores or of a running cluster, as a batch or a stream.

    spark.read.format("rocketmq").option("storePath", "PATH").option("subscribe", "Orders").load()
    spark.read.format("rocketmq").option("nameServer", "HOST:PORT").option("subscribe", "Orders").load()

Options and columns: docs/spark.md. Spark imports this module in every session that discovers data sources, so heavy
modules are imported inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from orbitlog.pipeline.sources.read_plan import QueueRange
    from orbitlog.pipeline.sources.source_options import TopicOptions
    from orbitlog.pipeline.sources.subscribed_queues import SubscribedQueues


class TopicSource(DataSource):
    """Messages of topics, read from the ConsumeQueues of stores or from brokers."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        from orbitlog.pipeline.sources.message_columns import schema_text
        from orbitlog.pipeline.sources.source_options import TOPIC_OPTIONS, OptionReader

        reader = OptionReader(self.options, TOPIC_OPTIONS)
        is_kafka = reader.one_of("schema", ("kafka",)) == "kafka"
        headers = reader.truth("includeHeaders", not is_kafka)
        return schema_text(is_kafka=is_kafka, include_properties=reader.truth("includeProperties", headers))

    def reader(self, schema: StructType) -> DataSourceReader:
        from orbitlog.pipeline.sources.source_options import parse_topic_options

        return TopicReader(parse_topic_options(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from orbitlog.pipeline.sources.source_options import parse_topic_options
        from orbitlog.pipeline.sources.topic_stream import TopicStreamReader

        return TopicStreamReader(parse_topic_options(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from orbitlog.pipeline.sink.sink_options import parse_sink_options
        from orbitlog.pipeline.sink.topic_writer import TopicWriter

        _refuse_overwrite(overwrite)
        return TopicWriter(parse_sink_options(self.options, is_stream=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from orbitlog.pipeline.sink.sink_options import parse_sink_options
        from orbitlog.pipeline.sink.topic_writer import TopicStreamWriter

        _refuse_overwrite(overwrite)
        return TopicStreamWriter(parse_sink_options(self.options, is_stream=True), schema)


def _refuse_overwrite(overwrite: bool) -> None:
    from orbitlog.pipeline.sources.broker_stores import OptionError

    if overwrite:
        raise OptionError("a topic cannot be overwritten; use mode append")


class TopicReader(DataSourceReader):
    """Plans a batch read next to the driver, and reads its partitions in workers."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        from orbitlog.pipeline.sources.message_columns import RowMaker
        from orbitlog.pipeline.sources.pushed_filters import PushedFilters, PushFiltersMethod

        RowMaker(schema, is_kafka=options.is_kafka)  # raises for an unknown column before anything is read
        self._options = options
        self._schema = schema
        self._filters = PushedFilters()
        # On the instance, not as a method: Spark rejects a class that overrides it while filter pushdown is off.
        self.pushFilters = PushFiltersMethod(self._take_filters)  # type: ignore[method-assign]

    def _take_filters(self, filters: Any) -> list[Filter]:
        return self._filters.take(filters)

    def partitions(self) -> Sequence[InputPartition]:
        from orbitlog.pipeline.runtime.worker_setup import freeze_loaded_objects
        from orbitlog.pipeline.sources.subscribed_queues import open_subscribed_queues

        freeze_loaded_objects()
        with open_subscribed_queues(self._options) as queues:
            start, end = queues.clip_to_existing(queues.start(), queues.end())
            for key in list(end):
                start[key], end[key] = self._narrowed(queues, key, start[key], end[key])
            tasks = queues.plan(start, end)
        return [InputPartition(task) for task in tasks]

    def _narrowed(self, queues: SubscribedQueues, key: Any, start: int, end: int) -> tuple[int, int]:
        """Return the range of a queue that the pushed filters leave."""
        filters = self._filters
        if not filters.wants(key):
            return end, end
        start, end = max(start, filters.offset_from), min(end, filters.offset_to)
        if filters.time_from_ms is not None and start < end:
            start = max(start, queues.offset_at(key, filters.time_from_ms))
        if filters.time_to_ms is not None and start < end:
            end = min(end, queues.offset_at(key, filters.time_to_ms))
        return start, max(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        pushed = self._filters.tags
        if pushed is not None and options.sql is None:
            options = replace(options, tags=tuple(sorted(pushed & set(options.tags) if options.tags else pushed)))
            if not options.tags:
                return iter(())
        # If there are no partitions, Spark creates one without a value.
        return read_ranges(partition.value or (), RowRequest(options, self._schema))


@dataclass(frozen=True, slots=True)
class RowRequest:
    """The options and the schema of the rows to build."""

    options: TopicOptions
    schema: StructType


def read_ranges(ranges: Sequence[QueueRange], request: RowRequest) -> Iterator[pa.RecordBatch]:
    """Read ranges in a worker, as batches with the user's columns."""
    from orbitlog.pipeline.runtime.worker_setup import set_up_worker
    from orbitlog.pipeline.sources.message_columns import RowMaker, columns_needed
    from orbitlog.pipeline.sources.queue_scan import IDENTITY_COLUMNS, ScanRules
    from orbitlog.pipeline.sources.range_scan import open_scan

    set_up_worker()
    options = request.options
    rules = ScanRules(options.tags, options.check_crc, options.fail_on_data_loss)
    maker = RowMaker(request.schema, is_kafka=options.is_kafka, inflate=options.inflate)
    columns = columns_needed(maker.needs, IDENTITY_COLUMNS)
    scan = open_scan(columns, rules, options.cluster, options.sql, has_stores=bool(options.stores))
    for queue_range, batch in scan.read(ranges):
        if batch.num_rows:
            yield maker.make(batch, queue_range.shape.broker_name)
