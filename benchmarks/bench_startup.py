"""Time to open a store: with many queues, and with a long log; closed cleanly, and killed.

Each opening is a separate process, so that loading the kernels counts; the page cache is warm. Logs are written, not
sparse.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

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
    group = f"start-up with a log of {gigabytes:g} GB, 1 KB bodies, written to disk"
    _run(report, group, shape, clean_limit_s=_CLEAN_LIMIT_S, killed_limit_s=None)


def _run(report: Report, group: str, shape: LogShape, *, clean_limit_s: float, killed_limit_s: float | None) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        root = Path(directory, "store")
        write_log(root, shape)
        _add(report, group, "nothing derived yet", [_open(root, "close")], None)
        _add(report, group, "closed cleanly", [_open(root, "close") for _ in range(_ROUNDS)], clean_limit_s)
        killed = []
        for _ in range(_ROUNDS):
            _open(root, "kill", _KILLED_AFTER)
            killed.append(_open(root, "close"))
        _add(report, group, f"killed, {_KILLED_AFTER:,} messages unflushed", killed, killed_limit_s)


class Opening(NamedTuple):
    """Elapsed seconds, CPU seconds, and seconds for closing."""

    seconds: float
    cpu_seconds: float
    closing_seconds: float


def _add(report: Report, group: str, what: str, openings: list[Opening], limit_s: float | None) -> None:
    middle = sorted(openings)[len(openings) // 2]
    report.read(Reading(group, f"opened: {what}", middle.seconds, "s", limit_s))
    report.read(Reading(group, f"opened: {what}; CPU time", middle.cpu_seconds, "s"))


def _open(root: Path, how: str, count: int = 0) -> Opening:
    command = [sys.executable, "-m", "benchmarks.open_store", str(root), how, str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Opening(*map(float, done.stdout.split()))
