"""`format("rocketmq-commitlog")`: the CommitLog of stores as rows in log order.

    spark.read.format("rocketmq-commitlog").load("PATH")

It contains every message: half messages, rolled-back ones, and those that are not dispatched to a queue yet. For whole
stores it is the fastest source. Options and columns: docs/spark.md.
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

    from orbitlog.pipeline.sources.log_partitions import LogFollower, LogPartition
    from orbitlog.pipeline.sources.source_options import LogOptions
    from orbitlog.pipeline.sources.store_snapshot import StoreSnapshot


# A batch costs worker and JVM some tenths of a millisecond, so it should hold a MiB or two: rows without bodies are
# short, whatever the size of their records.
_WITHOUT_BODIES = {"batch_rows": 32768, "batch_bytes": 32 << 20}


class CommitLogSource(DataSource):
    """Messages of whole logs in storage order."""

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
    """Cuts logs into partitions at record boundaries in the driver's planner, and decodes them in workers."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        from orbitlog.pipeline.sources.message_columns import RowMaker

        RowMaker(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        from orbitlog.pipeline.runtime.worker_setup import freeze_loaded_objects
        from orbitlog.pipeline.sources.store_snapshot import StoreSnapshot

        freeze_loaded_objects()
        partitions: list[LogPartition] = []
        for store in self._options.stores:
            with StoreSnapshot(store) as snapshot:
                partitions += self._partitions(snapshot)
        return [InputPartition(partition) for partition in partitions]

    def _partitions(self, snapshot: StoreSnapshot) -> list[LogPartition]:
        from orbitlog.pipeline.sources.log_partitions import LogFollower, plan_whole_log

        options, name = self._options, snapshot.store.broker_name
        if name not in options.start and name not in options.end:
            return plan_whole_log(snapshot, options.split_bytes, fail_on_damage=options.fail_on_data_loss)
        follower = LogFollower(snapshot, check_crc=False)
        start = follower.check_start(options.start.get(name, _first_offset(snapshot)))
        end = min(options.end.get(name, snapshot.readable_to), snapshot.readable_to)
        return follower.partitions(start, end, options.split_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_log_partition(partition.value, self._options, self._schema)


def _first_offset(snapshot: StoreSnapshot) -> int:
    return snapshot.files.segments[0].base if snapshot.files.segments else 0


def read_log_partition(
    partition: LogPartition | None, options: LogOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Decode a partition in a worker, as batches with the user's columns."""
    from orbitlog.kernels.arrow_batches import ArrowDecoder
    from orbitlog.pipeline.runtime.worker_setup import set_up_worker
    from orbitlog.pipeline.sources.log_partitions import check_end, scan_partition
    from orbitlog.pipeline.sources.message_columns import RowMaker

    if partition is None:
        return  # without partitions Spark passes one that has no value
    set_up_worker()
    maker = RowMaker(schema, inflate=options.inflate)
    # A batch without columns has no row count.
    needs = maker.needs or ("physical_offset",)
    decoder = ArrowDecoder(needs) if "body" in needs else ArrowDecoder(needs, **_WITHOUT_BODIES)
    for batch in scan_partition(decoder.decode, partition, check_crc=options.check_crc):
        yield maker.make(batch, partition.broker_name)
    check_end(partition, decoder.ended, fail_on_damage=options.fail_on_data_loss)


class CommitLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as a stream; an offset holds the start of the next record of each store: `{"broker": 4096}`."""

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
            for name, (snapshot, follower) in followers.items():
                if name in options.start:
                    result[name] = follower.check_start(options.start[name])
                else:
                    first = _first_offset(snapshot)
                    result[name] = first if options.start_mark == EARLIEST else follower.end_of_log(first)
            return result

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.bytes_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        with _Followers(self._options) as followers:
            self._frozen = {
                name: follower.end_of_log(_first_offset(snapshot)) for name, (snapshot, follower) in followers.items()
            }

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        from orbitlog.pipeline.sources.source_errors import DataLoss

        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        end: dict[str, Any] = dict(start)
        with _Followers(self._options) as followers:
            for name, (snapshot, follower) in followers.items():
                position = start.get(name, _first_offset(snapshot))
                if position < _first_offset(snapshot):
                    if self._options.fail_on_data_loss:
                        raise DataLoss(
                            f"the log of {name} now starts at {_first_offset(snapshot)}, past offset {position}"
                        )
                    position = _first_offset(snapshot)
                end[name] = follower.end_of_log(position, bytes_max)
                if self._frozen is not None:
                    # Never less than the start, or Spark would plan a batch backwards.
                    end[name] = max(min(end[name], self._frozen.get(name, position)), position)
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        partitions: list[LogPartition] = []
        with _Followers(self._options) as followers:
            for name, (snapshot, follower) in followers.items():
                first = max(start.get(name, 0), _first_offset(snapshot))
                partitions += follower.partitions(first, end.get(name, first), self._options.split_bytes)
        return [InputPartition(partition) for partition in partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_log_partition(partition.value, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark keeps the offsets in the query's checkpoint."""

    def stop(self) -> None:
        """Do nothing: no file stays open between calls."""


class _Followers(ExitStack):
    """A snapshot and a follower of every store, by broker name; open within a `with` block."""

    def __init__(self, options: LogOptions) -> None:
        super().__init__()
        self._options = options

    def __enter__(self) -> dict[str, tuple[StoreSnapshot, LogFollower]]:  # type: ignore[override]
        from orbitlog.pipeline.sources.log_partitions import LogFollower
        from orbitlog.pipeline.sources.store_snapshot import StoreSnapshot

        super().__enter__()
        snapshots = [self.enter_context(StoreSnapshot(store)) for store in self._options.stores]
        return {
            snapshot.store.broker_name: (snapshot, LogFollower(snapshot, check_crc=self._options.check_crc))
            for snapshot in snapshots
        }
