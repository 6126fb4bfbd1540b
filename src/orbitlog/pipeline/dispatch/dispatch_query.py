"""Dispatch of a live store as a Structured Streaming query (Java's ReputMessageService).

The driver owns the dispatch lease and is the one writer. Tasks work ranges of the log out; each micro-batch is put in
the order of the log, and a mark then says how far all is. After a death the mark decides, not Spark's checkpoint: each
epoch of the lease begins a query of its own, whose checkpoint lies in the store's `orbitlog.pipeline` directory.
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
from orbitlog.formats.store_tree import LOCK
from orbitlog.pipeline.dispatch.dispatch_ranges import MAX_BYTES_DEFAULT, RANGE_BYTES_DEFAULT
from orbitlog.pipeline.runtime.stream_end import query_failure, stop_query
from orbitlog.pipeline.runtime.task_run import JobFailed
from orbitlog.store.derived.derived_range import DerivedRange, unpack_columns
from orbitlog.store.dispatch.external_dispatch import ExternalDispatch
from orbitlog.storefiles.disk import RealDisk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ENGINE = "spark"
_CHECKPOINTS = Path("orbitlog.pipeline", "dispatch")
_WATCH_S = 0.05
_OFFER_POLL_S = 0.1
_PAUSE_S = 1.0
_FAILURES_MAX = 4
_STILL_S = 120.0
_STOPS_WITHIN_MS = "30000"
# A stream keeps the plans of so many batches; ours are never gone back to.
_BATCHES_KEPT = "2"


@dataclass(frozen=True, slots=True)
class DispatchProgress:
    """How far dispatch is; `epoch` is 0 while the broker has not handed over, and `waits_for` says why."""

    epoch: int = 0
    dispatched_to: int = 0
    confirmed_to: int = 0
    messages: int = 0
    batches: int = 0
    waits_for: str = ""


Told = Callable[[DispatchProgress], None]


class DispatchQuery:
    """Dispatches one store until told to stop; `tell` hears of every batch and every change of hands."""

    def __init__(
        self,
        spark: SparkSession,
        root: Path,
        *,
        tell: Told | None = None,
        max_bytes: int = MAX_BYTES_DEFAULT,
        range_bytes: int = RANGE_BYTES_DEFAULT,
    ) -> None:
        from orbitlog.pipeline.dispatch.dispatch_source import DispatchSource

        self._spark = spark
        self._root = root.resolve()
        self._tell = tell or (lambda _: None)
        self._limits = {"maxbytes": str(max_bytes), "rangebytes": str(range_bytes)}
        self._putting = threading.Lock()
        self._owner: ExternalDispatch | None = None
        self._failure: OrbitlogError | None = None
        self._messages = self._batches = 0
        spark.dataSource.register(DispatchSource)
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", _BATCHES_KEPT)
        spark.conf.set("spark.sql.streaming.stopTimeout", _STOPS_WITHIN_MS)

    def run_once(self) -> DispatchProgress:
        """Take the lease, dispatch all that is confirmed now, and hand back; a query that fails is begun again."""
        failures = 0
        while True:
            owner = ExternalDispatch.take(self._root, ENGINE)
            try:
                self._serve(owner, threading.Event(), once=True)
                return self._progress(owner.lease.epoch, owner.dispatched_to, owner.dispatched_to)
            except JobFailed:
                # Spark tries tasks again, but not the process that reads its stream.
                failures += 1
                if failures == _FAILURES_MAX:
                    raise
            finally:
                owner.hand_back()

    def run(self, stop: threading.Event) -> None:
        """Dispatch whenever the broker wants it, until `stop` is set or there is no broker any more.

        Raises `LeaseLost` where there is none to begin with. A full disk is waited for; a query that fails otherwise,
        for want of a worker perhaps, is begun again under a new lease, and given up after some failures in a row.
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
                self._tell(DispatchProgress(messages=self._messages, batches=self._batches, waits_for=str(reason)))
                stop.wait(_PAUSE_S)
            finally:
                owner.hand_back()
            try:
                owner = self._wait_for_offer(stop)
            except LeaseLost:
                return  # the broker is gone

    def _wait_for_offer(self, stop: threading.Event) -> ExternalDispatch | None:
        """Take the lease as soon as it is to be had; raises where no broker has the store open."""
        told = ""
        while not stop.is_set():
            try:
                return ExternalDispatch.take(self._root, ENGINE)
            except LeaseLost as reason:
                if not _has_broker(self._root):
                    raise
                if str(reason) != told:
                    told = str(reason)
                    self._tell(DispatchProgress(messages=self._messages, batches=self._batches, waits_for=told))
            stop.wait(_OFFER_POLL_S)
        return None

    def _serve(self, owner: ExternalDispatch, stop: threading.Event, *, once: bool) -> None:
        """Run a query under one lease: until it is recalled, until told to stop, or until all is dispatched."""
        self._owner, self._failure = owner, None
        self._tell(self._progress(owner.lease.epoch, owner.dispatched_to, owner.confirmed_to))
        query, watch = self._start(owner, once=once), _Watch(owner)
        try:
            while query.isActive and owner.is_wanted and not stop.is_set() and not watch.stands_still():
                stop.wait(_WATCH_S)
        finally:
            stop_query(query)
            with self._putting:  # a batch that is being put is put to its end
                self._owner = None
        if not owner.is_wanted or stop.is_set():
            return
        if self._failure is not None:
            raise self._failure
        if (error := query.exception()) is not None:
            raise JobFailed(f"dispatch of {self._root} failed: {query_failure(error)}")
        if watch.stands_still():
            raise JobFailed(
                f"dispatch of {self._root} stood still for {_STILL_S:.0f} s: a worker hangs, or the cluster has no room"
            )

    def _start(self, owner: ExternalDispatch, *, once: bool) -> StreamingQuery:
        checkpoints = self._root / _CHECKPOINTS
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
        """Put one micro-batch; runs in this process, in a thread that Spark calls back."""
        ranges = sorted((_derived(row) for row in frame.collect()), key=lambda derived: derived.start)
        with self._putting:
            if self._owner is not owner or self._failure is not None:
                return  # of a query that was given up
            try:
                owner.put_ranges(ranges)
            except OrbitlogError as error:
                self._failure = error  # the sentence for the user; through Spark it would come as a traceback
                raise
            self._messages += sum(len(derived.columns.physical_offset) for derived in ranges)
            self._batches += 1
            self._tell(self._progress(owner.lease.epoch, owner.dispatched_to, owner.confirmed_to))

    def _progress(self, epoch: int, dispatched_to: int, confirmed_to: int) -> DispatchProgress:
        return DispatchProgress(epoch, dispatched_to, confirmed_to, self._messages, self._batches)


