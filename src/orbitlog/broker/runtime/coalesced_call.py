"""A step that many want at once is taken once for all of them.

Whoever asks while it runs shares the next run, which begins when this one ends: what they changed before they asked is
in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class CoalescedCall:
    """One step, never twice at a time."""

    def __init__(self, step: Callable[[], Awaitable[None]]) -> None:
        self._step = step
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Future[None] | None = None
        self._running: set[asyncio.Future[None]] = set()

    def begin(self) -> asyncio.Future[None]:
        """Return a run that begins after this call."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._turn())
            self._running.add(self._next)
            self._next.add_done_callback(self._running.discard)
        return self._next

    async def run(self) -> None:
        """Return when such a run has ended; raises what it raised."""
        await asyncio.shield(self.begin())

    async def close(self) -> None:
        """End what is running."""
        running = list(self._running)
        for run in running:
            run.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _turn(self) -> None:
        async with self._one_at_a_time:
            self._next = None
            await self._step()
