"""Processes of a Spark that runs, found below /proc by what they were started with."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

PLANS_STREAMS = b"python_streaming_source_runner"


def processes(is_wanted: Callable[[int, bytes], bool]) -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                if is_wanted(int(process.name), (process / "cmdline").read_bytes()):
                    found.append(int(process.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def parent(pid: int) -> int:
    return int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])


def kill_planners() -> int:
    """Kill the processes that plan streams for this driver; returns how many there were."""
    found = processes(lambda pid, words: PLANS_STREAMS in words and _is_below(pid, os.getpid()))
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def _is_below(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = parent(pid)
    return pid == ancestor