class _Watch:
    """Notes when dispatch last came on, or had nothing to do.

    Spark tries a task again that fails, and waits for ever for one whose worker hangs.
    """

    def __init__(self, owner: ExternalDispatch) -> None:
        self._owner = owner
        self._dispatched_to = -1
        self._since_s = 0.0

    def stands_still(self) -> bool:
        owner = self._owner
        if self._dispatched_to != owner.dispatched_to or owner.dispatched_to >= owner.confirmed_to:
            self._dispatched_to, self._since_s = owner.dispatched_to, time.monotonic()
        return time.monotonic() - self._since_s > _STILL_S


def _derived(row: Any) -> DerivedRange:
    queues = [(str(topic), int(queue_id)) for topic, queue_id in json.loads(row["queues"])]
    columns = unpack_columns(bytes(row["columns"]), row["rows"], row["keys"])
    return DerivedRange(row["start"], row["stop"], row["derived_to"], queues, columns)


def require_broker(root: Path) -> None:
    """Raise `LeaseLost` where no broker has the store open: better before Spark is started than after."""
    if not _has_broker(root):
        raise LeaseLost(f"no broker has {root} open; what it left is dispatched when one opens it")


def _has_broker(root: Path) -> bool:
    return RealDisk().lock_holder(root / LOCK) is not None
