"""Peak private memory of each kind of child process, sampled while they work.

Pages of mapped files, such as a log, are not counted: they belong to the page cache, and are reclaimed when memory is
short. Sampling takes some CPU time itself: do not use it while anything is timed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_EVERY_S = 0.05


class MemoryWatch:
    """Looks at the processes below this one again and again; `most_mib` holds the largest of each kind."""

    def __init__(self, kind_of: Callable[[str], str | None]) -> None:
        self._kind_of = kind_of
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.most_mib: dict[str, float] = {}

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            for pid in _below(os.getpid()):
                try:
                    kind = self._kind_of(Path("/proc", str(pid), "cmdline").read_text())
                    own_mib = _own_kib(pid) / 1024
                except (OSError, UnicodeDecodeError):
                    continue
                if kind is not None:
                    self.most_mib[kind] = max(self.most_mib.get(kind, 0.0), own_mib)


def _below(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                words = (process / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(words[1]), []).append(int(process.name))
    found, waiting = [pid], [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.append(child)
            waiting.append(child)
    return found


def _own_kib(pid: int) -> int:
    for line in Path("/proc", str(pid), "status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return 0


def spark_kind(command: str) -> str | None:
    """Return the kind of a process of a local Spark by its command line."""
    if "pyspark.daemon" in command:
        return "a Python worker"
    if "java" in command.partition("\0")[0]:
        return "the JVM"
    return "the driver" if "benchmarks" in command else None
