"""Things that a broker does again and again: each loop outlives one failure of its step, and logs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[None] | None]
_FAILED_AGAIN_S = 1.0


class BackgroundLoops:
    """Tasks that run until they are stopped."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, name: str, interval_ms: Callable[[], int], step: Step) -> None:
        """Take a step at that interval, for as long as the broker runs."""
        self._start(name, self._repeat(name, step, lambda: asyncio.sleep(interval_ms() / 1000)))

    def whenever(self, name: str, event: asyncio.Event, step: Step) -> None:
        """Take a step each time the event is set."""

        async def wait() -> None:
            await event.wait()
            event.clear()

        async def take() -> None:
            try:
                taken = step()
                if taken is not None:
                    await taken
            except Exception:
                event.set()  # what was to be done still is
                raise

        self._start(name, self._repeat(name, take, wait))

    def run(self, name: str, turn: Callable[[], Awaitable[None]]) -> None:
        """Let `turn` both wait and work, again and again."""
        self._start(name, self._repeat(name, turn, lambda: asyncio.sleep(0)))

    async def stop(self) -> None:
        """End them all; a step that is being taken is cancelled where it waits."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, name: str, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def _repeat(self, name: str, step: Step, wait: Callable[[], Awaitable[None]]) -> None:
        while True:
            await wait()
            try:
                taken = step()
                if taken is not None:
                    await taken
            except Exception:
                log.exception("%s failed; it is tried again", name)
                await asyncio.sleep(_FAILED_AGAIN_S)
