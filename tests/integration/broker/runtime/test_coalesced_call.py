"""Callers share runs, and each call is followed by a run."""

from __future__ import annotations

import asyncio

import pytest

from orbitlog.broker.runtime.coalesced_call import CoalescedCall


def test_callers_during_a_run_share_the_next_one() -> None:
    state = {"value": 0}
    seen: list[int] = []
    gate = asyncio.Event()

    async def step() -> None:
        seen.append(state["value"])
        await gate.wait()

    async def change(run: CoalescedCall, value: int) -> None:
        state["value"] = value
        await run.run()
        assert any(each >= value for each in seen), "a run covers the changes made before its call"

    async def main() -> None:
        run = CoalescedCall(step)
        first = asyncio.ensure_future(change(run, 1))
        await asyncio.sleep(0.01)
        others = [asyncio.ensure_future(change(run, value)) for value in (2, 3, 4)]
        await asyncio.sleep(0.01)
        assert seen == [1]
        gate.set()
        await asyncio.gather(first, *others)
        assert seen == [1, 4]

    asyncio.run(main())


def test_failed_run_raises_in_every_caller_and_the_next_run_starts() -> None:
    failing = True

    async def step() -> None:
        if failing:
            raise OSError("no")

    async def main() -> None:
        nonlocal failing
        run = CoalescedCall(step)
        for task in (run.run(), run.run()):
            with pytest.raises(OSError, match="no"):
                await task
        failing = False
        await run.run()
        await run.close()

    asyncio.run(main())
