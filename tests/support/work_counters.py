"""Counters of work and memory, for limits that do not depend on a clock.

Work is the number of traced events: executed lines and calls of Python and C functions. The same input causes the same
number on any machine. What runs inside one C function counts as one, so regular expressions are counted elsewhere
(`tests/support/regex_steps.py`).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class _Tracer:
    """Counts events of the current thread until `stop`."""

    def __init__(self) -> None:
        self.count = 0

    def start(self) -> None:
        sys.settrace(self._trace)
        sys.setprofile(self._profile)

    def stop(self) -> int:
        sys.settrace(None)
        sys.setprofile(None)
        return self.count

    def _trace(self, _frame: FrameType, _event: str, _arg: Any) -> Any:
        self.count += 1
        return self._trace

    def _profile(self, _frame: FrameType, event: str, _arg: Any) -> None:
        if event == "c_call":
            self.count += 1


def steps_of(work: Callable[[], object]) -> int:
    """Return the number of lines and calls that `work` executes; an exception it raises passes through."""
    was_enabled = gc.isenabled()
    gc.disable()  # finalizers would be counted
    tracer = _Tracer()
    previous = sys.gettrace(), sys.getprofile()
    tracer.start()
    try:
        work()
    finally:
        count = tracer.stop()
        sys.settrace(previous[0])
        sys.setprofile(previous[1])
        if was_enabled:
            gc.enable()
    return count


def peak_bytes_of(work: Callable[[], object]) -> int:
    """Return by how many bytes the memory of Python objects grew at most while `work` ran."""
    gc.collect()
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


class LoopSteps:
    """The longest step of any asyncio event loop, in lines and calls, while `watched_loops` is active."""

    def __init__(self) -> None:
        self.longest = 0
        self.longest_callback = ""

    def note(self, count: int, handle: asyncio.Handle) -> None:
        if count > self.longest:
            self.longest = count
            self.longest_callback = repr(handle)


@contextmanager
def watched_loops() -> Iterator[LoopSteps]:
    """Count the work of each callback that an asyncio event loop runs, in any thread; not that of uvloop."""
    steps = LoopSteps()
    run = asyncio.Handle._run

    def counted_run(self: asyncio.Handle) -> None:
        tracer = _Tracer()
        tracer.start()
        try:
            run(self)
        finally:
            steps.note(tracer.stop(), self)

    asyncio.Handle._run = counted_run  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
