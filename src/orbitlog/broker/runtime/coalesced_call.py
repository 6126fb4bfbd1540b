"""Coalesced call: many callers of an async function share one run of it.

Callers that arrive during a run share the next one, which starts after it: a run covers every change made before the
call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class CoalescedCall:
    """One async function of which at most one run is active."""

    def __init__(self, step: Callable[[], Awaitable[None]]) -> None:
        self._step = step
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Future[None] | None = None
        self._running: set[asyncio.Future[None]] = set()

    def begin(self) -> asyncio.Future[None]:
        """Return the future of a run that starts after this call."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._turn())
            self._running.add(self._next)
            self._next.add_done_callback(self._running.discard)
        return self._next

    async def run(self) -> None:
        """Return when such a run has ended; raise its exception."""
        await asyncio.shield(self.begin())

    async def close(self) -> None:
        """Cancel the active and the next run."""
        running = list(self._running)
        for run in running:
            run.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _turn(self) -> None:
        async with self._one_at_a_time:
            self._next = None
            await self._step()
