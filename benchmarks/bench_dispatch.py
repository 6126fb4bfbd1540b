"""Latency from append to dispatched when a Spark query owns dispatch.

One process has the store open and appends messages at a steady rate, as a broker does; `orbitlog pipeline dispatch` is
another. A message has arrived when the first process has followed the mark of the second past it, and could answer a
held pull. The start of Spark and its first seconds, in which the JVM compiles, are reported separately.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bench_store import now_ms
from benchmarks.make_log import template
from benchmarks.measure import Reading, Report
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig

RATE = 20_000
_BODY_BYTES = 128
_LIMIT_MS = 300.0
_TICK_S = 0.002


def run(report: Report, *, seconds: float, warm_seconds: float = 20.0) -> None:
    group = f"dispatch by a Spark query at {RATE:,} msg/s for {seconds:g} s, {_BODY_BYTES} B bodies"
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        root = Path(directory, "store")
        with MessageStore.open(root, StoreConfig(dispatch_engine="spark"), now_ms) as store:
            started = time.perf_counter()
            command = [str(Path(sys.executable).with_name("orbitlog")), "pipeline", "dispatch", str(root), "--json"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                try:
                    assert child.stdout is not None
                    assert json.loads(child.stdout.readline())["event"] == "taken"
                    took_s = time.perf_counter() - started
                    lags_ms = _paced(store, child, seconds + warm_seconds)
                finally:
                    child.terminate()
                    _follow_until_end(store, child)
    steady = lags_ms[int(warm_seconds * RATE) :]
    cut = statistics.quantiles(steady, n=100)
    report.read(Reading(group, "starting Spark and taking the lease", took_s, "s"))
    report.read(Reading(group, "append to arrived, p50", cut[49], "ms", _LIMIT_MS))
    report.read(Reading(group, "append to arrived, p95", cut[94], "ms"))
    report.read(Reading(group, "append to arrived, p99", cut[98], "ms"))
    report.read(Reading(group, "append to arrived, longest", max(steady), "ms"))


def _paced(store: MessageStore, child: subprocess.Popen[str], seconds: float) -> list[float]:
    messages = [
        template(number, b"x" * _BODY_BYTES, f"TopicOrderEvents{number % 16:02d}", number % 8) for number in range(1000)
    ]
    appended_at, sent = [0.0] * int(RATE * seconds), 0
    lags_ms: list[float] = []
    started = flushed = time.perf_counter()
    while len(lags_ms) < len(appended_at):
        assert child.poll() is None, "the query ended by itself"
        now = time.perf_counter()
        due = min(int((now - started) * RATE), len(appended_at))
        while sent < due:
            store.append(messages[sent % 1000])
            appended_at[sent] = time.perf_counter()
            sent += 1
        arrivals = len(store.dispatch_once())
        arrived_at, done = time.perf_counter(), len(lags_ms)
        lags_ms += [(arrived_at - at) * 1e3 for at in appended_at[done : done + arrivals]]
        if arrived_at - flushed > 1:
            store.flush_derived()
            flushed = arrived_at
        store.prepare_once()
        time.sleep(_TICK_S)
    return lags_ms


def _follow_until_end(store: MessageStore, child: subprocess.Popen[str]) -> None:
    while child.poll() is None:
        store.dispatch_once()
        time.sleep(0.01)
