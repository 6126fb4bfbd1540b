"""Message traces: records of sends and deliveries, written to the trace topic that RocketMQ tools read.

Records are batched and sent by a separate producer. They never delay a message; records that cannot be sent are
dropped with a warning. Mirrors Java `AsyncTraceDispatcher`.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from orbitlog.client.connection.client_identity import UniqueIdMaker
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import Routes
from orbitlog.client.consumer.received import Received
from orbitlog.client.producer.message_producer import Producer
from orbitlog.client.producer.outgoing import OutgoingMessage, make_outgoing
from orbitlog.client.producer.receipts import Receipt
from orbitlog.errors import OrbitlogError
from orbitlog.formats import names
from orbitlog.formats.records import properties
from orbitlog.formats.records.timer_message import wants_timer
from orbitlog.wire.trace_records import PUB, SUB_AFTER, SUB_BEFORE, TraceRecord, encode_trace

log = logging.getLogger(__name__)

TRACE_GROUP = "_INNER_TRACE_PRODUCER"
BATCH_SECONDS = 0.5
SEND_SECONDS = 5.0
CLOSE_SECONDS = 5.0
RECORDS_MAX = 100
PENDING_MAX = 10_000

_REGION = "DefaultRegion"
_NORMAL, _HALF, _DELAYED = 0, 1, 3
_SUCCESS, _FAILED = 0, 4


@dataclass(frozen=True, slots=True)
class ConsumeSpan:
    """Delivery of one message: its trace request id and start time."""

    request_id: str
    since: float


class Tracer:
    """Trace records of one client."""

    def __init__(self, link: ClusterLink, routes: Routes, topic: str = names.TRACE_TOPIC) -> None:
        self._routes = routes
        self._topic = topic
        self._producer = Producer(link, routes, TRACE_GROUP)
        self._unique_ids = UniqueIdMaker()
        self._pending: list[TraceRecord] = []
        self._dropped = 0
        self._flush_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def sent(
        self, message: OutgoingMessage, group: str, receipt: Receipt | None, started_ms: int, *, is_half: bool
    ) -> None:
        """Record a send; a failed one has no `receipt`."""
        now_ms = _now_ms()
        fields = message.properties
        kind = _HALF if is_half else _DELAYED if properties.DELAY in fields or wants_timer(fields) else _NORMAL
        self._add(
            TraceRecord(
                PUB,
                message.unique_id,
                started_ms,
                group,
                message.topic,
                _REGION,
                fields.get(properties.TAGS, ""),
                fields.get(properties.KEYS, ""),
                self._routes.address_of(receipt.queue) if receipt is not None else "",
                len(message.body),
                now_ms - started_ms,
                success=receipt is not None,
                message_type=kind,
                offset_message_id=receipt.offset_message_id if receipt is not None else "",
            )
        )

    def started(self, message: Received, group: str) -> ConsumeSpan | None:
        """Record a delivery; return None if the producer disabled traces of the message."""
        if message.properties.get(properties.TRACE_ON) == "false":
            return None
        span = ConsumeSpan(uuid.uuid4().hex.upper(), time.monotonic())
        self._add(
            TraceRecord(
                SUB_BEFORE,
                message.message_id,
                _now_ms(),
                group,
                region=message.properties.get(properties.MSG_REGION, _REGION),
                keys=" ".join(message.keys),
                request_id=span.request_id,
                retry_times=message.attempts,
            )
        )
        return span

    def settled(self, message: Received, group: str, span: ConsumeSpan, *, success: bool) -> None:
        """Record that a delivery was acknowledged (`success`) or failed."""
        self._add(
            TraceRecord(
                SUB_AFTER,
                message.message_id,
                _now_ms(),
                group,
                keys=" ".join(message.keys),
                cost_ms=int((time.monotonic() - span.since) * 1000),
                success=success,
                request_id=span.request_id,
                result=_SUCCESS if success else _FAILED,
            )
        )

    def failed(self, span: ConsumeSpan, error: Exception) -> None:
        """Do nothing: `settled` records the failure."""

    def released(self, span: ConsumeSpan) -> None:
        """Do nothing: a record of a delivery without an end is what Java's clients leave as well."""

    def entered(self, span: ConsumeSpan) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def _add(self, record: TraceRecord) -> None:
        if len(self._pending) >= PENDING_MAX:
            self._dropped += 1
            return
        self._pending.append(record)
        if self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(BATCH_SECONDS, self._start_flush)

    def _start_flush(self) -> None:
        task = asyncio.get_running_loop().create_task(self.flush(), name="orbitlog traces")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def flush(self) -> None:
        """Send the pending records."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        pending, self._pending = self._pending, []
        if self._dropped:
            log.warning("dropped %d trace records: more than %d were pending", self._dropped, PENDING_MAX)
            self._dropped = 0
        for start in range(0, len(pending), RECORDS_MAX):
            records = pending[start : start + RECORDS_MAX]
            keys = dict.fromkeys(key for record in records for key in (record.message_id, *record.keys.split()) if key)
            message = make_outgoing(self._topic, encode_trace(records), self._unique_ids.make(), keys=keys)
            try:
                await self._producer.send(message, seconds=SEND_SECONDS)
            except OrbitlogError as error:
                log.warning("could not send %d trace records: %s", len(records), error)

    async def close(self) -> None:
        """Send the remaining records within CLOSE_SECONDS; drop the rest."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self.flush()
        except TimeoutError:
            log.warning("dropped the last trace records: no broker answered within %g s", CLOSE_SECONDS)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
