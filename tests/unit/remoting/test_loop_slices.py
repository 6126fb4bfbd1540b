"""Loop turns: waiting work is divided between addresses, within a time for each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import cast

import pytest

from orbitlog.remoting.loop_slices import TURN_SECONDS, LoopTurns, in_slices, loop_turns


class ManualLoop:
    """Keeps the calls of `call_soon` until `turn` runs them; its clock moves only when work does."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], object]] = deque()
        self.now_s = 0.0
        self.done: list[str] = []

    def call_soon(self, call: Callable[[], object]) -> None:
        self.calls.append(call)

    def turn(self) -> list[str]:
        self.done = []
        for _ in range(len(self.calls)):
            self.calls.popleft()()
        return self.done

    def work(self, name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.done.append(name)
            self.now_s += seconds

        return run


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def turns(loop: ManualLoop) -> LoopTurns:
    return LoopTurns(cast(asyncio.AbstractEventLoop, loop), lambda: loop.now_s)


def test_address_with_much_work_delays_others_by_one_turn(loop: ManualLoop, turns: LoopTurns) -> None:
    for number in range(100):
        turns.add("greedy", loop.work(f"greedy {number}", TURN_SECONDS))
    assert loop.turn() == ["greedy 0"]
    turns.add("honest", loop.work("honest", 0.0))
    assert loop.turn() == ["greedy 1"]
    assert loop.turn() == ["honest", "greedy 2"]


def test_turn_ends_after_its_time(loop: ManualLoop, turns: LoopTurns) -> None:
    for number in range(10):
        turns.add(f"address {number}", loop.work(str(number), TURN_SECONDS / 4))
    assert [loop.turn(), loop.turn(), loop.turn()] == [list("0123"), list("4567"), list("89")]
    assert not loop.calls


def test_work_that_waits_anew_is_called_in_the_next_turn(loop: ManualLoop, turns: LoopTurns) -> None:
    def again() -> None:
        loop.done.append("again")
        turns.add("a", again)

    turns.add("a", again)
    assert [loop.turn(), loop.turn()] == [["again"], ["again"]]


def test_work_that_fails_does_not_stop_the_work_of_others(loop: ManualLoop, turns: LoopTurns) -> None:
    def fail() -> None:
        raise ValueError("broken")

    turns.add("a", fail)
    turns.add("b", loop.work("b", 0.0))
    with pytest.raises(ValueError, match="broken"):  # the event loop logs it
        loop.turn()
    assert loop.turn() == ["b"]


def test_slices_return_the_result_and_raise_the_error_of_their_work() -> None:
    def work(fails: bool) -> Generator[int, None, str]:
        yield 1
        yield 2
        if fails:
            raise LookupError("lost")
        return "done"

    async def test() -> None:
        assert loop_turns() is loop_turns()
        assert await in_slices(work(False)) == "done"
        with pytest.raises(LookupError):
            await in_slices(work(True))

    asyncio.run(test())


def test_steps_of_long_requests_take_turns_of_the_event_loop() -> None:
    order: list[str] = []

    def work(name: str, steps: int) -> Generator[int, None, None]:
        for _ in range(steps):
            order.append(name)
            yield 1

    async def test() -> None:
        cancelled = asyncio.create_task(in_slices(work("cancelled", 100)))
        others = [asyncio.create_task(in_slices(work(name, 3))) for name in "ab"]
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(*others)

    asyncio.run(test())
    assert [name for name in order if name != "cancelled"] == list("ababab")
    assert len(order) <= 7
