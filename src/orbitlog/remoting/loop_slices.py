"""Loop slices: runs long work on the event loop in short steps, with other requests between them.

Work is a generator that yields the number of items handled since its last step, and returns its result. A server with a
hundred thousand topics thus stays responsive while one broker registers all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

STEP_ITEMS = 500
"""Items of a step if each costs some microseconds to some tens of them: a step takes a few milliseconds."""


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
    """Run work to its end; other tasks run after each of its steps."""
    while True:
        try:
            COUNTERS.note(next(work))
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


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
