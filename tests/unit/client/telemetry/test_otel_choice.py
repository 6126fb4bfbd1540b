"""The choice of OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys

from orbitlog.client.telemetry.otel_choice import wants_otel


def test_choice_of_the_caller_counts() -> None:
    assert wants_otel(True) and not wants_otel(False)


def in_process(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_without_a_provider_nothing_is_imported() -> None:
    script = """
import sys
from orbitlog.client.telemetry.otel_choice import wants_otel
print(wants_otel(None), any(name.startswith("opentelemetry") for name in sys.modules))
"""
    assert in_process(script) == "False False"


def test_provider_of_the_application_switches_it_on() -> None:
    script = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from orbitlog.client.telemetry.otel_choice import wants_otel
before = wants_otel(None)
trace.set_tracer_provider(TracerProvider())
print(before, wants_otel(None))
"""
    assert in_process(script) == "False True"
