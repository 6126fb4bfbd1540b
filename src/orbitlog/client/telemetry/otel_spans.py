"""OpenTelemetry of one client: spans of sends, receives and processing, and the client metrics of the conventions.

A message carries the context of its `send` span. `process` continues it: as its child, or, if the application has a
span of its own at that time, as the child of that one with a link to the message's context.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from orbitlog.client.consumer.received import Received
from orbitlog.client.producer.receipts import Receipt
from orbitlog.client.telemetry import otel_names as names
from orbitlog.client.telemetry.otel_context import context_properties, creation_context, span_context
from orbitlog.errors import BrokerRefused, OrbitlogError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties as props
from orbitlog.wire.codes import ResponseCode

_SCOPE = "orbitlog"
_TIMER_PROPERTIES = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "__STARTDELIVERTIME")
_ORDER_KEY = "__SHARDINGKEY"
_CORRELATION_ID = "CORRELATION_ID"
_LINKS_MAX = 128
_RESPONSE_NAMES = {int(code): code.name for code in ResponseCode}

Attributes = dict[str, Any]


def error_type(error: BaseException) -> str:
    """Return the name of a refusal's code, otherwise that of the exception's class."""
    if isinstance(error, BrokerRefused):
        return _RESPONSE_NAMES.get(error.code, str(error.code))
    return type(error).__qualname__


def message_attributes(properties: Mapping[str, str]) -> Attributes:
    """Return the attributes that follow from a message's properties."""
    found: Attributes = {names.MESSAGE_TYPE: _message_type(properties)}
    if tag := properties.get(props.TAGS):
        found[names.TAG] = tag
    if keys := properties.get(props.KEYS, "").split():
        found[names.KEYS] = keys
    if _ORDER_KEY in properties:
        found[names.ORDER_KEY] = properties[_ORDER_KEY]
    if _CORRELATION_ID in properties:
        found[names.CONVERSATION_ID] = properties[_CORRELATION_ID]
    if (level := properties.get(props.DELAY, "")).isdecimal():
        found[names.DELAY_LEVEL] = int(level)
    if (due_ms := properties.get("TIMER_DELIVER_MS", "")).isdecimal():
        found[names.DELIVERY_TIMESTAMP] = int(due_ms)
    return found


def _message_type(properties: Mapping[str, str]) -> str:
    if properties.get(props.TRANSACTION_PREPARED) == "true":
        return "transaction"
    if _ORDER_KEY in properties:
        return "fifo"
    is_delayed = props.DELAY in properties or any(name in properties for name in _TIMER_PROPERTIES)
    return "delay" if is_delayed else "normal"


class Sending:
    """A `send` span: the properties that carry its context, and a place for the receipt."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.receipt: Receipt | None = None

    def context_for(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties that a message gets from this span."""
        return context_properties(properties, trace.set_span_in_context(self._span))


class Processing:
    """A `process` span, with its start."""

    __slots__ = ("attributes", "error", "span", "started_s")

    def __init__(self, span: Span, attributes: Attributes) -> None:
        self.span = span
        self.attributes = attributes
        self.started_s = time.perf_counter()
        self.error: str | None = None


