"""Traces: what this client sends and consumes, written down in a topic that everybody's tools read.

Records are gathered and sent by a producer of their own. They never hold up a message, and where they cannot be sent
they are given up with a warning. Mirrors Java `AsyncTraceDispatcher`.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from dataclasses import dataclass

from orbitlog.client.connection.client_identity import UniqueIdMaker
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import Routes
from orbitlog.client.consumer.received import Received
from orbitlog.client.producer.outgoing import Outgoing, make_outgoing
from orbitlog.client.producer.producer_sends import Sending
from orbitlog.client.producer.receipts import Receipt
from orbitlog.errors import OrbitlogError
from orbitlog.formats import names
from orbitlog.formats.records import properties
from orbitlog.formats.records.timer_message import wants_timer
from orbitlog.wire.trace_records import PUB, SUB_AFTER, SUB_BEFORE, TraceRecord, encode_trace

log = logging.getLogger(__name__)

TRACE_GROUP = "_INNER_TRACE_PRODUCER"
GATHER_SECONDS = 0.5
SEND_SECONDS = 5.0
CLOSE_SECONDS = 5.0
RECORDS_MAX = 100
WAITING_MAX = 10_000

_REGION = "DefaultRegion"
_NORMAL, _HALF, _DELAYED = 0, 1, 3
_SUCCESS, _FAILED = 0, 4


@dataclass(frozen=True, slots=True)
class Given:
    """One message in the hands of a consumer."""

    request_id: str
    since: float


class Tracer:
    """The records of one client."""

    def __init__(self, link: ClusterLink, routes: Routes, topic: str = names.TRACE_TOPIC) -> None:
        self._routes = routes
        self._topic = topic
        self._sending = Sending(link, routes, TRACE_GROUP)
        self._unique_ids = UniqueIdMaker()
        self._waiting: list[TraceRecord] = []
        self._dropped = 0
        self._gathering: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def sent(self, message: Outgoing, group: str, receipt: Receipt | None, started_ms: int, *, is_half: bool) -> None:
        """Note a send; without a receipt it failed."""
        now_ms = _now_ms()
        told = message.properties
        kind = _HALF if is_half else _DELAYED if properties.DELAY in told or wants_timer(told) else _NORMAL
        self._add(
            TraceRecord(
                PUB,
                message.unique_id,
                started_ms,
                group,
                message.topic,
                _REGION,
                told.get(properties.TAGS, ""),
                told.get(properties.KEYS, ""),
                self._routes.address_of(receipt.queue) if receipt is not None else "",
                len(message.body),
                now_ms - started_ms,
                success=receipt is not None,
                message_type=kind,
                offset_message_id=receipt.offset_message_id if receipt is not None else "",
            )
        )

    def given(self, message: Received, group: str) -> Given | None:
        """Note that a consumer has a message; None if its sender wants no traces."""
        if message.properties.get(properties.TRACE_ON) == "false":
            return None
        given = Given(uuid.uuid4().hex.upper(), time.monotonic())
        self._add(
            TraceRecord(
                SUB_BEFORE,
                message.message_id,
                _now_ms(),
                group,
                region=message.properties.get(properties.MSG_REGION, _REGION),
                keys=" ".join(message.keys),
                request_id=given.request_id,
                retry_times=message.attempts,
            )
        )
        return given

    def settled(self, message: Received, group: str, given: Given, *, success: bool) -> None:
        """Note the consumer's word about it."""
        self._add(
            TraceRecord(
                SUB_AFTER,
                message.message_id,
                _now_ms(),
                group,
                keys=" ".join(message.keys),
                cost_ms=int((time.monotonic() - given.since) * 1000),
                success=success,
                request_id=given.request_id,
                result=_SUCCESS if success else _FAILED,
            )
        )

    def _add(self, record: TraceRecord) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._dropped += 1
            return
        self._waiting.append(record)
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER_SECONDS, self._begin_flush)

    def _begin_flush(self) -> None:
        task = asyncio.get_running_loop().create_task(self.flush(), name="orbitlog traces")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def flush(self) -> None:
        """Send what has gathered."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        waiting, self._waiting = self._waiting, []
        if self._dropped:
            log.warning("%d traces were given up: more came than could be sent", self._dropped)
            self._dropped = 0
        for start in range(0, len(waiting), RECORDS_MAX):
            records = waiting[start : start + RECORDS_MAX]
            keys = dict.fromkeys(key for each in records for key in (each.message_id, *each.keys.split()) if key)
            message = make_outgoing(self._topic, encode_trace(records), self._unique_ids.make(), keys=keys)
            try:
                await self._sending.send(message, seconds=SEND_SECONDS)
            except OrbitlogError as error:
                log.warning("%d traces were given up: %s", len(records), error)

    async def close(self) -> None:
        """Send the rest, as far as that goes in a few seconds."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self.flush()
        except TimeoutError:
            log.warning("the last traces were given up: no broker took them in time")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
