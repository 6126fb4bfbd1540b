"""A trace from a Java producer with OpenTelemetry's agent to a Python consumer, received by one collector."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness.packages import ApachePackages, NotAvailable, otel_javaagent
from tests.interop.harness.processes import java_command, run_program
from tests.interop.harness.systems import ORBITLOG, make_system
from tests.support.otlp_receiver import span_receiver

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).with_name("orbitlog")
ROUNDS, SENT = 5, 3  # every third message goes to another topic
CONSUMER = """
import sys, orbitlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
cluster, target, topic, count = sys.argv[1:]
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=target, insecure=True)))
trace.set_tracer_provider(provider)
with orbitlog.connect(cluster) as mq, mq.consume(topic, group="python", start_from="first") as consumer:
    for _ in range(int(count)):
        consumer.next(seconds=60).ack()
provider.shutdown()
"""


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_python_consumer_continues_the_trace_of_a_java_producer(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages]
) -> None:
    try:
        agent = otel_javaagent()
    except NotAvailable as reason:
        pytest.skip(str(reason))
    system = make_system(ORBITLOG, tmp_path / "system", packages_of, {})
    system.start()
    try:
        with span_receiver() as (received, target):
            options = (
                f"-javaagent:{agent}",
                "-Dotel.service.name=java",
                f"-Dotel.exporter.otlp.endpoint=http://{target}",
                *("-Dotel.exporter.otlp.protocol=grpc", "-Dotel.metrics.exporter=none", "-Dotel.logs.exporter=none"),
            )
            sent = run_program(
                java_command(packages_of(version), tmp_path / "java", options=options),
                "SendSome",
                [system.name_server_address, system.broker_address, "Traced", "plain", f"rounds={ROUNDS}"],
            )
            sent = [row for row in sent if row["topic"] == "TracedPlain"]
            assert len(sent) == SENT, sent
            words = [f"rocketmq://{system.name_server_address}", target, "TracedPlain", str(SENT)]
            done = subprocess.run([sys.executable, "-c", CONSUMER, *words], capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
        publishing = {span.span_id: span for span in received if "publish" in span.name and "TracedPlain" in span.name}
        processing = [span for span in received if span.name == "process TracedPlain"]
        assert len(processing) == SENT, [span.name for span in received]
        for span in processing:
            assert span.trace_id == publishing[span.parent_span_id].trace_id
        command = [str(PROGRAM), "message", "trace", sent[0]["msgId"], "--topic", "TracedPlain"]
        shown = subprocess.run(
            [*command, "--json", "-n", system.name_server_address], capture_output=True, text=True, timeout=60
        )
        rows = [json.loads(line) for line in shown.stdout.splitlines()]
        assert rows and rows[0]["step"] == "OpenTelemetry context", (shown.stdout, shown.stderr)
        assert any(span.trace_id.hex() in rows[0]["detail"] for span in processing)
    finally:
        system.kill()
