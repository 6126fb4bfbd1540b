"""Loop lag: measures how late a timer of 100 ms fires, which is how long requests wait for the event loop."""

from __future__ import annotations

import asyncio

from orbitlog.observe.metric import Histogram
from orbitlog.observe.metric_table import LOOP_LAG

_INTERVAL_S = 0.1


class LoopLag:
    """Observes one event loop from `start` to `stop`."""

    def __init__(self) -> None:
        self.seconds = Histogram(LOOP_LAG.buckets)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Observe this loop."""
        self._loop = loop
        self._plan()

    def stop(self) -> None:
        """Observe no longer."""
        if self._timer is not None:
            self._timer.cancel()

    def _plan(self) -> None:
        assert self._loop is not None
        self._due_s = self._loop.time() + _INTERVAL_S
        self._timer = self._loop.call_at(self._due_s, self._fire)

    def _fire(self) -> None:
        assert self._loop is not None
        self.seconds.observe(max(self._loop.time() - self._due_s, 0.0))
        self._plan()
