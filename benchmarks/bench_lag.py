"""Latency from append to dispatched at a steady rate.

One thread does what a broker's loop does: it appends due messages, dispatches, and sleeps until the next one is due.
Another flushes log and derived files, as often as Java does.
"""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench_store import now_ms
from benchmarks.make_log import template
from benchmarks.measure import Reading, Report, percentiles
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig

RATE = 20_000
_BODY_BYTES = 128
_LIMIT_MS = 5.0


@dataclass
class Paced:
    """What one paced run measured."""

    lags_ms: list[float] = field(default_factory=list)
    busy_seconds: float = 0.0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0


def run(report: Report, *, seconds: float) -> None:
    group = f"dispatch lag at {RATE:,} msg/s for {seconds:g} s, {_BODY_BYTES} B bodies, files flushed meanwhile"
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        with MessageStore.open(Path(directory, "store"), StoreConfig(), now_ms) as store:
            paced = _paced(store, seconds)
    p50, p99 = percentiles(paced.lags_ms)
    report.read(Reading(group, "append to dispatched, p50", p50, "ms"))
    report.read(Reading(group, "append to dispatched, p99", p99, "ms", _LIMIT_MS))
    report.read(Reading(group, "append to dispatched, longest", max(paced.lags_ms), "ms"))
    rate = len(paced.lags_ms) / paced.wall_seconds
    report.read(Reading(group, "messages appended and dispatched", rate, "msg/s"))
    report.read(Reading(group, "appending and dispatching, of one core", 100 * paced.busy_seconds / seconds, "%"))
    report.read(Reading(group, "the whole process, of one core", 100 * paced.cpu_seconds / paced.wall_seconds, "%"))


def _paced(store: MessageStore, seconds: float) -> Paced:
    messages = [
        template(number, b"x" * _BODY_BYTES, f"TopicOrderEvents{number % 16:02d}", number % 8) for number in range(1000)
    ]
    ended = threading.Event()
    flusher = threading.Thread(target=_flush, args=(store, ended))
    flusher.start()
    paced, appended_at, sent = Paced(), [0.0] * int(RATE * seconds), 0
    cpu_started, started = time.process_time(), time.perf_counter()
    try:
        while len(paced.lags_ms) < len(appended_at):
            turn_started = time.perf_counter()
            due = min(int((turn_started - started) * RATE), len(appended_at))
            while sent < due:
                store.append(messages[sent % 1000])
                appended_at[sent] = time.perf_counter()
                sent += 1
            arrivals = len(store.dispatch_once())
            dispatched_at = time.perf_counter()
            done = len(paced.lags_ms)
            paced.lags_ms += [(dispatched_at - at) * 1e3 for at in appended_at[done : done + arrivals]]
            paced.busy_seconds += dispatched_at - turn_started
            store.prepare_once()
            time.sleep(max(0.0, started + (sent + 1) / RATE - time.perf_counter()))
    finally:
        ended.set()
        flusher.join()
    paced.wall_seconds = time.perf_counter() - started
    paced.cpu_seconds = time.process_time() - cpu_started
    return paced


def _flush(store: MessageStore, ended: threading.Event) -> None:
    turn = 0
    while not ended.wait(0.5):
        turn += 1
        if turn % 2:
            store.flush_log()
        else:
            store.flush_derived()
