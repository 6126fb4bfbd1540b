"""Handshake turns: how much of the event loop's time and of a server's memory unfinished TLS handshakes may take.

A handshake costs a signature, a thousand times what a request costs. If several wait, addresses take turns, and after
each turn other connections are served for as long as it took.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable

from orbitlog.settings.limits import TLS_HANDSHAKE_PERCENT, TLS_HANDSHAKES_PER_ADDRESS, Limits

Step = Callable[[], None]
TURN_SECONDS = 0.005
_PERCENT = 100


class HandshakeTurns:
    """The handshakes of one server."""

    def __init__(self, limits: Limits, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._limits = limits
        self._now_s = now_s  # not the event loop's time, which stands still during a turn
        self._unfinished: Counter[str] = Counter()  # by address
        self._waiting: dict[str, deque[Step]] = {}  # by address, in the order of turns
        self._turn_planned: asyncio.TimerHandle | None = None
        self._next_s = 0.0

    def begin(self, address: str) -> bool:
        """Count an unfinished handshake; return False if it is one too many of its address."""
        if self._unfinished[address] >= self._limits[TLS_HANDSHAKES_PER_ADDRESS]:
            self._limits.reach(TLS_HANDSHAKES_PER_ADDRESS)
            return False
        self._unfinished[address] += 1
        return True

    def end(self, address: str) -> None:
        """Count the end of a handshake, finished or not."""
        self._unfinished[address] -= 1
        if not self._unfinished[address]:
            del self._unfinished[address]

    def take(self, address: str, step: Step) -> None:
        """Call `step` now, or in a later turn of the event loop if handshakes have used their share of its time."""
        if not self._waiting and self._now_s() >= self._next_s:
            self._spend(step)
            return
        self._waiting.setdefault(address, deque()).append(step)
        self._limits.reach(TLS_HANDSHAKE_PERCENT)
        self._plan()

    @property
    def waiting_count(self) -> int:
        """Steps that wait for their turn."""
        return sum(map(len, self._waiting.values()))

    def _plan(self) -> None:
        if self._turn_planned is None and self._waiting:
            delay_s = max(self._next_s - self._now_s(), 0.0)
            self._turn_planned = asyncio.get_running_loop().call_later(delay_s, self._turn)

    def _turn(self) -> None:
        self._turn_planned = None
        self._spend(self._run_waiting)
        self._plan()

    def _spend(self, work: Step) -> None:
        start_s = self._now_s()
        try:
            work()
        finally:
            end_s = self._now_s()
            self._next_s = end_s + (end_s - start_s) * (_PERCENT / self._limits[TLS_HANDSHAKE_PERCENT] - 1)

    def _run_waiting(self) -> None:
        """Run waiting steps, one of each address in turn, until the time of a turn is over."""
        stop_s = self._now_s() + TURN_SECONDS
        while self._waiting:
            address, steps = next(iter(self._waiting.items()))
            step = steps.popleft()
            del self._waiting[address]
            if steps:
                self._waiting[address] = steps
            step()
            if self._now_s() >= stop_s:
                return
