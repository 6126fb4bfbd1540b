"""Streaming source of an export: a stream of batches whose tasks write files and return reports.

An offset is `{"batch": n, "next": {...}}`: the number of the next batch, and the offsets it starts at. The plan of a
batch is saved before the offset that ends with it is returned. A partition is a task of the plan; the worker that reads
it writes the files and returns one row that describes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from orbitlog.pipeline.sources.topic_offsets import Offsets

FORMAT_NAME = "orbitlog-export"
# Spark redacts options whose name contains "secret": a request may contain credentials.
REQUEST_OPTION = "secretRequest"
_SCHEMA = "batch long, report binary"


class ExportSource(DataSource):
    """Used only by `pipeline.export.export_stream`, which commits the files that the tasks have written."""

    @classmethod
    def name(cls) -> str:
        return FORMAT_NAME

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ExportStreamReader(str(self.options[REQUEST_OPTION]))


class ExportStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in a Python process next to the driver, and writes files in workers."""

    def __init__(self, request: str) -> None:
        self._request = request
        self._until: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset after the last batch that the table has committed."""
        from orbitlog.pipeline.export.export_job import ExportRequest, open_table
        from orbitlog.pipeline.export.export_plan import ExportState
        from orbitlog.pipeline.sources.topic_offsets import nested

        request = ExportRequest.from_text(self._request)
        done = open_table(request).committed()
        last = ExportState(request.target).load(done) if done >= 0 else None
        return {"batch": done + 1, "next": {} if last is None else nested(last.end)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()  # the plan limits a batch

    def prepareForTriggerAvailableNow(self) -> None:
        from orbitlog.pipeline.export.export_job import ExportRequest
        from orbitlog.pipeline.sources.subscribed_queues import open_subscribed_queues

        with open_subscribed_queues(ExportRequest.from_text(self._request).source_options()) as queues:
            self._until = queues.latest

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        from orbitlog.pipeline.export.export_job import ExportRequest, next_batch
        from orbitlog.pipeline.export.export_plan import ExportState
        from orbitlog.pipeline.sources.topic_offsets import nested

        request, number = ExportRequest.from_text(self._request), int(start["batch"])
        # Spark may call this again for the same start, after a restart for example: a saved plan must be reused,
        # because its files may already be written.
        state = ExportState(request.target)
        batch = state.load(number)
        if batch is None:
            batch = next_batch(state, request, request.source_options(), number - 1, self._until)
        return start if batch is None else {"batch": number + 1, "next": nested(batch.end)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        from orbitlog.pipeline.export.export_job import ExportRequest, open_table, tasks_of
        from orbitlog.pipeline.export.export_plan import ExportState

        request = ExportRequest.from_text(self._request)
        table, state = open_table(request), ExportState(request.target)
        batches = [state.load(number) for number in range(int(start["batch"]), int(end["batch"]))]
        return [InputPartition(task) for batch in batches if batch for task in tasks_of(request, table, batch)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import orjson
        import pyarrow as pa

        from orbitlog.pipeline.export.export_files import write_task
        from orbitlog.pipeline.runtime.worker_setup import set_up_worker

        if partition.value is None:
            return  # without partitions Spark passes one that has no value
        set_up_worker()
        task = partition.value
        report = orjson.dumps(write_task(task))
        columns = [pa.array([task.batch_number], pa.int64()), pa.array([report], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=["batch", "report"])
