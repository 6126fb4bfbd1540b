"""Process metrics under their usual names, and the version; from `/proc/self` if it exists."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from orbitlog.observe import metric_table as table
from orbitlog.observe.metric import Family, Reader, Row, single

_PROC = Path("/proc/self")


def process_reader(compat: str) -> Reader:
    """Return the reader of the process that calls this."""
    build = Row(table.BUILD_INFO.text(_version(), compat, platform.python_version()), 1)
    started_s = round(time.time() - _uptime_s(), 2)

    def read(_: int) -> Iterator[Family]:
        yield single(table.TARGET_INFO, 1)
        yield Family(table.BUILD_INFO, (build,))
        times = os.times()
        yield single(table.CPU_SECONDS, round(times.user + times.system, 2))
        yield single(table.START_TIME, started_s)
        if _PROC.exists():
            pages = int((_PROC / "statm").read_text().split()[1])
            yield single(table.RESIDENT_BYTES, pages * os.sysconf("SC_PAGE_SIZE"))
            yield single(table.OPEN_FDS, sum(1 for _ in (_PROC / "fd").iterdir()))
        yield single(table.MAX_FDS, os.sysconf("SC_OPEN_MAX"))

    return read


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("orbitlog")
    except PackageNotFoundError:
        return "unknown"


def _uptime_s() -> float:
    """Return the age of this process; 0 if it is unknown."""
    try:
        fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[19])  # starttime, field 22 of proc(5)
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return uptime_s - ticks / os.sysconf("SC_CLK_TCK")
