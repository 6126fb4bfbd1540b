"""The broker's own processor time for sends, batches and pulls: frames in, answers out, no socket between."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from benchmarks.hot_path import QUEUES, HotPath, batches, hot_path_at, pulls, sends
from benchmarks.measure import Reading, Report

GROUP = "the broker's own processor time, 128 B bodies"
PIPELINED = 64
MEMBERS = 32
ROUNDS = 3


def run(report: Report, *, count: int) -> None:
    """Measure with about `count` messages a round."""
    with tempfile.TemporaryDirectory(prefix="orbitlog-hot-path-") as directory:
        uvloop.run(_run(report, Path(directory), count))


async def _run(report: Report, root: Path, count: int) -> None:
    async with hot_path_at(root) as path:
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000)
        try:
            single = sends(count, first=1)
            together = [b"".join(single[at : at + PIPELINED]) for at in range(0, count, PIPELINED)]
            _measure(report, path, "one send a read", single, len(single), 1)
            _measure(report, path, f"{PIPELINED} sends a read", together, len(single), PIPELINED)
            batched = batches(count // MEMBERS)
            _measure(report, path, f"batch of {MEMBERS} a read", batched, len(batched) * MEMBERS, MEMBERS)
            pulled = pulls(range(0, count // QUEUES, MEMBERS))
            _measure(report, path, f"pull of {MEMBERS} a read", pulled, len(pulled) * MEMBERS, 0)
        finally:
            gc.unfreeze()
            gc.set_threshold(700)


def _measure(report: Report, path: HotPath, name: str, reads: Sequence[bytes], messages: int, a_read: int) -> None:
    """Take what a step costs in the quieter moments: the rest is what else the machine does."""
    answering, dispatching = _steps(path, reads * ROUNDS, a_read)
    per_message = len(answering) / ROUNDS / messages * 1e6
    report.read(Reading(GROUP, f"{name}: until the answer", _quiet(answering) * per_message, "µs"))
    if a_read:
        report.read(Reading(GROUP, f"{name}: dispatch", _quiet(dispatching) * per_message, "µs"))


def _quiet(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 5]


def _steps(path: HotPath, reads: Sequence[bytes], a_read: int) -> tuple[list[float], list[float]]:
    """Return processor seconds of each step for answering and for dispatching: 64 messages or more."""
    answering, dispatching = [], []
    clock: Callable[[], float] = time.process_time
    every = max(PIPELINED // a_read, 1) if a_read else 1
    for at in range(0, len(reads), every):
        started = clock()
        for data in reads[at : at + every]:
            path.feed(data)
        answered = clock()
        path.dispatch()
        answering.append(answered - started)
        dispatching.append(clock() - answered)
    return answering, dispatching
