"""An export that follows its topic, as a Structured Streaming query.

A micro-batch is a batch of the export: planned and numbered as in `export_job`, written by tasks, and committed by the
driver. The table's own number says what is in it, not Spark's checkpoint, which lies in `_orbitlog/stream` of the
target and is made anew for each query: after a death the planned batch is made again, or found in the table. So is it
where only the process dies that plans beside the driver: Spark ends the query then, and it is begun again here.
"""

from __future__ import annotations

import functools
import shutil
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.export.export_job import ExportedBatch, ExportRequest, commit_batch, open_table
from orbitlog.pipeline.export.export_plan import ExportState
from orbitlog.pipeline.runtime.stream_end import has_our_reason, query_failure, stop_query
from orbitlog.pipeline.runtime.task_run import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CHECKPOINT = "stream"
_WATCH_S = 0.1
_BATCHES_KEPT = "2"
_PAUSE_S = 1.0
_FAILURES_MAX = 4


class _QueryEnded(JobFailed):
    """A query that Spark ended for a reason of its own; begun again it may go on."""


class ExportQuery:
    """Follows one topic into one table; `tell` hears of each batch that is in the table, `warn` of new beginnings."""

    def __init__(
        self,
        spark: SparkSession,
        request: ExportRequest,
        *,
        tell: Callable[[ExportedBatch], None] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        from orbitlog.pipeline.export.export_source import ExportSource

        self._spark = spark
        self._request = request
        self._tell = tell or (lambda _: None)
        self._warn = warn or (lambda _: None)
        self._state = ExportState(request.target)
        self._making = threading.Lock()
        self._serving: int | None = None  # the number of the query whose batches are committed
        self._queries = self._batches = 0
        self._failure: OrbitlogError | None = None
        spark.dataSource.register(ExportSource)
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", _BATCHES_KEPT)

    def run(self, stop: threading.Event, *, trigger_s: float | None) -> None:
        """Export what there is and what comes, looking again every `trigger_s` seconds, until `stop` is set.

        Without `trigger_s` it ends by itself when it has what was there at its start (Spark's `availableNow`).
        A batch in the making is finished before it stops. A query that Spark ends, for want of a process perhaps, is
        begun again where the table is, and given up after some failures in a row.
        """
        self._state.begin(self._request.identity)
        self._request.source_options()  # what cannot be is told before a query runs
        failures = 0
        while True:
            batches = self._batches
            try:
                return self._follow(stop, trigger_s)
            except _QueryEnded as reason:
                failures = 1 if self._batches > batches else failures + 1
                if failures == _FAILURES_MAX:
                    raise
                self._warn(f"{reason}; it is begun again")
                stop.wait(_PAUSE_S)

    def _follow(self, stop: threading.Event, trigger_s: float | None) -> None:
        """Run one query until it ends or is to end."""
        query = self._start(trigger_s)
        try:
            while query.isActive and not stop.is_set():
                stop.wait(_WATCH_S)
        finally:
            with self._making:
                self._serving = None
            stop_query(query)
        if self._failure is not None:
            raise self._failure
        if not stop.is_set() and (error := query.exception()) is not None:
            sentence = f"the export of {self._request.topic} failed: {query_failure(error)}"
            raise (JobFailed if has_our_reason(error) else _QueryEnded)(sentence)

    def _start(self, trigger_s: float | None) -> StreamingQuery:
        checkpoint = self._state.directory / _CHECKPOINT
        shutil.rmtree(checkpoint, ignore_errors=True)
        source = self._spark.readStream.format("orbitlog-export").option("request", self._request.as_text())
        self._queries += 1
        self._serving = self._queries
        writer = source.load().writeStream.foreachBatch(functools.partial(self._commit, self._queries))
        writer = writer.option("checkpointLocation", str(checkpoint)).queryName(f"orbitlog-export-{checkpoint}")
        if trigger_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(trigger_s * 1000)} milliseconds").start()

    def _commit(self, query: int, frame: DataFrame, _batch: int) -> None:
        """Have one batch written, and commit it; runs in this process, in a thread that Spark calls back."""
        with self._making:
            if self._serving != query:
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
            self._batches += 1
            self._tell(done)
