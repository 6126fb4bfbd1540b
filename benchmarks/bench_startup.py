"""How long a store takes to open: with many queues, and with a long log; closed before, and killed.

Each opening is a process of its own, so that loading the kernels counts; the page cache is warm. Logs are really
written, not sparse.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.bulk_log import LogShape, write_log
from benchmarks.measure import Reading, Report

_QUEUES_LIMIT_S = 5.0
_CLEAN_LIMIT_S = 1.0
_KILLED_AFTER = 20_000
_ROUNDS = 3


def run_queues(report: Report, *, topics: int) -> None:
    shape = LogShape(count=topics * 8 * 10, body_bytes=128, topics=topics)
    group = f"start-up with {topics * 8:,} queues, 10 messages in each"
    _run(report, group, shape, clean_limit_s=_QUEUES_LIMIT_S, killed_limit_s=_QUEUES_LIMIT_S)


def run_log(report: Report, *, gigabytes: float) -> None:
    record_bytes = LogShape(1, 1024).record_bytes
    shape = LogShape(count=int(gigabytes * 1e9) // record_bytes, body_bytes=1024)
    group = f"start-up with a log of {gigabytes:g} GB, 1 KB bodies, really written"
    _run(report, group, shape, clean_limit_s=_CLEAN_LIMIT_S, killed_limit_s=None)


def _run(report: Report, group: str, shape: LogShape, *, clean_limit_s: float, killed_limit_s: float | None) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        root = Path(directory, "store")
        write_log(root, shape)
        derived, _ = _open(root, "close")
        report.read(Reading(group, "opened with nothing derived yet", derived, "s"))
        opened, closed = zip(*(_open(root, "close") for _ in range(_ROUNDS)), strict=True)
        report.read(Reading(group, "opened after a clean close", statistics.median(opened), "s", clean_limit_s))
        report.read(Reading(group, "closed", statistics.median(closed), "s"))
        killed = []
        for _ in range(_ROUNDS):
            _open(root, "kill", _KILLED_AFTER)
            killed.append(_open(root, "close")[0])
        name = f"opened after a kill, {_KILLED_AFTER:,} messages unflushed"
        report.read(Reading(group, name, statistics.median(killed), "s", killed_limit_s))


def _open(root: Path, how: str, count: int = 0) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.open_store", str(root), how, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    opened, ended = done.stdout.split()
    return float(opened), float(ended)
