"""Traces from producer to consumer, received by an OTLP collector that the SDK's exporter sends to."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from orbitlog.client.telemetry import otel_spans
from orbitlog.errors import NoRoute
from orbitlog.testing.running_broker import RunningBroker
from tests.support.cluster_commands import objects
from tests.support.otlp_receiver import span_receiver

JAVA_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
JAVA_PARENT = f"00-{JAVA_TRACE}-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"defaultTopicQueueNums": "1"}
    with RunningBroker(tmp_path_factory.mktemp("traces") / "store", settings) as running:
        yield running


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Spans of this process; a provider can be set only once, so clients get the tracer of this one."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(otel_spans.trace, "get_tracer", provider.get_tracer)
    return exporter


def by_name(exporter: InMemorySpanExporter) -> dict[str, Any]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_process_span_continues_the_send_span(broker: RunningBroker, spans: InMemorySpanExporter) -> None:
    with broker.connect(otel=True) as mq:
        receipt = mq.send("Orders", b"one", tags="new", keys=["42"])
        with mq.consume("Orders", group="billing", start_from="first") as consumer:
            message = consumer.next(seconds=20)
            assert message is not None
            message.ack()
    found = by_name(spans)
    send, receive, process = found["send Orders"], found["receive Orders"], found["process Orders"]
    assert process.context.trace_id == send.context.trace_id
    assert process.parent.span_id == send.context.span_id
    assert [link.context.span_id for link in receive.links] == [send.context.span_id]
    assert [span.kind.name for span in (send, receive, process)] == ["PRODUCER", "CLIENT", "CONSUMER"]
    attributes = send.attributes
    assert attributes["messaging.system"] == "rocketmq"
    assert attributes["messaging.destination.name"] == "Orders"
    assert attributes["messaging.operation.name"] == attributes["messaging.operation.type"] == "send"
    assert attributes["messaging.message.id"] == receipt.message_id == process.attributes["messaging.message.id"]
    assert attributes["messaging.destination.partition.id"] == "0"
    assert (attributes["messaging.rocketmq.message.tag"], attributes["messaging.rocketmq.message.keys"]) == (
        "new",
        ("42",),
    )
    assert attributes["server.address"] == "127.0.0.1" and attributes["server.port"] > 0
    assert process.attributes["messaging.consumer.group.name"] == "billing"
    assert "messaging.batch.message_count" not in attributes


def test_batch_has_one_span_and_its_receiver_a_link_to_each(broker: RunningBroker, spans: InMemorySpanExporter) -> None:
    async def work() -> int:
        async with broker.connect(otel=True) as mq:
            await mq.send_batch("Batches", ["one", "two", "three"], properties={"colour": "red"})
            async with mq.consume("Batches", group="batches", start_from="first") as consumer:
                async for batch in consumer.batches(3):
                    return len(batch)
        return 0

    count = asyncio.run(work())
    send = by_name(spans)["send Batches"]
    receive = by_name(spans)["receive Batches"]
    assert send.attributes["messaging.batch.message_count"] == 3
    assert len(receive.links) == count
    assert {link.context.span_id for link in receive.links} == {send.context.span_id}


def test_listener_runs_inside_its_span_and_its_failure_is_an_error(
    broker: RunningBroker, spans: InMemorySpanExporter
) -> None:
    async def work() -> None:
        async with broker.connect(otel=True) as mq:
            await mq.send("Failing", b"one")
            consumer = await mq.consume("Failing", group="failing", start_from="first")

            async def listener(_: object) -> None:
                await mq.send("Inner", b"sent by a listener")
                await asyncio.shield(asyncio.ensure_future(close_soon()))
                raise ValueError("refused")

            async def close_soon() -> None:
                asyncio.get_running_loop().call_soon(lambda: tasks.append(asyncio.create_task(consumer.close())))

            tasks: list[asyncio.Task[None]] = []
            await consumer.run(listener, concurrency=1)
            await asyncio.gather(*tasks)

    asyncio.run(work())
    found = by_name(spans)
    process, inner = found["process Failing"], found["send Inner"]
    assert inner.parent.span_id == process.context.span_id
    assert process.status.status_code.name == "ERROR" and process.attributes["error.type"] == "ValueError"
    assert [event.name for event in process.events] == ["exception"]


def test_failed_send_is_an_error(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    settings = {"autoCreateTopicEnable": "false"}
    with RunningBroker(tmp_path / "store", settings) as broker, broker.connect(otel=True) as mq:
        with pytest.raises(NoRoute):
            mq.send("Missing", b"x", timeout=1)
    span = by_name(spans)["send Missing"]
    assert span.attributes["error.type"] == "NoRoute" and span.status.status_code.name == "ERROR"


@pytest.mark.parametrize("property_name", ["traceparent", "TRACE_CONTEXT"])
def test_context_of_javas_instrumentation_is_continued(
    broker: RunningBroker, spans: InMemorySpanExporter, property_name: str
) -> None:
    topic = f"Java-{property_name}"
    with broker.connect(otel=False) as mq:
        receipt = mq.send(topic, b"one", properties={property_name: JAVA_PARENT})
    with broker.connect(otel=True) as mq, mq.consume(topic, group=f"g-{property_name}", start_from="first") as consumer:
        message = consumer.next(seconds=20)
        assert message is not None
        message.ack()
    process = by_name(spans)[f"process {topic}"]
    assert f"{process.context.trace_id:032x}" == JAVA_TRACE
    rows = objects(broker.address.removeprefix("rocketmq://"), "message", "trace", receipt.message_id, "--topic", topic)
    assert JAVA_TRACE in rows[0]["detail"] and rows[0]["step"] == "OpenTelemetry context"


def test_message_trace_shows_both_kinds(broker: RunningBroker, spans: InMemorySpanExporter) -> None:
    with broker.connect(otel=True, trace=True) as mq:
        receipt = mq.send("Both", b"one")
    rows = objects(broker.address.removeprefix("rocketmq://"), "message", "trace", receipt.message_id)
    assert [row["step"] for row in rows] == ["OpenTelemetry context", "sent"]
    trace_id = f"{by_name(spans)['send Both'].context.trace_id:032x}"
    assert trace_id in rows[0]["detail"]


def test_messages_without_opentelemetry_have_no_further_properties(broker: RunningBroker) -> None:
    with broker.connect() as mq:
        receipt = mq.send("Plain", b"one")
        message = mq.admin.message(receipt.message_id, "Plain")
    assert message is not None and not {"traceparent", "baggage"} & message.properties.keys()


SCRIPT = """
import sys, orbitlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
role, cluster, target = sys.argv[1:]
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=target, insecure=True)))
trace.set_tracer_provider(provider)
with orbitlog.connect(cluster) as mq:
    if role == "producer":
        with trace.get_tracer("app").start_as_current_span("checkout"):
            mq.send("EndToEnd", b"one")
    else:
        with mq.consume("EndToEnd", group="e2e", start_from="first") as consumer:
            consumer.next(seconds=30).ack()
provider.shutdown()
"""


def test_trace_from_process_to_process_reaches_a_collector(broker: RunningBroker) -> None:
    with span_receiver() as (received, target):
        for role in ("producer", "consumer"):
            command = [sys.executable, "-c", SCRIPT, role, broker.address, target]
            done = subprocess.run(command, capture_output=True, text=True, timeout=90, cwd=Path(__file__).parent)
            assert done.returncode == 0, done.stderr
    found = {span.name: span for span in received}
    checkout, send, process = found["checkout"], found["send EndToEnd"], found["process EndToEnd"]
    assert send.parent_span_id == checkout.span_id and process.parent_span_id == send.span_id
    assert checkout.trace_id == send.trace_id == process.trace_id
    assert send.status.code == Status.STATUS_CODE_UNSET
