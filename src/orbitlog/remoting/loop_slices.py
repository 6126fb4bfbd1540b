"""Loop slices: divides the event loop's time between work that does not fit into one turn.

In each turn of the event loop, requests off the fast path get `requestTurnMicros` together, whatever connections they
come from. Further ones wait here. The address that used least of the loop's time lately is next, so a peer with very
many requests, or with costly ones, delays itself first. One step of a long request follows.

Long work is a generator that yields the number of items handled since its last step, and returns its result. A server
with a hundred thousand topics thus stays responsive while one broker registers all of them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from orbitlog.settings.limits import REQUEST_TURN_MICROS, Limits

T = TypeVar("T")

Work = Callable[[], object]
DELAYED_SECONDS = 1.0
"""A wait from which on the limit counts as reached: most work waits for milliseconds."""
FREE_SHARE = 0.1
"""Part of the loop's time that an address may use before others have priority."""
DEBT_SECONDS_MAX = 0.2
"""Used time that counts at most, so that a busy address is served after two seconds at the latest."""
_ADDRESSES_MAX = 1_024
MICROS = 1e6


class _Waiting(NamedTuple):
    work: Work
    limits: Limits
    since_s: float


class LoopTurns:
    """The waiting work of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_s: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._now_s = now_s  # not the event loop's time, which stands still during a turn
        self.waiting: dict[str, deque[_Waiting]] = {}
        """Work by address: it is called before any other."""
        # Addresses with waiting work; the first has used least. An address is in it once.
        self._order: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()
        self._used_s: dict[str, float] = {}  # by address, on a scale that grows by FREE_SHARE of the time
        self._steps: deque[asyncio.Future[None]] = deque()
        self._is_planned = False
        self.is_running = False
        """Whether waiting work is being called: it has its own time."""
        self.left_s = 0.0
        """Time that is left of the turn; less than 0 if further requests must wait."""
        self.last_s = 0.0
        """When the last request had been handled; after a pause of a turn's time, a new turn has begun."""

    def charge(self, address: str, begun_s: float, ended_s: float) -> None:
        """Count the time that requests of an address took."""
        self.last_s = ended_s
        self.left_s -= ended_s - begun_s
        used_s, free_s = self._used_s, ended_s * FREE_SHARE
        try:
            before_s = used_s[address]
        except KeyError:
            before_s = free_s
            if len(used_s) >= _ADDRESSES_MAX:
                self._used_s = used_s = {name: used for name, used in used_s.items() if used > free_s}
        used_s[address] = (before_s if before_s > free_s else free_s) + ended_s - begun_s

    def add(self, address: str, work: Work, limits: Limits) -> None:
        """Call `work` in a later turn of the event loop; it reports its time by `charge`."""
        waiting = self.waiting.get(address)
        if waiting is None:
            waiting = self.waiting[address] = deque()
            self._queue(address)
        waiting.append(_Waiting(work, limits, self._now_s()))
        self._plan()

    async def step(self) -> None:
        """Return when the caller may do a step of a long request; one of them in each turn."""
        granted = self._loop.create_future()
        self._steps.append(granted)
        self._plan()
        await granted

    def _standing(self, address: str) -> float:
        """Return the used time of an address, between what is free and the largest debt."""
        free_s = self._now_s() * FREE_SHARE
        return min(max(self._used_s.get(address, 0.0), free_s), free_s + DEBT_SECONDS_MAX)

    def _queue(self, address: str) -> None:
        heapq.heappush(self._order, (self._standing(address), next(self._numbers), address))

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Call waiting work, that of the address with least used time first, until the time of the turn is over."""
        self._is_planned = False
        self.is_running = True
        try:
            self._grant_step()
            stop_s = 0.0
            for _ in range(sum(map(len, self.waiting.values()))):
                address, waiting, has_more = self._take_work()
                begun_s = self._now_s()
                if not stop_s:
                    self.left_s = waiting.limits[REQUEST_TURN_MICROS] / MICROS
                    stop_s = begun_s + self.left_s
                if begun_s - waiting.since_s >= DELAYED_SECONDS:
                    waiting.limits.reach(REQUEST_TURN_MICROS)
                try:
                    waiting.work()
                finally:
                    if has_more:
                        self._queue(address)
                if self._now_s() >= stop_s:
                    break
        finally:  # work that fails must not keep the rest
            self.is_running = False
            if self.waiting or self._steps:
                self._plan()

    def _grant_step(self) -> None:
        while self._steps:
            granted = self._steps.popleft()
            if not granted.done():  # not cancelled
                granted.set_result(None)
                return

    def _take_work(self) -> tuple[str, _Waiting, bool]:
        """Remove and return the next work, and whether its address has more: the caller queues that afterwards."""
        _, _, address = heapq.heappop(self._order)
        works = self.waiting[address]
        work = works.popleft()
        if not works:
            del self.waiting[address]
        return address, work, bool(works)


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


def joined(work: Generator[int, None, T], items_min: int) -> Generator[int, None, T]:
    """Join steps of `work` until they handled at least `items_min` items; return its result."""
    count = 0
    while True:
        try:
            count += next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        if count >= items_min:
            yield count
            count = 0


def sliced(items: Iterable[T], count: int = STEP_ITEMS) -> Iterator[list[T]]:
    """Yield items in lists of at most `count`."""
    remaining = iter(items)
    while part := list(islice(remaining, count)):
        yield part
