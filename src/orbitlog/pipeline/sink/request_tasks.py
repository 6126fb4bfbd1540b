"""Request tasks: requests in flight, up to a limit; the first failure is raised to the caller that waits next."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class RequestTasks:
    """The requests of one sender. `asyncio.wait` would add callbacks to all of them for each one that ends."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def start(self, request: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a request; the caller has waited for room."""
        task = asyncio.get_running_loop().create_task(request)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait_for_room(self) -> None:
        """Return when another request may start; raise what an earlier one has raised."""
        await self._wait(self._limit - 1)

    async def finish(self) -> None:
        """Return when all requests have ended; raise what one of them has raised."""
        await self._wait(0)

    async def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait(self, count_max: int) -> None:
        while len(self._tasks) > count_max and self._failure is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._failure is not None:
            raise self._failure

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None and self._failure is None:
            self._failure = failure
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
