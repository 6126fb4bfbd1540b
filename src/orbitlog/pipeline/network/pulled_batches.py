"""Pulled batches: decodes pulled records with the kernels and checks that they belong to the requested range.

A pull returns records as they are in the CommitLog, so one pass of a kernel decodes thousands of them. Tags are tested
by the broker by hash, and here by text.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records.message import RECORD_BYTES_MIN
from orbitlog.kernels.arrow_batches import ArrowDecoder
from orbitlog.pipeline.network.cluster_session import ClusterSession
from orbitlog.pipeline.network.queue_pulls import PulledRecords, PullPipeline
from orbitlog.pipeline.sources.queue_scan import ScanRules
from orbitlog.pipeline.sources.read_plan import QueueRange
from orbitlog.pipeline.sources.source_errors import DataLoss
from orbitlog.wire.bodies.heartbeat_bodies import ALL, SubscriptionData

_SIZE_FIELD_BYTES = 4


class NetworkScan:
    """Reads ranges from brokers; the counterpart of `QueueScan` for stores."""

    def __init__(self, session: ClusterSession, columns: list[str], rules: ScanRules, sql: str | None = None) -> None:
        self._session = session
        wanted = [*columns, "tags"] if rules.tags and "tags" not in columns else columns
        self._decoder = PulledDecoder(wanted, rules)
        self._subscription = _subscription(rules.tags, sql)

    def read(self, ranges: Sequence[QueueRange]) -> Iterator[tuple[QueueRange, pa.RecordBatch]]:
        """Yield the messages of ranges in order, with the range that each batch belongs to."""
        queues = [MessageQueue(item.topic, item.shape.broker_name, item.queue_id) for item in ranges]
        bounds = [(queue, item.start, item.stop) for queue, item in zip(queues, ranges, strict=True)]
        self._decoder.restart()
        pipeline = PullPipeline(self._session, bounds, self._subscription)
        try:
            while (pulled := pipeline.next()) is not None:
                queue_range = ranges[pulled.number]
                for batch in self._decoder.batches(queue_range, pulled):
                    yield queue_range, batch
        finally:
            pipeline.close()


def _subscription(tags: tuple[str, ...], sql: str | None) -> SubscriptionData:
    from orbitlog.client.consumer.subscriptions import make_subscription

    return make_subscription("", " || ".join(tags) if tags else ALL, sql)


class PulledDecoder:
    """Decodes pulled records into batches with the chosen columns."""

    def __init__(self, columns: list[str], rules: ScanRules) -> None:
        self._decoder = ArrowDecoder(columns)
        self._rules = rules
        self._tags = pa.array(rules.tags, pa.string())
        self.restart()

    def restart(self) -> None:
        """Begin with other ranges: their numbers start at 0 again."""
        self._last = -1, -1  # number of the current range, and its last returned offset

    def batches(self, queue_range: QueueRange, pulled: PulledRecords) -> Iterator[pa.RecordBatch]:
        """Yield the requested messages; raise `DataLoss` for lost or damaged ones unless failOnDataLoss=false."""
        if self._last[0] != pulled.number:
            self._last = pulled.number, queue_range.start - 1
        for lost in pulled.lost:
            self._lost(queue_range, f"offsets {lost.start} to {lost.stop - 1} were requested, but {lost.why}")
        buffer = pulled.bodies[0] if len(pulled.bodies) == 1 else b"".join(pulled.bodies)
        position = 0
        while position < len(buffer):
            for batch in self._decoder.decode(buffer, position, check_crc=self._rules.check_crc):
                requested = self._requested(queue_range, batch)
                if requested.num_rows:
                    yield requested
            position = self._after_damage(queue_range, buffer)

    def _after_damage(self, queue_range: QueueRange, buffer: bytes) -> int:
        """Return the position after a damaged record, or the end of the buffer if nothing stopped the decoder."""
        position, stop = self._decoder.ended
        if stop is None:
            return len(buffer)
        self._lost(queue_range, f"the broker sent a damaged record ({stop})")
        size_bytes = int.from_bytes(buffer[position : position + _SIZE_FIELD_BYTES], "big")
        is_plausible = RECORD_BYTES_MIN <= size_bytes <= len(buffer) - position
        return position + size_bytes if is_plausible else len(buffer)

    def _requested(self, queue_range: QueueRange, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of the requested range and tags, each offset once.

        A filtered pull may continue past its window, even past the range: the next window then repeats messages.
        """
        queue_offsets = batch.column("queue_offset").to_numpy(zero_copy_only=True)
        queue_ids = batch.column("queue_id").to_numpy(zero_copy_only=True)
        of_queue = queue_ids == queue_range.queue_id
        of_queue &= pc.equal(batch.column("topic"), queue_range.topic).to_numpy(zero_copy_only=False)
        if not of_queue.all():
            wrong = int(np.flatnonzero(~of_queue)[0])
            self._lost(queue_range, f"the broker sent a message of another queue at {int(queue_offsets[wrong])}")
        number, last = self._last
        before = np.maximum.accumulate(np.concatenate(([last], queue_offsets)))
        wanted = of_queue & (queue_offsets > before[:-1]) & (queue_offsets < queue_range.stop)
        self._last = number, int(before[-1])
        if not wanted.all():
            batch = batch.filter(pa.array(wanted))
        if self._rules.tags:
            batch = batch.filter(pc.is_in(batch.column("tags"), value_set=self._tags))
        return batch

    def _lost(self, queue_range: QueueRange, why: str) -> None:
        where = f"queue {queue_range.queue_id} of {queue_range.topic} at {queue_range.shape.broker_name}"
        if self._rules.fail_on_data_loss:
            raise DataLoss(f"{where}: {why}; option failOnDataLoss=false reads what remains")
        warnings.warn(f"data was lost: {where}: {why}", stacklevel=2)
