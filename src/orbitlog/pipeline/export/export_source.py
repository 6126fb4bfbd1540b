"""The source of an export that follows its topic: a stream of batches, whose tasks write files and give reports.

An offset is `{"batch": n, "next": {...}}`: the number of the batch that comes, and where each queue goes on with it.
The plan of a batch, and with it its range of the log, is written down before the offset that ends with it is given. A
partition is a task of the plan; the worker that reads it writes its files, and gives one row that describes them.
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
_SCHEMA = "batch long, report binary"


class ExportSource(DataSource):
    """Made by `pipeline.export.export_stream` alone: whoever reads it must commit what its tasks have written."""

    @classmethod
    def name(cls) -> str:
        return FORMAT_NAME

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ExportStreamReader(str(self.options["request"]))


class ExportStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans beside the driver, in a process of its own, and writes in workers."""

    def __init__(self, request: str) -> None:
        self._request = request
        self._until: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Go on where the table is: the number of its last batch is kept with its data."""
        from orbitlog.pipeline.export.export_job import ExportRequest, open_table
        from orbitlog.pipeline.export.export_plan import ExportState
        from orbitlog.pipeline.sources.topic_offsets import nested

        request = ExportRequest.from_text(self._request)
        done = open_table(request).committed()
        last = ExportState(request.target).load(done) if done >= 0 else None
        return {"batch": done + 1, "next": {} if last is None else nested(last.end)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()  # the plan bounds a batch

    def prepareForTriggerAvailableNow(self) -> None:
        from orbitlog.pipeline.export.export_job import ExportRequest
        from orbitlog.pipeline.sources.topic_bounds import look_at_topics

        with look_at_topics(ExportRequest.from_text(self._request).source_options()) as bounds:
            self._until = bounds.latest

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        from orbitlog.pipeline.export.export_job import ExportRequest, next_batch
        from orbitlog.pipeline.export.export_plan import ExportState
        from orbitlog.pipeline.sources.topic_offsets import nested

        request, number = ExportRequest.from_text(self._request), int(start["batch"])
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
        from orbitlog.pipeline.runtime.warm_up import settle_worker

        if partition.value is None:
            return  # where there are no partitions Spark makes one up
        settle_worker()
        task = partition.value
        report = orjson.dumps(write_task(task))
        columns = [pa.array([task.batch_number], pa.int64()), pa.array([report], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=["batch", "report"])
