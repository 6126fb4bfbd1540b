"""Dispatch of a live store as a Structured Streaming query (Java's ReputMessageService).

The driver holds the dispatch lease and is the only writer. Tasks derive ranges of the log; each micro-batch is written
in log order, then the `dispatched_to` mark is advanced. After a crash that mark decides where to resume, not Spark's
checkpoint: each lease epoch starts a new query, with its checkpoint in the store's `orbitlog.pipeline` directory.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbitlog.errors import DiskFull, LeaseLost, OrbitlogError
from orbitlog.formats.derived.store_state import EPOCHS_FILE
from orbitlog.formats.store_tree import LOCK
from orbitlog.pipeline.dispatch.dispatch_ranges import MAX_BYTES_DEFAULT, RANGE_BYTES_DEFAULT
from orbitlog.pipeline.runtime.query_shutdown import stop_query
from orbitlog.pipeline.runtime.spark_errors import failure_line
from orbitlog.pipeline.runtime.spark_runner import JobFailed
from orbitlog.store.derived.derived_range import DerivedRange, unpack_columns
from orbitlog.store.dispatch.external_dispatch import ExternalDispatch
from orbitlog.storefiles.disk import RealDisk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ENGINE = "spark"
_CHECKPOINTS = Path("orbitlog.pipeline", "dispatch")
_POLL_S = 0.05
_OFFER_POLL_S = 0.1
_PAUSE_S = 1.0
_FAILURES_MAX = 4
_STALL_S = 120.0
_STOPS_WITHIN_MS = "30000"
# A member of a replica group closes its store to change its role, and is restarted by a supervisor after a failure.
_REOPENS_WITHIN_S = 30.0
# Batches whose metadata a query retains; a dispatch query never replays one.
_BATCHES_KEPT = "2"


@dataclass(frozen=True, slots=True)
class DispatchProgress:
    """Progress of dispatch; `epoch` is 0 until the broker offers the lease, and `waits_for` is the reason."""

    epoch: int = 0
    dispatched_to: int = 0
    confirmed_to: int = 0
    messages: int = 0
    batches: int = 0
    waits_for: str = ""


OnProgress = Callable[[DispatchProgress], None]


class DispatchQuery:
    """Dispatches one store until stopped; `on_progress` is called after each batch and each change of the lease."""

    def __init__(
        self,
        spark: SparkSession,
        root: Path,
        *,
        on_progress: OnProgress | None = None,
        max_bytes: int = MAX_BYTES_DEFAULT,
        range_bytes: int = RANGE_BYTES_DEFAULT,
    ) -> None:
        from orbitlog.pipeline.dispatch.dispatch_source import DispatchSource

        self._spark = spark
        self._root = root.resolve()
        self._on_progress = on_progress or (lambda _: None)
        self._limits = {"maxbytes": str(max_bytes), "rangebytes": str(range_bytes)}
        self._put_lock = threading.Lock()
        self._owner: ExternalDispatch | None = None
        self._failure: OrbitlogError | None = None
        self._messages = self._batches = 0
        # Internal source: Spark discovers only those of `pyspark_*` packages.
        spark.dataSource.register(DispatchSource)
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", _BATCHES_KEPT)
        spark.conf.set("spark.sql.streaming.stopTimeout", _STOPS_WITHIN_MS)

    def run_once(self) -> DispatchProgress:
        """Take the lease, dispatch everything that is confirmed now, and hand it back; restart a query that fails."""
        failures = 0
        while True:
            owner = ExternalDispatch.take(self._root, ENGINE)
            try:
                self._serve(owner, threading.Event(), once=True)
                return self._progress(owner.lease.epoch, owner.dispatched_to, owner.dispatched_to)
            except JobFailed:
                # Spark retries tasks, but not the Python process that plans the stream.
                failures += 1
                if failures == _FAILURES_MAX:
                    raise
            finally:
                owner.hand_back()

    def run(self, stop: threading.Event) -> None:
        """Dispatch whenever the broker offers the lease, until `stop` is set or no broker has the store open.

        A member of a replica group may close it for half a minute, to change its role or for a restart. Raise
        `LeaseLost` if no broker has it open at the start. Wait while the disk is full. Restart a query that fails
        otherwise (a worker may have been lost) under a new lease; raise `JobFailed` after several failures in a row.
        """
        owner, failures = self._wait_for_offer(stop), 0
        while owner is not None:
            batches = self._batches
            try:
                self._serve(owner, stop, once=False)
            except (DiskFull, JobFailed) as reason:
                failures = 1 if self._batches > batches else failures + 1
                if isinstance(reason, JobFailed) and failures == _FAILURES_MAX:
                    raise
                self._on_progress(
                    DispatchProgress(messages=self._messages, batches=self._batches, waits_for=str(reason))
                )
                stop.wait(_PAUSE_S)
            finally:
                owner.hand_back()
            try:
                owner = self._wait_for_offer(stop)
            except LeaseLost:
                return  # the broker has exited

    def _wait_for_offer(self, stop: threading.Event) -> ExternalDispatch | None:
        """Take the lease as soon as it is offered; raise `LeaseLost` if no broker has the store open.

        The store of a replica group member may be closed for half a minute.
        """
        reported, open_s = "", time.monotonic()
        while not stop.is_set():
            try:
                return ExternalDispatch.take(self._root, ENGINE)
            except LeaseLost as reason:
                if _has_broker(self._root):
                    open_s = time.monotonic()
                elif not _is_group_member(self._root) or time.monotonic() - open_s > _REOPENS_WITHIN_S:
                    raise
                if str(reason) != reported:
                    reported = str(reason)
                    self._on_progress(
                        DispatchProgress(messages=self._messages, batches=self._batches, waits_for=reported)
                    )
            stop.wait(_OFFER_POLL_S)
        return None

    def _serve(self, owner: ExternalDispatch, stop: threading.Event, *, once: bool) -> None:
        """Run a query under one lease: until it is recalled, `stop` is set, or everything is dispatched."""
        # Set before the query starts: `_put` compares it in a callback thread and ignores batches of other leases.
        self._owner, self._failure = owner, None
        self._on_progress(self._progress(owner.lease.epoch, owner.dispatched_to, owner.confirmed_to))
        query, stall = self._start(owner, once=once), _StallDetector(owner)
        try:
            while query.isActive and owner.is_wanted and not stop.is_set() and not stall.is_stalled():
                stop.wait(_POLL_S)
        finally:
            stop_query(query)
            # Stopping the query does not stop a `_put` that Spark has already called back. The lock waits for it to
            # finish; a later one finds `_owner` None and writes nothing, so the lease can be handed back.
            with self._put_lock:
                self._owner = None
        # A recalled lease or a stop ends the query with errors of its own, which do not matter.
        if not owner.is_wanted or stop.is_set():
            return
        if self._failure is not None:
            raise self._failure
        if (error := query.exception()) is not None:
            raise JobFailed(f"dispatch of {self._root} failed: {failure_line(error)}")
        if stall.is_stalled():
            raise JobFailed(
                f"dispatch of {self._root} made no progress for {_STALL_S:.0f} s:"
                " a worker hangs, or the cluster has no free slot"
            )

    def _start(self, owner: ExternalDispatch, *, once: bool) -> StreamingQuery:
        checkpoints = self._root / _CHECKPOINTS
        # A checkpoint of an earlier epoch would make Spark replay offsets that the mark has passed.
        shutil.rmtree(checkpoints, ignore_errors=True)
        options = {
            "store": str(self._root),
            "from": str(owner.dispatched_to),
            "settings": json.dumps(owner.lease.settings),
            **self._limits,
        }
        ranges = self._spark.readStream.format("orbitlog-dispatch").options(**options).load()
        writer = ranges.writeStream.foreachBatch(lambda frame, _: self._put(frame, owner))
        writer = writer.option("checkpointLocation", str(checkpoints / f"epoch-{owner.lease.epoch}"))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")
        return writer.queryName(f"orbitlog-dispatch-{owner.lease.epoch}").start()

    def _put(self, frame: DataFrame, owner: ExternalDispatch) -> None:
        """Write one micro-batch; runs in this process, in a py4j callback thread."""
        # Spark returns partitions in any order; units and keys must be written in log order.
        ranges = sorted((_derived(row) for row in frame.collect()), key=lambda derived: derived.start)
        with self._put_lock:
            if self._owner is not owner or self._failure is not None:
                return  # the query of this batch was abandoned
            try:
                owner.put_ranges(ranges)
            except OrbitlogError as error:
                self._failure = error  # kept for the user: through Spark it would arrive as a traceback
                raise
            self._messages += sum(len(derived.columns.physical_offset) for derived in ranges)
            self._batches += 1
            self._on_progress(self._progress(owner.lease.epoch, owner.dispatched_to, owner.confirmed_to))

    def _progress(self, epoch: int, dispatched_to: int, confirmed_to: int) -> DispatchProgress:
        return DispatchProgress(epoch, dispatched_to, confirmed_to, self._messages, self._batches)


class _StallDetector:
    """Records when dispatch last advanced or was idle.

    Spark retries a task that fails, but waits forever for one whose worker hangs.
    """

    def __init__(self, owner: ExternalDispatch) -> None:
        self._owner = owner
        self._dispatched_to = -1
        self._since_s = 0.0

    def is_stalled(self) -> bool:
        owner = self._owner
        if self._dispatched_to != owner.dispatched_to or owner.dispatched_to >= owner.confirmed_to:
            self._dispatched_to, self._since_s = owner.dispatched_to, time.monotonic()
        return time.monotonic() - self._since_s > _STALL_S


def _derived(row: Any) -> DerivedRange:
    queues = [(str(topic), int(queue_id)) for topic, queue_id in json.loads(row["queues"])]
    columns = unpack_columns(bytes(row["columns"]), row["rows"], row["keys"])
    return DerivedRange(row["start"], row["stop"], row["derived_to"], queues, columns)


def require_broker(root: Path) -> None:
    """Raise `LeaseLost` if no broker has the store open; call before starting Spark, which takes seconds."""
    if not _has_broker(root):
        raise LeaseLost(f"no broker has {root} open; a broker dispatches the rest when it opens the store")


def _is_group_member(root: Path) -> bool:
    return RealDisk().read_file(root / EPOCHS_FILE) is not None


def _has_broker(root: Path) -> bool:
    return RealDisk().lock_holder(root / LOCK) is not None
