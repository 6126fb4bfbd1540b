"""Loop slices: divides the event loop's time between work that does not fit into one turn.

Requests of a read beyond the first, and the steps of long requests, wait here. In each turn of the event loop requests
get `TURN_SECONDS` together, and client addresses take turns: a peer with very many requests delays the few of others by
that time, however many connections it has. One step of a long request follows.

Long work is a generator that yields the number of items handled since its last step, and returns its result. A server
with a hundred thousand topics thus stays responsive while one broker registers all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

Work = Callable[[], object]
TURN_SECONDS = 0.002


class LoopTurns:
    """The waiting work of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._loop = loop
        self._now_s = now_s  # not the event loop's time, which stands still during a turn
        self._waiting: dict[str, deque[Work]] = {}  # by address, in the order of turns
        self._steps: deque[asyncio.Future[None]] = deque()
        self._is_planned = False

    def add(self, address: str, work: Work) -> None:
        """Call `work` in a later turn of the event loop."""
        self._waiting.setdefault(address, deque()).append(work)
        self._plan()

    async def step(self) -> None:
        """Return when the caller may do a step of a long request; one of them in each turn."""
        granted = self._loop.create_future()
        self._steps.append(granted)
        self._plan()
        await granted

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Call waiting work, one of each address in turn, until the time is over; nothing twice."""
        self._is_planned = False
        try:
            self._grant_step()
            stop_s = self._now_s() + TURN_SECONDS
            for _ in range(sum(map(len, self._waiting.values()))):
                self._take_work()()
                if self._now_s() >= stop_s:
                    break
        finally:  # work that fails must not keep the rest
            if self._waiting or self._steps:
                self._plan()

    def _grant_step(self) -> None:
        while self._steps:
            granted = self._steps.popleft()
            if not granted.done():  # not cancelled
                granted.set_result(None)
                return

    def _take_work(self) -> Work:
        address, works = next(iter(self._waiting.items()))
        del self._waiting[address]
        work = works.popleft()
        if works:
            self._waiting[address] = works
        return work


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopTurns] = WeakKeyDictionary()


def loop_turns() -> LoopTurns:
    """Return the waiting work of the running event loop: servers of one process share it."""
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = LoopTurns(loop)
    return turns


STEP_ITEMS = 150
"""Items of a step if each costs some microseconds to some tens of them: a step takes a millisecond or two."""


class SliceCounters:
    """Steps taken in this process, and the largest of them: tests assert these instead of times."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.steps = 0
        self.items_max = 0

    def note(self, items: int) -> None:
        self.steps += 1
        self.items_max = max(self.items_max, items)


COUNTERS = SliceCounters()


async def in_slices(work: Generator[int, None, T]) -> T:
    """Run work to its end; others get their turn after each of its steps."""
    turns = loop_turns()
    while True:
        await turns.step()
        try:
            COUNTERS.note(next(work))
        except StopIteration as end:
            result: T = end.value
            return result


def at_once(work: Generator[int, None, T]) -> T:
    """Run work to its end without a pause, for callers that are not on an event loop."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def sliced(items: Iterable[T], count: int = STEP_ITEMS) -> Iterator[list[T]]:
    """Yield items in lists of at most `count`."""
    remaining = iter(items)
    while part := list(islice(remaining, count)):
        yield part
