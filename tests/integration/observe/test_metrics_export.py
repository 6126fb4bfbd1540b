"""Exports of a running broker to collectors over HTTP and gRPC, and into a log file."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from orbitlog.settings.setting import SettingError
from orbitlog.testing.running_broker import RunningBroker

SENT = 7


class Collector:
    """Requests that a collector got."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.refusals: list[int] = []
        """Statuses of the next responses."""

    def values(self, name: str) -> list[Any]:
        return [
            point
            for request in list(self.requests)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in (metric.sum or metric.gauge).data_points
        ]

    def has_counted(self, count: int) -> bool:
        topics = [
            point.as_int
            for point in self.values("rocketmq_messages_in")
            if any(pair.key == "topic" and pair.value.string_value == "T" for pair in point.attributes)
        ]
        return count in topics


@contextmanager
def http_collector() -> Iterator[tuple[Collector, str]]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
            status = collector.refusals.pop(0) if collector.refusals else 200
            if status == 200 and self.path == "/v1/metrics":
                collector.headers.append(dict(self.headers))
                collector.requests.append(Parse(body, ExportMetricsServiceRequest()))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collector, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def grpc_collector() -> Iterator[tuple[Collector, str]]:
    collector = Collector()

    class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: ExportMetricsServiceRequest, context: grpc.ServicerContext) -> Any:
            collector.headers.append(dict(context.invocation_metadata()))
            collector.requests.append(request)
            return metrics_service_pb2.ExportMetricsServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize(
    ("kind", "key", "make"),
    [
        ("OTLP_HTTP", "metricsHttpExporterTarget", http_collector),
        ("OTLP_GRPC", "metricsGrpcExporterTarget", grpc_collector),
    ],
)
def test_broker_exports_to_a_collector(tmp_path: Path, kind: str, key: str, make: Callable[..., Any]) -> None:
    with make() as (collector, target):
        settings = {
            "metricsExporterType": kind,
            key: target,
            "metricsGrpcExporterHeader": "x-team:orders",
            "metricGrpcExporterIntervalInMills": "100",
            "metricsExportBatchMaxDataPoints": "20",
        }
        with RunningBroker(tmp_path / "store", settings) as broker:
            for _ in range(SENT):
                broker.client.send("T", b"x")
            broker.wait_for(lambda: collector.has_counted(SENT), seconds=30)
            broker.client.send("T", b"last")
        # The values of a stopping broker are exported as well.
        assert collector.has_counted(SENT + 1)
    assert {name.lower(): value for name, value in collector.headers[0].items()}["x-team"] == "orders"
    [resource] = collector.requests[0].resource_metrics
    assert {pair.key: pair.value.string_value for pair in resource.resource.attributes} == {
        "service.name": "orbitlog",
        "service.instance.id": "broker-a",
    }


def test_collector_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    with http_collector() as (collector, target):
        collector.refusals += [503]
        settings = {
            "metricsExporterType": "OTLP_HTTP",
            "metricsHttpExporterTarget": target,
            "metricGrpcExporterIntervalInMills": "100",
        }
        with RunningBroker(tmp_path / "store", settings) as broker:
            broker.wait_for(lambda: collector.requests, seconds=30)
        assert not collector.refusals


def test_failing_export_is_logged_once_when_it_begins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "metricsExporterType": "OTLP_HTTP",
        "metricsHttpExporterTarget": "http://127.0.0.1:1",
        "metricGrpcExporterIntervalInMills": "100",
    }
    with RunningBroker(tmp_path / "store", settings) as broker:
        assert broker._broker is not None and broker._broker.meters is not None
        export: Any = broker._broker.meters._outlet
        broker.wait_for(lambda: export.counts["failure"] >= 3, seconds=30)
    assert [record.message for record in caplog.records if "metrics export fails" in record.message].__len__() == 1


def test_log_exporter_writes_one_object_a_line(tmp_path: Path) -> None:
    settings = {"metricsExporterType": "LOG", "metricLoggingExporterIntervalInMills": "100"}
    with RunningBroker(tmp_path / "store", settings) as broker:
        broker.client.send("T", b"x")
    lines = (tmp_path / "store" / "logs" / "metrics.log").read_text().splitlines()
    requests = [Parse(line, ExportMetricsServiceRequest()) for line in lines]
    assert requests and all(isinstance(json.loads(line), dict) for line in lines)


@pytest.mark.parametrize("kind", ["OTLP_HTTP", "OTLP_GRPC"])
def test_export_without_an_address_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(SettingError, match="needs the address of a collector"):
        RunningBroker(tmp_path / "store", {"metricsExporterType": kind}).start()
    assert not (tmp_path / "store" / "abort").exists(), "the store was opened, and counts as killed"
