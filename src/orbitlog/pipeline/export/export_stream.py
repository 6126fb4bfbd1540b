"""Streaming export: a Structured Streaming query that exports a topic continuously.

A micro-batch is a batch of the export: planned and numbered as in `export_job`, written by tasks, and committed by the
driver. The table's batch number records progress, not Spark's checkpoint, which is in `_orbitlog/stream` of a local
target and is recreated for each query: after a crash the planned batch is repeated, or found in the table. The same
holds if only the planning process next to the driver dies: Spark then ends the query, and it is restarted here.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.export.export_job import ExportedBatch, ExportRequest, commit_batch, open_table, writer_lock
from orbitlog.pipeline.export.export_plan import STATE_DIRECTORY, ExportState
from orbitlog.pipeline.export.followed_compaction import FollowedCompaction
from orbitlog.pipeline.runtime.location_files import is_remote
from orbitlog.pipeline.runtime.query_shutdown import stop_query
from orbitlog.pipeline.runtime.spark_errors import failure_line, is_orbitlog_failure
from orbitlog.pipeline.runtime.spark_runner import JobFailed, runner
from orbitlog.pipeline.sources.broker_stores import TopicNotFound
from orbitlog.pipeline.sources.subscribed_queues import open_subscribed_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CHECKPOINT = "stream"
_POLL_S = 0.1
_BATCHES_KEPT = "2"
_PAUSE_S = 1.0
_FAILURES_MAX = 4
_TOPIC_PAUSE_S_MAX = 5.0


class _QueryEnded(JobFailed):
    """Spark ended a query without an Orbitlog error; a restarted one may succeed."""


def await_topic(
    request: ExportRequest, stop: threading.Event, pause_s: float, on_wait: Callable[[str], None]
) -> ExportRequest:
    """Return the request when its topic exists in the cluster, or `stop` is set.

    A topic that appears later is exported from its start, whatever the start of the request is.
    """
    is_late = False
    while request.cluster is not None and not stop.is_set():
        try:
            with open_subscribed_queues(request.source_options()):
                break
        except TopicNotFound as problem:
            if not is_late:
                on_wait(f"{problem}; waiting until it exists")
            is_late = True
        stop.wait(pause_s)
    return replace(request, starting="earliest") if is_late else request


class ExportQuery:
    """Exports one topic into one table; calls `on_batch` after each commit and `on_restart` before each restart.

    `on_restart` also reports a topic that does not exist yet, and compactions. With `compact_files` the small files of
    a day are merged when it has that many.
    """

    def __init__(
        self,
        spark: SparkSession,
        request: ExportRequest,
        *,
        on_batch: Callable[[ExportedBatch], None] | None = None,
        on_restart: Callable[[str], None] | None = None,
        compact_files: int | None = None,
    ) -> None:
        from orbitlog.pipeline.export.export_source import ExportSource

        self._spark = spark
        self._request = request
        self._on_batch = on_batch or (lambda _: None)
        self._on_restart = on_restart or (lambda _: None)
        self._state = ExportState(request.target)
        self._commit_lock = threading.Lock()
        self._current_query: int | None = None  # number of the query whose batches may be committed
        self._queries = self._batches = 0
        self._failure: OrbitlogError | None = None
        self._local_checkpoint: Path | None = None
        self._compaction: FollowedCompaction | None = None
        if compact_files is not None:
            self._compaction = FollowedCompaction(runner(spark), request, compact_files, self._on_restart)
        spark.dataSource.register(ExportSource)
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", _BATCHES_KEPT)

    def run(self, stop: threading.Event, *, trigger_s: float | None) -> None:
        """Export current and new messages, polling every `trigger_s` seconds, until `stop` is set.

        A topic that a cluster does not have yet is awaited. Without `trigger_s`, end when all messages that existed at
        the start are exported (Spark's `availableNow`). A batch that is being committed is completed before the query
        stops. A query that Spark ends (a process may have died) is restarted at the table's last batch; raise
        `JobFailed` after several failures in a row.
        """
        self._state.begin(self._request.identity)
        self._request.source_options()  # raises for invalid options before a query runs
        if trigger_s is not None and open_table(self._request).committed() < 0:
            self._request = await_topic(self._request, stop, min(trigger_s, _TOPIC_PAUSE_S_MAX), self._on_restart)
        with writer_lock(self._request):
            self._run_queries(stop, trigger_s)

    def _run_queries(self, stop: threading.Event, trigger_s: float | None) -> None:
        """Run a query, and restart it if Spark ends it."""
        failures = 0
        while True:
            batches = self._batches
            try:
                return self._follow(stop, trigger_s)
            except _QueryEnded as reason:
                failures = 1 if self._batches > batches else failures + 1
                if failures == _FAILURES_MAX:
                    raise
                self._on_restart(f"{reason}; restarting the query")
                stop.wait(_PAUSE_S)

    def _follow(self, stop: threading.Event, trigger_s: float | None) -> None:
        """Run one query until it ends or `stop` is set."""
        query = self._start(trigger_s)
        try:
            while query.isActive and not stop.is_set():
                stop.wait(_POLL_S)
        finally:
            # Waits for a commit in progress; a later callback of this query then returns without a commit.
            with self._commit_lock:
                self._current_query = None
            stop_query(query)
        if self._failure is not None:
            raise self._failure
        if not stop.is_set() and (error := query.exception()) is not None:
            failure = f"the export of {self._request.topic} failed: {failure_line(error)}"
            raise (JobFailed if is_orbitlog_failure(error) else _QueryEnded)(failure)

    def _start(self, trigger_s: float | None) -> StreamingQuery:
        from orbitlog.pipeline.export.export_source import REQUEST_OPTION

        checkpoint = self._checkpoint()
        # Spark would resume at its checkpoint, which may be one batch older or newer than the table.
        shutil.rmtree(checkpoint, ignore_errors=True)
        source = self._spark.readStream.format("orbitlog-export").option(REQUEST_OPTION, self._request.as_text())
        self._queries += 1
        self._current_query = self._queries
        writer = source.load().writeStream.foreachBatch(functools.partial(self._commit, self._queries))
        writer = writer.option("checkpointLocation", str(checkpoint)).queryName(f"orbitlog-export-{checkpoint}")
        if trigger_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(trigger_s * 1000)} milliseconds").start()

    def _checkpoint(self) -> Path:
        if not is_remote(self._request.target):
            return Path(self._request.target) / STATE_DIRECTORY / _CHECKPOINT
        # The checkpoint decides nothing, so it stays local: Spark needs no file system of the object store.
        if self._local_checkpoint is None:
            self._local_checkpoint = Path(tempfile.mkdtemp(prefix="orbitlog-export-"))
            atexit.register(shutil.rmtree, self._local_checkpoint, ignore_errors=True)
        return self._local_checkpoint / _CHECKPOINT

    def _commit(self, query: int, frame: DataFrame, _batch: int) -> None:
        """Collect the reports of one batch and commit it; runs in this process, in a py4j callback thread."""
        with self._commit_lock:
            if self._current_query != query:
                return  # the plan stays, and the next run repeats it
            began = time.monotonic()
            # Collecting runs the tasks, exactly once: a second action on the frame would write all files again.
            rows = frame.collect()
            if not rows:
                return
            batch = self._state.load(rows[0]["batch"])
            assert batch is not None
            try:
                reports = [orjson.loads(bytes(row["report"])) for row in rows]
                done = commit_batch(self._request, open_table(self._request), batch, reports, began)
            except OrbitlogError as error:
                self._failure = error  # kept for the user: through Spark it would arrive as a traceback
                raise
            self._batches += 1
            self._on_batch(done)
            if self._compaction is not None:
                self._compaction.after_batch(file["day"] for report in reports for file in report["files"])
