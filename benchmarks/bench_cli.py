"""Duration of commands from start to end, elapsed and CPU time, beside Apache's mqadmin.

Every run is a separate process with a broker in this one, so its CPU time is its own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Reading, Report
from orbitlog.testing.running_broker import RunningBroker
from tests.interop.harness.packages import NotAvailable, apache_packages

_LIMIT_MS = 150
_APACHE = "5.5.0"
_GROUP = "command line: from start to end"
_COMMANDS = {
    "orbitlog --help": ("--help",),
    "orbitlog topic list": ("topic", "list"),
    "orbitlog mqadmin topicList": ("mqadmin", "topicList"),
    "orbitlog send": ("send", "BenchCommands", "body"),
}
# Sending needs the whole client; the limit is for what needs nothing heavy.
_WITHOUT_LIMIT = ("orbitlog send",)


class Spent(NamedTuple):
    """Milliseconds of one run."""

    cpu_ms: float
    wall_ms: float


def run(report: Report, *, rounds: int) -> None:
    program = str(Path(sys.executable).with_name("orbitlog"))
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        with RunningBroker(Path(directory, "store")) as broker:
            environment = {**os.environ, "ORBITLOG_NAME_SERVER": broker.address, "XDG_CONFIG_HOME": directory}
            for name, words in _COMMANDS.items():
                limit = None if name in _WITHOUT_LIMIT else _LIMIT_MS
                _add(report, name, [_spent([program, *words], environment, directory) for _ in range(rounds)], limit)
            _run_apache(report, broker.address, environment, directory, rounds)


def _run_apache(report: Report, address: str, environment: dict[str, str], directory: str, rounds: int) -> None:
    try:
        packages = apache_packages(_APACHE)
    except NotAvailable as reason:
        print(f"  without Apache's mqadmin: {reason}")
        return
    java = [str(packages.java), "-cp", packages.class_path, "org.apache.rocketmq.tools.command.MQAdminStartup"]
    command = [*java, "topicList", "-n", address]
    spent = [_spent(command, environment, directory) for _ in range(max(rounds // 2, 1))]
    _add(report, f"baseline: mqadmin topicList of {_APACHE}", spent, None)


def _add(report: Report, name: str, spent: list[Spent], limit_ms: float | None) -> None:
    best = Spent(min(each.cpu_ms for each in spent), min(each.wall_ms for each in spent))
    report.read(Reading(_GROUP, f"{name}: CPU time", best.cpu_ms, "ms", limit_ms))
    report.read(Reading(_GROUP, f"{name}: elapsed", best.wall_ms, "ms"))


def _spent(command: list[str], environment: dict[str, str], directory: str) -> Spent:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment, cwd=directory, timeout=120)
    wall_ms = (time.perf_counter() - started) * 1000
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Spent((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000, wall_ms)
