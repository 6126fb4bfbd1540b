"""OTLP requests: names, units, totals and changes, and the binary form read by OpenTelemetry's own classes."""

from __future__ import annotations

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from orbitlog.observe import metric_table as table
from orbitlog.observe.metric import Family, Histogram, Metric, Row, single
from orbitlog.observe.otlp_metrics import Json, MetricPoints, OtlpEncoder, attributes, frozen, otlp_name
from orbitlog.observe.otlp_protobuf import encode_request

SHARED = 'cluster="c",otel_scope_name="broker-meter"'
LIMIT = 1000


def collected(in_total: int, sizes: Histogram) -> list[MetricPoints]:
    labels = table.MESSAGES_IN.text('a "b"\n', "normal", False)
    families = (
        single(table.TARGET_INFO, 1),
        Family(table.MESSAGES_IN, (Row(labels, in_total),)),
        Family(table.MESSAGE_SIZE, (Row(labels, sizes),)),
        single(table.STORAGE_SIZE, 12),
        single(table.DISK_USED_RATIO, 0.25),
        single(table.CPU_SECONDS, 1.5),
    )
    return [frozen(family, LIMIT) for family in families]


def encoder(*, in_delta: bool = False) -> OtlpEncoder:
    return OtlpEncoder(SHARED, (("service.name", "orbitlog"),), in_delta=in_delta, started_ns=1)


def metrics_of(request: Json) -> dict[str, Json]:
    [resource] = request["resourceMetrics"]
    [scope] = resource["scopeMetrics"]
    assert scope["scope"] == {"name": "broker-meter"}
    return {metric["name"]: metric for metric in scope["metrics"]}


def test_names_have_no_suffix_and_a_unit() -> None:
    assert otlp_name(table.RPC_LATENCY) == ("rocketmq_rpc_latency", "milliseconds")
    assert otlp_name(table.STORAGE_SIZE) == ("rocketmq_storage_size", "bytes")
    assert otlp_name(table.MESSAGES_IN) == ("rocketmq_messages_in", "")
    assert otlp_name(Metric("x_seconds_total", "counter", "")) == ("x", "seconds")


def test_labels_become_attributes() -> None:
    text = table.MESSAGES_IN.text('a\\ "b"\n,c', "normal", True)
    found = {pair["key"]: pair["value"]["stringValue"] for pair in attributes(text, SHARED)}
    assert found == {"topic": 'a\\ "b"\n,c', "message_type": "normal", "is_system": "true", "cluster": "c"}


def test_totals_since_the_start() -> None:
    sizes = Histogram(table.MESSAGE_SIZE.buckets)
    sizes.observe(10)
    encoding = encoder()
    for now_ns in (5, 9):
        [request] = encoding.requests(collected(3, sizes), now_ns, LIMIT)
        metrics = metrics_of(request)
        counter = metrics["rocketmq_messages_in"]["sum"]
        assert (counter["isMonotonic"], counter["aggregationTemporality"]) == (True, 2)
        [point] = counter["dataPoints"]
        assert (point["asInt"], point["startTimeUnixNano"], point["timeUnixNano"]) == ("3", "1", str(now_ns))
        [point] = metrics["rocketmq_message_size"]["histogram"]["dataPoints"]
        assert (point["count"], point["sum"], point["bucketCounts"][0]) == ("1", 10.0, "1")
        assert "target_info" not in metrics


def test_changes_since_the_last_export() -> None:
    sizes = Histogram(table.MESSAGE_SIZE.buckets)
    encoding, found = encoder(in_delta=True), []
    for total, now_ns in ((3, 5), (10, 9), (1, 12)):
        sizes.observe(10)
        [request] = encoding.requests(collected(total, sizes), now_ns, LIMIT)
        metrics = metrics_of(request)
        [point] = metrics["rocketmq_messages_in"]["sum"]["dataPoints"]
        [size] = metrics["rocketmq_message_size"]["histogram"]["dataPoints"]
        found.append((point["asInt"], point["startTimeUnixNano"], size["count"]))
        [gauge] = metrics["rocketmq_storage_size"]["gauge"]["dataPoints"]
        assert gauge["asInt"] == "12"
    # A counter that became smaller was reset: its whole value is the change.
    assert found == [("3", "1", "1"), ("7", "5", "1"), ("1", "9", "1")]


def test_collected_values_do_not_change_any_more() -> None:
    sizes = Histogram(table.MESSAGE_SIZE.buckets)
    kept = collected(1, sizes)
    sizes.observe(10)
    [request] = encoder().requests(kept, 5, LIMIT)
    [point] = metrics_of(request)["rocketmq_message_size"]["histogram"]["dataPoints"]
    assert point["count"] == "0"


def test_requests_have_a_maximum_of_points() -> None:
    rows = [Row(table.MESSAGES_IN.text(f"T{number}", "normal", False), number) for number in range(25)]
    kept = [frozen(single(table.STORAGE_SIZE, 1), LIMIT), frozen(Family(table.MESSAGES_IN, rows), LIMIT)]
    requests = list(encoder().requests(kept, 5, 10))
    counts = [
        sum(
            len(kind["dataPoints"])
            for metric in metrics_of(request).values()
            for kind in metric.values()
            if isinstance(kind, dict)
        )
        for request in requests
    ]
    assert counts == [1, 10, 10, 5]


def test_binary_form_is_that_of_opentelemetrys_classes() -> None:
    sizes = Histogram(table.MESSAGE_SIZE.buckets)
    for size in (1, 10**9, 5000):
        sizes.observe(size)
    [request] = encoder().requests(collected(2**40, sizes), 1_700_000_000_000_000_000, LIMIT)
    decoded = ExportMetricsServiceRequest.FromString(encode_request(request))
    assert decoded == ParseDict(request, ExportMetricsServiceRequest())