class OtelSpans:
    """Makes the spans and client metrics of one client; a `DeliveryTracer` for its consumers."""

    def __init__(self, client_id: str, namespace: str, address_of: Callable[[MessageQueue], str]) -> None:
        self._tracer = trace.get_tracer(_SCOPE)
        meter = metrics.get_meter(_SCOPE)
        bounds = names.DURATION_BOUNDS_S
        operations, processes = names.OPERATION_DURATION, names.PROCESS_DURATION
        self._operations = meter.create_histogram(operations, "s", explicit_bucket_boundaries_advisory=bounds)
        self._processes = meter.create_histogram(processes, "s", explicit_bucket_boundaries_advisory=bounds)
        self._sent = meter.create_counter(names.SENT_MESSAGES, "{message}")
        self._consumed = meter.create_counter(names.CONSUMED_MESSAGES, "{message}")
        self._base: Attributes = {
            names.SYSTEM: names.ROCKETMQ,
            names.NAMESPACE: namespace,
            names.CLIENT_ID: client_id,
        }
        self._prefix = f"{namespace}%" if namespace else ""
        self._address_of = address_of

    def _plain(self, topic: str) -> str:
        return topic.removeprefix(self._prefix)

    def _attributes(self, operation: str, topic: str) -> Attributes:
        return {
            **self._base,
            names.OPERATION_NAME: operation,
            names.OPERATION_TYPE: operation,
            names.DESTINATION: topic,
        }

    # Sends

    @contextmanager
    def sending(
        self,
        topic: str,
        properties: Mapping[str, str],
        *,
        message_id: str | None = None,
        batch_count: int | None = None,
    ) -> Iterator[Sending]:
        """Measure a send; the caller notes its receipt. An exception makes the span an error."""
        topic = self._plain(topic)
        attributes = self._attributes(names.SEND, topic) | message_attributes(properties)
        if batch_count is not None:
            attributes[names.BATCH_COUNT] = batch_count
        elif message_id is not None:
            attributes[names.MESSAGE_ID] = message_id
        started_s = time.perf_counter()
        measured = {key: attributes[key] for key in (names.SYSTEM, names.OPERATION_NAME, names.DESTINATION)}
        span = self._tracer.start_span(f"{names.SEND} {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        sending = Sending(span)
        try:
            yield sending
        except (OrbitlogError, asyncio.CancelledError) as error:
            measured[names.ERROR_TYPE] = error_type(error)
            _fail(span, error)
            raise
        finally:
            if sending.receipt is not None:
                span.set_attributes(self._queue_attributes(sending.receipt.queue))
            span.end()
            self._operations.record(time.perf_counter() - started_s, measured)
            self._sent.add(batch_count or 1, measured)

    def _queue_attributes(self, queue: MessageQueue) -> Attributes:
        host, _, port = self._address_of(queue).rpartition(":")
        found: Attributes = {names.PARTITION: str(queue.queue_id), names.SERVER_ADDRESS: host}
        if port.isdecimal():
            found[names.SERVER_PORT] = int(port)
        return found

    # Deliveries

    def received(self, group: str, messages: Sequence[Received], started_ns: int) -> None:
        """Make the span of a call that waited for messages since `started_ns`.

        It is made when they have arrived: links must be known then, and a call without messages has no span.
        """
        topic = self._plain(messages[0].topic)
        attributes = self._attributes(names.RECEIVE, topic) | {names.CONSUMER_GROUP: group}
        measured = dict(attributes)
        del measured[names.CLIENT_ID]
        if len(messages) == 1:
            attributes |= {names.MESSAGE_ID: messages[0].message_id, names.PARTITION: str(messages[0].queue_id)}
        else:
            attributes[names.BATCH_COUNT] = len(messages)
        span = self._tracer.start_span(
            f"{names.RECEIVE} {topic}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=_links(messages[:_LINKS_MAX]),
            start_time=started_ns,
        )
        span.end()
        self._operations.record((time.time_ns() - started_ns) / 1e9, measured)

    def started(self, message: Received, group: str) -> Processing:
        """Start the `process` span of a message that is handed to the user."""
        topic = self._plain(message.topic)
        attributes = self._attributes(names.PROCESS, topic) | message_attributes(message.properties)
        queue = MessageQueue(message.stored.topic, message.broker_name, message.queue_id)
        attributes |= {names.CONSUMER_GROUP: group, names.MESSAGE_ID: message.message_id}
        attributes |= self._queue_attributes(queue)
        created = creation_context(message.properties)
        has_ambient = trace.get_current_span().get_span_context().is_valid
        links = _links([message]) if has_ambient else []
        span = self._tracer.start_span(
            f"{names.PROCESS} {topic}",
            context=None if has_ambient else created,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        if message.attempts:
            span.add_event("retry", {"attempts": message.attempts})
        measured = (names.SYSTEM, names.OPERATION_NAME, names.DESTINATION, names.CONSUMER_GROUP)
        processing = Processing(span, {key: attributes[key] for key in measured})
        self._consumed.add(1, processing.attributes)
        return processing

    def failed(self, span: Processing, error: Exception) -> None:
        """Note the exception of a listener."""
        span.error = error_type(error)
        span.span.record_exception(error)

    def settled(self, message: Received, group: str, span: Processing, *, success: bool) -> None:
        """End the span of a message that was acknowledged or failed."""
        attributes = span.attributes
        if not success:
            name = span.error or "retry"
            span.span.set_attribute(names.ERROR_TYPE, name)
            span.span.set_status(Status(StatusCode.ERROR, name))
            attributes = {**attributes, names.ERROR_TYPE: name}
        span.span.end()
        self._processes.record(time.perf_counter() - span.started_s, attributes)

    def released(self, span: Processing) -> None:
        """End the span of a message that was not settled."""
        span.span.add_event("not settled")
        span.span.end()

    def entered(self, span: Processing) -> AbstractContextManager[Any]:
        """Return a context in which the span is the current one."""
        return trace.use_span(span.span, record_exception=False, set_status_on_exception=False)


def _links(messages: Sequence[Received]) -> list[Link]:
    contexts = (creation_context(message.properties) for message in messages)
    return [Link(span_context(context)) for context in contexts if context is not None]


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute(names.ERROR_TYPE, error_type(error))
    span.set_status(Status(StatusCode.ERROR, str(error)[:1024]))
