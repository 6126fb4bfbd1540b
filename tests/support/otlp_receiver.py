"""An OTLP collector for spans: a gRPC server with the service of OpenTelemetry's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@contextmanager
def span_receiver() -> Iterator[tuple[list[Span], str]]:
    """Yield the spans received so far, and the address of the collector."""
    received: list[Span] = []

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, _: grpc.ServicerContext) -> Any:
            received.extend(
                span for each in request.resource_spans for scope in each.scope_spans for span in scope.spans
            )
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield received, f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
