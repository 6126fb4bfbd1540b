"""Loop turns: waiting work is divided between addresses, within a time for each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import cast

import pytest

from orbitlog.remoting.loop_slices import (
    DEBT_SECONDS_MAX,
    DELAYED_SECONDS,
    FREE_SHARE,
    LoopTurns,
    in_slices,
    loop_turns,
)
from orbitlog.settings.limits import REQUEST_TURN_MICROS, Limits

TURN_SECONDS = REQUEST_TURN_MICROS.default / 1e6


class ManualLoop:
    """Keeps the calls of `call_soon` until `turn` runs them; its clock moves only when work does."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], object]] = deque()
        self.now_s = 0.0
        self.done: list[str] = []
        self.limits = Limits()
        self.turns = LoopTurns(cast(asyncio.AbstractEventLoop, self), lambda: self.now_s)

    def call_soon(self, call: Callable[[], object]) -> None:
        self.calls.append(call)

    def turn(self) -> list[str]:
        self.done = []
        for _ in range(len(self.calls)):
            self.calls.popleft()()
        return self.done

    def add(self, address: str, name: str, seconds: float = 0.0) -> None:
        def run() -> None:
            self.done.append(name)
            self.use(address, seconds)

        self.turns.add(address, run, self.limits)

    def use(self, address: str, seconds: float) -> None:
        """Handle requests of an address for some time."""
        begun_s = self.now_s
        self.now_s += seconds
        self.turns.charge(address, begun_s, self.now_s)


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


def test_address_with_much_work_does_not_delay_others(loop: ManualLoop) -> None:
    for number in range(100):
        loop.add("greedy", f"greedy {number}", TURN_SECONDS)
    assert loop.turn() == ["greedy 0"]
    loop.add("honest", "honest")
    assert loop.turn() == ["honest", "greedy 1"]
    assert loop.turn() == ["greedy 2"]


def test_address_that_used_least_time_is_next(loop: ManualLoop) -> None:
    for address, seconds in (("much", 0.03), ("little", 0.01), ("some", 0.02)):
        loop.use(address, seconds)
        loop.add(address, address)
    assert loop.turn() == ["little", "some", "much"]


def test_addresses_that_used_much_take_turns(loop: ManualLoop) -> None:
    for number in range(3):
        for address, seconds in (("a", 9.0), ("b", 5.0)):
            loop.use(address, seconds)
            loop.add(address, f"{address}{number}", TURN_SECONDS)
    assert [name for _ in range(6) for name in loop.turn()] == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_busy_address_is_not_kept_waiting_by_new_ones(loop: ManualLoop) -> None:
    loop.use("busy", 60.0)
    loop.add("busy", "busy")
    turns_max = round(DEBT_SECONDS_MAX / FREE_SHARE / TURN_SECONDS)
    for number in range(2 * turns_max):
        loop.add(f"new {number}", f"new {number}", TURN_SECONDS)
        if "busy" in loop.turn():
            break
    assert turns_max / 2 < number < 1.1 * turns_max


def test_turn_ends_after_its_time(loop: ManualLoop) -> None:
    for number in range(10):
        loop.add(f"address {number}", str(number), TURN_SECONDS / 4)
    assert [loop.turn(), loop.turn(), loop.turn()] == [list("0123"), list("4567"), list("89")]
    assert not loop.calls


def test_long_wait_is_counted(loop: ManualLoop) -> None:
    loop.add("a", "a")
    loop.turn()
    assert not loop.limits.reached[REQUEST_TURN_MICROS.key]
    loop.add("a", "a")
    loop.now_s += DELAYED_SECONDS
    loop.turn()
    assert loop.limits.reached[REQUEST_TURN_MICROS.key] == 1


def test_used_time_of_many_addresses_is_not_kept(loop: ManualLoop) -> None:
    for number in range(100_000):
        loop.use(str(number), TURN_SECONDS)
    assert len(loop.turns._used_s) <= 1_024


def test_work_that_waits_anew_is_called_in_the_next_turn(loop: ManualLoop) -> None:
    def again() -> None:
        loop.done.append("again")
        loop.turns.add("a", again, loop.limits)

    loop.turns.add("a", again, loop.limits)
    assert [loop.turn(), loop.turn()] == [["again"], ["again"]]


def test_work_that_fails_does_not_stop_the_work_of_others(loop: ManualLoop) -> None:
    def fail() -> None:
        raise ValueError("broken")

    loop.turns.add("a", fail, loop.limits)
    loop.add("a", "a")
    loop.add("b", "b")
    with pytest.raises(ValueError, match="broken"):  # the event loop logs it
        loop.turn()
    assert loop.turn() == ["b", "a"]


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
