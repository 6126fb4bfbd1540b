"""Thread pace: long work in a thread is followed by a rest, because it contends with the event loop.

The loop takes the interpreter lock for each of its callbacks, and waits for it while a thread encodes a table. A peer
that changes a table, or asks for one, without a pause would make every other client wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REST_FACTOR = 9
"""Rest for each second of work: a tenth of the time is worked."""
REST_SECONDS_MAX = 0.5
SHORT_SECONDS = 0.005
"""Shorter work needs no rest."""


class ThreadPace:
    """The pace of one kind of work, of which one piece is done at a time."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._rests_until_s = 0.0

    async def rest(self) -> None:
        """Return when the rest after the last work is over."""
        if (rest_s := self._rests_until_s - self._now_s()) > 0:
            await asyncio.sleep(rest_s)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Measure one piece of work."""
        begun_s = self._now_s()
        try:
            yield
        finally:
            ended_s = self._now_s()
            if (taken_s := ended_s - begun_s) > SHORT_SECONDS:
                self._rests_until_s = ended_s + min(taken_s * REST_FACTOR, REST_SECONDS_MAX)
