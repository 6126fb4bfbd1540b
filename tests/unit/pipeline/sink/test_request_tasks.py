"""Requests in flight: the limit, and the failure that the next wait raises."""

from __future__ import annotations

import asyncio

import pytest

from orbitlog.pipeline.sink.request_tasks import RequestTasks


def test_requests_at_the_limit_wait_for_one_that_ends() -> None:
    async def run() -> int:
        tasks, at_once_max, running = RequestTasks(2), 0, 0

        async def request() -> None:
            nonlocal at_once_max, running
            running += 1
            at_once_max = max(at_once_max, running)
            await asyncio.sleep(0)
            running -= 1

        for _ in range(10):
            await tasks.wait_for_room()
            tasks.start(request())
        await tasks.finish()
        assert running == 0
        return at_once_max

    assert asyncio.run(run()) == 2


def test_failed_request_is_raised_by_the_next_wait() -> None:
    async def run() -> None:
        tasks = RequestTasks(2)

        async def failing() -> None:
            raise ValueError("refused")

        tasks.start(failing())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="refused"):
            await tasks.wait_for_room()
        with pytest.raises(ValueError, match="refused"):
            await tasks.finish()

    asyncio.run(run())


def test_cancelled_requests_have_ended() -> None:
    async def run() -> bool:
        tasks = RequestTasks(1)

        async def never() -> None:
            await asyncio.get_running_loop().create_future()

        task = tasks.start(never())
        await tasks.cancel()
        return task.cancelled()

    assert asyncio.run(run())
