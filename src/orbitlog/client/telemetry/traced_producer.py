"""Traced producer: a producer whose sends have spans, and whose messages carry their context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from orbitlog.client.producer.fast_producer import SEND_SECONDS
from orbitlog.client.producer.message_producer import MakeBatch, Producer
from orbitlog.client.producer.outgoing import OutgoingMessage, make_outgoing
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records.flags import TransactionType

if TYPE_CHECKING:
    from orbitlog.client.connection.cluster_link import ClusterLink
    from orbitlog.client.connection.routes import Routes
    from orbitlog.client.producer.receipts import Receipt
    from orbitlog.client.producer.tracing import Tracer
    from orbitlog.client.telemetry.otel_spans import OtelSpans


class TracedProducer(Producer):
    """Producer of a client with OpenTelemetry."""

    def __init__(self, link: ClusterLink, routes: Routes, group: str, tracer: Tracer | None, spans: OtelSpans) -> None:
        super().__init__(link, routes, group, tracer)
        self._spans = spans

    async def send(
        self,
        message: OutgoingMessage,
        *,
        seconds: float,
        ordered_by: str | None = None,
        queue: MessageQueue | None = None,
        transaction: TransactionType = TransactionType.NONE,
    ) -> Receipt:
        with self._spans.sending(message.topic, message.properties, message_id=message.unique_id) as sending:
            carried = sending.context_for(message.properties)
            message = replace(message, properties={**carried, **message.properties})
            sending.receipt = await super().send(
                message, seconds=seconds, ordered_by=ordered_by, queue=queue, transaction=transaction
            )
            return sending.receipt

    async def send_plain(self, topic: str, body: bytes, unique_id: str) -> Receipt:
        return await self.send(make_outgoing(topic, body, unique_id), seconds=SEND_SECONDS)

    async def send_batch(
        self, topic: str, make: MakeBatch, unique_id: str, *, count: int, given: Mapping[str, str], seconds: float
    ) -> Receipt:
        with self._spans.sending(topic, given, batch_count=count) as sending:
            with_context = {**sending.context_for(given), **given}
            sending.receipt = await super().send_batch(
                topic, make, unique_id, count=count, given=with_context, seconds=seconds
            )
            return sending.receipt

    async def send_oneway(self, message: OutgoingMessage) -> None:
        with self._spans.sending(message.topic, message.properties, message_id=message.unique_id) as sending:
            carried = sending.context_for(message.properties)
            await super().send_oneway(replace(message, properties={**carried, **message.properties}))
