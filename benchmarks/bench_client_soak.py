"""The client sends and consumes millions of messages at a broker, each in its own process.

Its memory stays constant after the first tenths of the run, and its event loop is never busy for long: with uvloop, and
with plain asyncio.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.broker_pairs import start_orbitlog
from benchmarks.compare_clients import python_client_of
from benchmarks.measure import Reading, Report
from benchmarks.python_load import LATE_MS

TOPIC = "Soak"
_GROWTH_LIMIT_MB = 24.0
_WARM_TENTHS = 3
_SECONDS_MAX = 7200


def run(report: Report, *, messages: int) -> None:
    for loop, count in (("uvloop", messages), ("asyncio", messages // 10)):
        with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
            _soak(report, Path(directory), loop, count)


def _soak(report: Report, directory: Path, loop: str, count: int) -> None:
    group = f"the client over {count:,} messages sent and consumed, {loop}"
    broker = start_orbitlog(directory, ())
    try:
        with python_client_of(broker, directory, loop) as load:
            load.run(f"topics {TOPIC} 1 8")
            told = load.run(f"soak {TOPIC} {count}", _SECONDS_MAX)
    finally:
        broker.stop()
    tenths = [told[f"mb{number}"] for number in range(1, 11) if f"mb{number}" in told]
    report.read(Reading(group, "sent and consumed", told["messages"] / told["seconds"], "msg/s"))
    report.read(Reading(group, "not sent, or not consumed", told["failed"], "messages", 1))
    for number, memory in enumerate(tenths, 1):
        report.read(Reading(group, f"memory after {number * 10} %", memory, "MB"))
    growth = max(tenths[_WARM_TENTHS:]) - max(tenths[:_WARM_TENTHS]) if len(tenths) > _WARM_TENTHS else 0.0
    report.read(Reading(group, "growth of memory since the third tenth", growth, "MB", _GROWTH_LIMIT_MB))
    report.read(Reading(group, "longest time that its event loop was busy", told["blockedMs"], "ms", LATE_MS))
    report.read(Reading(group, f"times above {LATE_MS:g} ms", told["late"], "times", 1))
