"""Context in message properties: the creation context of a message, as OpenTelemetry's Java instrumentation stores it.

Clients of 4.x and this client write `traceparent`, `tracestate` and `baggage`; gRPC clients of 5.x `TRACE_CONTEXT`.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

from orbitlog.formats.records.trace_context import TRACE_CONTEXT, TRACEPARENT

_VALUE_BYTES_MAX = 8_192


def context_properties(properties: Mapping[str, str], context: Context | None = None) -> dict[str, str]:
    """Return the properties that carry the current context; none if the application has set one itself."""
    if TRACEPARENT in properties or TRACE_CONTEXT in properties:
        return {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    # Baggage is free text: a value that a property cannot contain is left out.
    return {
        name: value
        for name, value in carrier.items()
        if value.isprintable() and name.isprintable() and len(value) <= _VALUE_BYTES_MAX and name not in properties
    }


def creation_context(properties: Mapping[str, str]) -> Context | None:
    """Return the context in which a message was created; None if its properties have none."""
    carrier = properties
    if TRACEPARENT not in properties:
        if TRACE_CONTEXT not in properties:
            return None
        carrier = {TRACEPARENT: properties[TRACE_CONTEXT]}
    context = propagate.extract(carrier, Context())
    return context if span_context(context).is_valid else None


def span_context(context: Context) -> SpanContext:
    """Return the context of the span in a context; an invalid one without a span."""
    return trace.get_current_span(context).get_span_context()
