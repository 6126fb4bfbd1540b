"""Saving the broker's tables: encoded where they live, written in a thread, one after the other."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from orbitlog.broker.broker_state import BrokerState
from orbitlog.broker.config_directory import ConfigDirectory
from orbitlog.formats.group_config import SUBSCRIPTION_GROUP
from orbitlog.formats.offset_tables import CONSUMER_OFFSET, DELAY_OFFSET
from orbitlog.formats.timer_progress import TIMER_PROGRESS
from orbitlog.formats.topic_config import TOPICS

if TYPE_CHECKING:
    from orbitlog.broker.delayed_delivery import DelayedDelivery
    from orbitlog.broker.timed_delivery import TimedDelivery


class TableSaver:
    """Topics and groups are saved when they change, offsets now and then."""

    def __init__(self, state: BrokerState, directory: ConfigDirectory) -> None:
        self._state = state
        self._directory = directory
        self._thread = ThreadPoolExecutor(1, "orbitlog-config")
        self.delayed: DelayedDelivery | None = None
        self.timed: TimedDelivery | None = None
        self.wanted = asyncio.Event()

    def soon(self) -> None:
        """Save topics and groups as soon as the event loop has a moment."""
        self.wanted.set()

    async def save_tables(self) -> None:
        """Return when topics and groups, as they are now, are on the disk."""
        directory, state = self._directory, self._state
        await self._write(TOPICS.name, directory.encode(TOPICS, state.topics.snapshot()))
        await self._write(SUBSCRIPTION_GROUP.name, directory.encode(SUBSCRIPTION_GROUP, state.groups.snapshot()))

    async def save_offsets(self) -> None:
        """Return when the committed offsets are on the disk."""
        if self._state.offsets.is_changed:
            snapshot = self._state.offsets.snapshot()
            await self._write(CONSUMER_OFFSET.name, self._directory.encode(CONSUMER_OFFSET, snapshot))

    async def save_delays(self) -> None:
        if self.delayed is not None and self.delayed.is_changed:
            await self._write(DELAY_OFFSET.name, self._directory.encode(DELAY_OFFSET, self.delayed.snapshot()))
        if self.timed is not None and self.timed.is_changed:
            await self._write(TIMER_PROGRESS.name, self._directory.encode(TIMER_PROGRESS, self.timed.snapshot()))

    async def close(self) -> None:
        """Save everything a last time."""
        await self.save_tables()
        await self.save_offsets()
        await self.save_delays()
        self._thread.shutdown()

    async def _write(self, file_name: str, content: bytes) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._directory.write, file_name, content)
