"""Delivery loop: delivers scheduled messages, of levels and of timestamps, and sleeps until the next one is due."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from orbitlog.broker.delayed.delayed_delivery import DelayedDelivery
from orbitlog.broker.delayed.timed_delivery import TimedDelivery
from orbitlog.broker.tables.topics import NowMs
from orbitlog.formats import names
from orbitlog.store.dispatch.arrival import Arrival

_SLEEP_MS_MAX = 1_000
_SCHEDULED_TOPICS = frozenset((names.SCHEDULE_TOPIC, names.TIMER_TOPIC))


class DeliveryLoop:
    """Runs both kinds of scheduled delivery. Used in the thread of the event loop alone."""

    def __init__(self, delayed: DelayedDelivery, timed: TimedDelivery, now_ms: NowMs) -> None:
        self._delayed = delayed
        self._timed = timed
        self._now_ms = now_ms
        self.woken = asyncio.Event()

    def wake(self, arrivals: Iterable[Arrival]) -> None:
        """End the sleep if a scheduled message arrived: it may be due before the one that the loop sleeps for."""
        if any(arrival.topic in _SCHEDULED_TOPICS for arrival in arrivals):
            self.woken.set()

    async def run_once(self) -> None:
        """Deliver due messages, then sleep until the next one is due or another one arrives."""
        self.woken.clear()
        now_ms = self._now_ms()
        next_due = [self._delayed.deliver_due(now_ms), self._timed.step(now_ms)]
        sleep_ms = min([_SLEEP_MS_MAX, *(max(due_ms - now_ms, 0) for due_ms in next_due if due_ms is not None)])
        try:
            # Not `wait_for`: in Python 3.11 it drops a cancellation that coincides with the event, and the broker would
            # never stop.
            async with asyncio.timeout(sleep_ms / 1000):
                await self.woken.wait()
        except TimeoutError:
            return
