"""Context in message properties: what this client writes, and what Java's instrumentation does."""

from __future__ import annotations

from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from orbitlog.client.telemetry.otel_context import context_properties, creation_context, span_context
from orbitlog.formats.records.trace_context import creation_ids

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"


def current() -> Context:
    span = SpanContext(int(TRACE, 16), int(SPAN, 16), is_remote=False, trace_flags=TraceFlags(1))
    return trace.set_span_in_context(NonRecordingSpan(span), Context())


def test_context_is_written_as_w3c_headers() -> None:
    context = baggage.set_baggage("tenant", "a", current())
    assert context_properties({}, context) == {"traceparent": HEADER, "baggage": "tenant=a"}


def test_context_of_the_application_is_left_alone() -> None:
    assert context_properties({"traceparent": "mine"}, current()) == {}
    assert context_properties({"TRACE_CONTEXT": "mine"}, current()) == {}


def test_both_forms_of_java_are_read() -> None:
    for properties in ({"traceparent": HEADER}, {"TRACE_CONTEXT": HEADER}):
        context = creation_context(properties)
        assert context is not None
        assert f"{span_context(context).trace_id:032x}" == TRACE
        assert f"{span_context(context).span_id:016x}" == SPAN


def test_missing_and_invalid_contexts_are_ignored() -> None:
    for text in ("", "00-0-0-01", f"00-{'0' * 32}-{SPAN}-01", "x" * 70):
        assert creation_context({"traceparent": text}) is None
        assert creation_ids({"traceparent": text}) is None
    assert creation_context({}) is None


def test_ids_for_the_command_line() -> None:
    ids = creation_ids({"TRACE_CONTEXT": HEADER})
    assert ids is not None and (ids.trace_id, ids.span_id, ids.is_sampled) == (TRACE, SPAN, True)
