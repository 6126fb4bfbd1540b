"""Background loops: tasks that repeat a step. A step that fails is retried; its condition is logged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from orbitlog.observe.conditions import STEP_FAILING, Conditions

Step = Callable[[], Awaitable[None] | None]
_RETRY_SECONDS = 1.0


class BackgroundLoops:
    """Tasks that run until `stop`."""

    def __init__(self, conditions: Conditions | None = None) -> None:
        self._conditions = conditions or Conditions()
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, name: str, interval_ms: Callable[[], int], step: Step) -> None:
        """Run a step at an interval, which is read before each wait: a setting may change."""
        self._start(name, self._repeat(name, step, lambda: asyncio.sleep(interval_ms() / 1000)))

    def whenever(self, name: str, event: asyncio.Event, step: Step) -> None:
        """Run a step each time the event is set."""

        async def wait() -> None:
            await event.wait()
            event.clear()

        async def take() -> None:
            try:
                taken = step()
                if taken is not None:
                    await taken
            except Exception:
                event.set()  # the step is still due
                raise

        self._start(name, self._repeat(name, take, wait))

    def run(self, name: str, turn: Callable[[], Awaitable[None]]) -> None:
        """Repeat `turn`, which waits by itself."""
        self._start(name, self._repeat(name, turn, lambda: asyncio.sleep(0)))

    async def stop(self) -> None:
        """Cancel all tasks; a running step is cancelled at its next await."""
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
            except Exception as error:  # noqa: BLE001 - the other loops, and the next turn of this one, must run
                self._conditions.set(STEP_FAILING, f"{type(error).__name__}: {error}", name, error=error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._conditions.set(STEP_FAILING, "", name)
