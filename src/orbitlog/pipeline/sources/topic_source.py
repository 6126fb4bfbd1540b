"""`spark.read.format("rocketmq")`: topics of stores through their ConsumeQueues, as a batch or a stream.

    spark.read.format("rocketmq").option("storePath", "PATH").option("subscribe", "Orders").load()

Options and columns: docs/spark.md. Spark imports this module in every session that looks for data sources, so
whatever is heavy is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from orbitlog.pipeline.sources.read_plan import QueueRange
    from orbitlog.pipeline.sources.source_options import TopicOptions
    from orbitlog.pipeline.sources.topic_bounds import TopicBounds


class TopicSource(DataSource):
    """Messages of topics, read through the ConsumeQueues of one or many stores."""

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


class TopicReader(DataSourceReader):
    """Plans a batch when Spark asks for its partitions, and reads them in workers."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        from orbitlog.pipeline.sources.message_columns import RowMaker
        from orbitlog.pipeline.sources.pushed_filters import FilterTaker, PushedFilters

        RowMaker(schema, is_kafka=options.is_kafka)  # a column that is none is told before anything is read
        self._options = options
        self._schema = schema
        self._filters = PushedFilters()
        self.pushFilters = FilterTaker(self._take_filters)  # type: ignore[method-assign]

    def _take_filters(self, filters: Any) -> list[Filter]:
        return self._filters.take(filters)

    def partitions(self) -> Sequence[InputPartition]:
        from orbitlog.pipeline.runtime.warm_up import freeze_what_stays
        from orbitlog.pipeline.sources.read_plan import plan_ranges, plan_tasks
        from orbitlog.pipeline.sources.topic_bounds import look_at_topics

        freeze_what_stays()
        with look_at_topics(self._options) as bounds:
            start, end = bounds.without_lost(bounds.start(), bounds.end())
            for key in list(end):
                start[key], end[key] = self._narrowed(bounds, key, start[key], end[key])
            ranges = plan_ranges(start, end, bounds.shapes)
        return [InputPartition(task) for task in plan_tasks(ranges, self._options.partitions_min)]

    def _narrowed(self, bounds: TopicBounds, key: Any, start: int, end: int) -> tuple[int, int]:
        """Leave out what the filters do."""
        filters = self._filters
        if not filters.wants(key):
            return end, end
        start, end = max(start, filters.offset_from), min(end, filters.offset_to)
        if filters.time_from_ms is not None and start < end:
            start = max(start, bounds.offset_at(key, filters.time_from_ms))
        if filters.time_to_ms is not None and start < end:
            end = min(end, bounds.offset_at(key, filters.time_to_ms))
        return start, max(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        pushed = self._filters.tags
        if pushed is not None:
            options = replace(options, tags=tuple(sorted(pushed & set(options.tags) if options.tags else pushed)))
            if not options.tags:
                return iter(())
        # Where there are no partitions Spark makes one up, without a value.
        return read_ranges(partition.value or (), RowRequest(options, self._schema))


@dataclass(frozen=True, slots=True)
class RowRequest:
    """What rows are to look like."""

    options: TopicOptions
    schema: StructType


def read_ranges(ranges: Sequence[QueueRange], request: RowRequest) -> Iterator[pa.RecordBatch]:
    """Read ranges in a worker, as batches in the user's columns."""
    from orbitlog.pipeline.runtime.warm_up import settle_worker
    from orbitlog.pipeline.sources.message_columns import RowMaker, columns_needed
    from orbitlog.pipeline.sources.queue_scan import CHECKED_BY, QueueScan, ScanRules

    settle_worker()
    options = request.options
    rules = ScanRules(options.tags, options.check_crc, options.fail_on_data_loss)
    maker = RowMaker(request.schema, is_kafka=options.is_kafka, inflate=options.inflate)
    scan = QueueScan(columns_needed(maker.needs, CHECKED_BY), rules)
    for found in ranges:
        for batch in scan.batches(found):
            if batch.num_rows:
                yield maker.make(batch, found.shape.broker_name)
