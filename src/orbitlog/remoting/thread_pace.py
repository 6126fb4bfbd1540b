"""Thread pace: long work in a thread is followed by a rest, because it contends with the event loop.

The loop takes the interpreter lock for each of its callbacks, and waits for it while a thread encodes a table. A peer
that changes a table, or asks for one, without a pause would make every other client wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

REST_FACTOR = 9
"""Rest for each second of work: a tenth of the time is worked."""
REST_SECONDS_MAX = 0.5
SHORT_SECONDS = 0.005
"""Shorter work needs no rest."""


class ThreadPace:
    """The pace of one kind of work. Only processor time counts: a thread that waits for a disk contends with none."""

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, worked_s: Callable[[], float] = time.thread_time
    ) -> None:
        self._now_s = now_s
        self._worked_s = worked_s
        self._rests_until_s = 0.0

    async def rest(self) -> None:
        """Return when the rest after the last work is over."""
        if (rest_s := self._rests_until_s - self._now_s()) > 0:
            await asyncio.sleep(rest_s)

    def paced(self, work: Callable[P, R]) -> Callable[P, R]:
        """Return a call that measures the processor time which it takes in its thread."""

        @wraps(work)
        def call(*arguments: P.args, **options: P.kwargs) -> R:
            begun_s = self._worked_s()
            try:
                return work(*arguments, **options)
            finally:
                if (taken_s := self._worked_s() - begun_s) > SHORT_SECONDS:
                    now_s = self._now_s()
                    rests_until_s = max(self._rests_until_s, now_s) + taken_s * REST_FACTOR
                    self._rests_until_s = min(rests_until_s, now_s + REST_SECONDS_MAX)

        return call
