"""`df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`: rows as messages of topics.

    df.write.format("rocketmq").mode("append").option("nameServer", "HOST:PORT").option("topic", "Orders").save()

Options, columns and guarantees: docs/spark.md. Spark calls `write` in workers, `commit` and `abort` on the
driver, and builds a new writer for each of them in a stream, so nothing is kept between calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from orbitlog.pipeline.sink.sink_columns import SinkColumns
from orbitlog.pipeline.sink.sink_marks import PartitionReport
from orbitlog.pipeline.sink.write_identity import WriteIdentity

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql.types import StructType

    from orbitlog.pipeline.sink.sink_options import SinkOptions

_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"


@dataclass
class SinkCommit(WriterCommitMessage):
    """The report of a task, and the write it belongs to."""

    write_id: str
    epoch: int
    report: PartitionReport


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch: one task for each partition."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = SinkColumns(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, self._columns, iterator, _task(), self._options.write_id, epoch=0)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from orbitlog.pipeline.sink.epoch_commit import commit_write

        commit_write(self._options, self._options.write_id, 0, _reports(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from orbitlog.pipeline.sink.epoch_commit import abort_write

        abort_write(self._options, _reports(messages))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches; the query id of the checkpoint and the batch id identify an epoch across restarts."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = SinkColumns(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _task()
        query_id, epoch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        assert query_id is not None, "Spark sets the query id of a stream"
        assert epoch is not None, "Spark sets the batch id of a stream"
        return _write(self._options, self._columns, iterator, context, query_id, epoch=int(epoch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        from orbitlog.pipeline.sink.epoch_commit import commit_write

        write_id = next((message.write_id for message in messages if isinstance(message, SinkCommit)), None)
        if write_id is not None:
            commit_write(self._options, write_id, batchId, _reports(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        from orbitlog.pipeline.sink.epoch_commit import abort_write

        abort_write(self._options, _reports(messages))


def _task() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context


def _write(
    options: SinkOptions,
    columns: SinkColumns,
    rows: Iterator[pa.RecordBatch],
    context: TaskContext,
    write_id: str,
    *,
    epoch: int,
) -> SinkCommit:
    """Write the rows of the running task."""
    from orbitlog.pipeline.runtime.worker_setup import set_up_worker
    from orbitlog.pipeline.sink.partition_write import write_partition

    set_up_worker()
    identity = WriteIdentity(write_id, epoch, context.partitionId())
    report = write_partition(options, columns, identity, rows, is_retry=context.attemptNumber() > 0)
    return SinkCommit(write_id, epoch, report)


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[PartitionReport]:
    return [message.report for message in messages if isinstance(message, SinkCommit)]
