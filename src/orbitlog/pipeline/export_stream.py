"""An export that follows its topic, as a Structured Streaming query.

A micro-batch is a batch of the export: planned and numbered as in `export_job`, written by tasks, and committed by the
driver. The table's own number says what is in it, not Spark's checkpoint, which lies in `_orbitlog/stream` of the
target and is made anew for each query: after a death the planned batch is made again, or found in the table.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.export_job import ExportedBatch, ExportRequest, commit_batch, open_table
from orbitlog.pipeline.export_plan import ExportState
from orbitlog.pipeline.stream_end import query_failure, stop_query
from orbitlog.pipeline.task_run import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CHECKPOINT = "stream"
_WATCH_S = 0.1
_BATCHES_KEPT = "2"


class ExportQuery:
    """Follows one topic into one table; `tell` hears of each batch when it is in the table."""

    def __init__(
        self, spark: SparkSession, request: ExportRequest, *, tell: Callable[[ExportedBatch], None] | None = None
    ) -> None:
        from orbitlog.pipeline.export_source import ExportSource

        self._spark = spark
        self._request = request
        self._tell = tell or (lambda _: None)
        self._state = ExportState(request.target)
        self._making = threading.Lock()
        self._is_over = False
        self._failure: OrbitlogError | None = None
        spark.dataSource.register(ExportSource)
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", _BATCHES_KEPT)

    def run(self, stop: threading.Event, *, trigger_s: float | None) -> None:
        """Export what there is and what comes, looking again every `trigger_s` seconds, until `stop` is set.

        Without `trigger_s` it ends by itself when it has what was there at its start (Spark's `availableNow`).
        A batch in the making is finished before it stops.
        """
        self._state.begin(self._request.identity)
        self._request.source_options()  # what cannot be is told before a query runs
        query = self._start(trigger_s)
        try:
            while query.isActive and not stop.is_set():
                stop.wait(_WATCH_S)
        finally:
            with self._making:
                self._is_over = True
            stop_query(query)
        if self._failure is not None:
            raise self._failure
        if not stop.is_set() and (error := query.exception()) is not None:
            raise JobFailed(f"the export of {self._request.topic} failed: {query_failure(error)}")

    def _start(self, trigger_s: float | None) -> StreamingQuery:
        checkpoint = self._state.directory / _CHECKPOINT
        shutil.rmtree(checkpoint, ignore_errors=True)
        source = self._spark.readStream.format("orbitlog-export").option("request", self._request.as_text())
        writer = source.load().writeStream.foreachBatch(self._commit)
        writer = writer.option("checkpointLocation", str(checkpoint)).queryName(f"orbitlog-export-{checkpoint}")
        if trigger_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(trigger_s * 1000)} milliseconds").start()

    def _commit(self, frame: DataFrame, _batch: int) -> None:
        """Have one batch written, and commit it; runs in this process, in a thread that Spark calls back."""
        with self._making:
            if self._is_over:
                return  # its plan stays, and the next run makes it
            began = time.monotonic()
            rows = frame.collect()
            if not rows:
                return
            batch = self._state.load(rows[0]["batch"])
            assert batch is not None
            try:
                reports = [orjson.loads(bytes(row["report"])) for row in rows]
                done = commit_batch(self._request, open_table(self._request), batch, reports, began)
            except OrbitlogError as error:
                self._failure = error  # the sentence for the user; through Spark it would come as a traceback
                raise
            self._tell(done)
