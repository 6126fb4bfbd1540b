"""Background loops continue after a failed step."""

from __future__ import annotations

import asyncio

import pytest

from orbitlog.broker.runtime import background_loops
from orbitlog.broker.runtime.background_loops import BackgroundLoops
from tests.support.broker_desk import until


def test_loop_continues_after_a_failed_step(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(background_loops, "_RETRY_SECONDS", 0)
    taken: list[int] = []

    def step() -> None:
        taken.append(1)
        if len(taken) == 2:
            raise RuntimeError("once")

    async def run() -> None:
        loops = BackgroundLoops()
        loops.every("a test", lambda: 1, step)
        await until(lambda: len(taken) >= 4)
        await loops.stop()
        count = len(taken)
        await asyncio.sleep(0.01)
        assert len(taken) == count

    asyncio.run(run())
    begin, end = (record for record in caplog.records if getattr(record, "event", "") == "step_failing")
    assert begin.message == "background step fails: a test: it is retried: RuntimeError: once" and begin.exc_info
    assert end.message.startswith("background step fails: a test: ended after ")


def test_step_runs_after_its_event() -> None:
    taken: list[int] = []

    async def step() -> None:
        taken.append(1)

    async def run() -> None:
        loops, event = BackgroundLoops(), asyncio.Event()
        loops.whenever("a test", event, step)
        event.set()
        await until(lambda: len(taken) == 1)
        event.set()
        await until(lambda: len(taken) == 2)
        await loops.stop()

    asyncio.run(run())


def test_failed_step_is_retried_without_another_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_loops, "_RETRY_SECONDS", 0)
    taken: list[int] = []

    async def step() -> None:
        taken.append(1)
        if len(taken) == 1:
            raise RuntimeError("once")

    async def run() -> None:
        loops, event = BackgroundLoops(), asyncio.Event()
        loops.whenever("a test", event, step)
        event.set()
        await until(lambda: len(taken) == 2)
        assert not event.is_set()
        await loops.stop()

    asyncio.run(run())
