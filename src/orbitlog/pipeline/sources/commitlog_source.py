"""`format("rocketmq-commitlog")`: the physical log of stores, message by message in the order of the log.

    spark.read.format("rocketmq-commitlog").load("PATH")

Everything is in it, whatever queue it went to: half messages, rolled back ones, and those that no queue has yet. For
whole stores it is the quickest way in. Options and columns: docs/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from orbitlog.pipeline.sources.log_ranges import LogFollower, LogRange
    from orbitlog.pipeline.sources.source_options import LogOptions
    from orbitlog.pipeline.sources.store_snapshot import StoreLook


# A batch costs worker and JVM some tenths of a millisecond, and should hold a MiB or two: rows without bodies are
# short, however much of the log they stand for.
_WITHOUT_BODIES = {"batch_rows": 32768, "batch_bytes": 32 << 20}


class CommitLogSource(DataSource):
    """Messages of whole logs, in the order in which they were stored."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-commitlog"

    def schema(self) -> str:
        from orbitlog.pipeline.sources.message_columns import schema_text
        from orbitlog.pipeline.sources.source_options import COMMITLOG_OPTIONS, OptionReader

        reader = OptionReader(self.options, COMMITLOG_OPTIONS)
        return schema_text(is_kafka=False, include_properties=reader.truth("includeProperties", True))

    def reader(self, schema: StructType) -> DataSourceReader:
        from orbitlog.pipeline.sources.source_options import parse_log_options

        return CommitLogReader(parse_log_options(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from orbitlog.pipeline.sources.source_options import parse_log_options

        return CommitLogStreamReader(parse_log_options(self.options, is_stream=True), schema)


class CommitLogReader(DataSourceReader):
    """Cuts logs into proved ranges when Spark asks for partitions, and decodes them in workers."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        from orbitlog.pipeline.sources.message_columns import RowMaker

        RowMaker(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        from orbitlog.pipeline.runtime.warm_up import freeze_what_stays
        from orbitlog.pipeline.sources.store_snapshot import StoreLook

        freeze_what_stays()
        ranges: list[LogRange] = []
        for store in self._options.stores:
            with StoreLook(store) as look:
                ranges += self._ranges(look)
        return [InputPartition(found) for found in ranges]

    def _ranges(self, look: StoreLook) -> list[LogRange]:
        from orbitlog.pipeline.sources.log_ranges import LogFollower, whole_log

        options, name = self._options, look.store.broker_name
        if name not in options.start and name not in options.end:
            return whole_log(look, options.split_bytes, fail_on_damage=options.fail_on_data_loss)
        follower = LogFollower(look, check_crc=False)
        start = options.start.get(name, _first(look))
        follower.check_start(start)
        end = min(options.end.get(name, look.readable_to), look.readable_to)
        return follower.ranges(start, end, options.split_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_log_range(partition.value, self._options, self._schema)


def _first(look: StoreLook) -> int:
    return look.files.segments[0].base if look.files.segments else 0


def read_log_range(found: LogRange | None, options: LogOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Decode a range in a worker, as batches in the user's columns."""
    import numpy as np

    from orbitlog.kernels.arrow_batches import ArrowDecoder
    from orbitlog.pipeline.runtime.warm_up import settle_worker
    from orbitlog.pipeline.sources.log_ranges import check_end
    from orbitlog.pipeline.sources.message_columns import RowMaker

    if found is None:
        return  # there are no partitions, and Spark made one up
    settle_worker()
    maker = RowMaker(schema, inflate=options.inflate)
    # A batch without columns would not know how many rows it has.
    needs = maker.needs or ("physical_offset",)
    decoder = ArrowDecoder(needs) if "body" in needs else ArrowDecoder(needs, **_WITHOUT_BODIES)
    view = np.memmap(found.path, np.uint8, mode="r").data[: found.segment_bytes]
    batches = decoder.decode(
        view, found.start, found.stop, base_physical_offset=found.base, check_crc=options.check_crc
    )
    for batch in batches:
        yield maker.make(batch, found.broker_name)
    check_end(found, decoder.ended, fail_on_damage=options.fail_on_data_loss)


class CommitLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as a stream; an offset says for each store where its next record starts: `{"broker": 4096}`."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        from orbitlog.pipeline.sources.message_columns import RowMaker

        RowMaker(schema)
        self._options = options
        self._schema = schema
        self._frozen: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        from orbitlog.pipeline.sources.topic_offsets import EARLIEST

        options = self._options
        with _Followers(options) as followers:
            result: dict[str, Any] = {}
            for name, (look, follower) in followers.items():
                if name in options.start:
                    follower.check_start(options.start[name])
                    result[name] = options.start[name]
                else:
                    first = _first(look)
                    result[name] = first if options.start_mark == EARLIEST else follower.end_of_log(first)
            return result

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.bytes_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        with _Followers(self._options) as followers:
            self._frozen = {name: follower.end_of_log(_first(look)) for name, (look, follower) in followers.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        from orbitlog.pipeline.sources.queue_scan import DataLoss

        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        end: dict[str, Any] = dict(start)
        with _Followers(self._options) as followers:
            for name, (look, follower) in followers.items():
                position = start.get(name, _first(look))
                if position < _first(look):
                    if self._options.fail_on_data_loss:
                        raise DataLoss(f"the log of {name} starts at {_first(look)} by now, {position} comes next")
                    position = _first(look)
                end[name] = follower.end_of_log(position, bytes_max)
                if self._frozen is not None:
                    end[name] = max(min(end[name], self._frozen.get(name, position)), position)
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges: list[LogRange] = []
        with _Followers(self._options) as followers:
            for name, (look, follower) in followers.items():
                first = max(start.get(name, 0), _first(look))
                ranges += follower.ranges(first, end.get(name, first), self._options.split_bytes)
        return [InputPartition(found) for found in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_log_range(partition.value, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept here: the checkpoint is the query's own."""

    def stop(self) -> None:
        """Nothing stays open between calls."""


class _Followers(ExitStack):
    """A look at every store, with its follower, by the store's name; for the length of a `with` block."""

    def __init__(self, options: LogOptions) -> None:
        super().__init__()
        self._options = options

    def __enter__(self) -> dict[str, tuple[StoreLook, LogFollower]]:  # type: ignore[override]
        from orbitlog.pipeline.sources.log_ranges import LogFollower
        from orbitlog.pipeline.sources.store_snapshot import StoreLook

        super().__enter__()
        looks = [self.enter_context(StoreLook(store)) for store in self._options.stores]
        return {look.store.broker_name: (look, LogFollower(look, check_crc=self._options.check_crc)) for look in looks}
