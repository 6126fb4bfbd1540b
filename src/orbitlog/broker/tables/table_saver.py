"""Saving the broker's tables: encoded where they live, written in a thread, one after the other.

A table that says how far somebody is in the log (consumers, delayed delivery, checks of transactions) must not be
ahead of what the disk has of that log: after a power cut what was passed over would be nowhere. So the log goes first.
Nor must it be ahead of topics and groups: what was put into a retry topic made for it would not be found there.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.coalesced_call import SharedRun
from orbitlog.broker.tables.config_directory import ConfigDirectory
from orbitlog.errors import StoreError
from orbitlog.formats.tables.group_config import CONSUMER_FILTER, MESSAGE_REQUEST_MODE, SUBSCRIPTION_GROUP
from orbitlog.formats.tables.json_records import JsonFile, JsonRecord
from orbitlog.formats.tables.offset_tables import CONSUMER_ORDER_INFO, DELAY_OFFSET
from orbitlog.formats.tables.pop_progress import POP_PROGRESS
from orbitlog.formats.tables.timer_progress import TIMER_PROGRESS
from orbitlog.formats.tables.topic_config import TOPICS, DataVersion

if TYPE_CHECKING:
    from orbitlog.broker.delayed.delayed_delivery import DelayedDelivery
    from orbitlog.broker.delayed.timed_delivery import TimedDelivery
    from orbitlog.broker.pop.pop_consumption import PopConsumption

log = logging.getLogger(__name__)

R = TypeVar("R", bound=JsonRecord)
R_co = TypeVar("R_co", bound=JsonRecord, covariant=True)


class ChangingTable(Protocol[R_co]):
    """A table that is saved now and then: `snapshot` takes note that it is being saved."""

    is_changed: bool

    def snapshot(self) -> R_co: ...


class TableSaver:
    """Topics and groups are saved when they change, offsets now and then."""

    def __init__(self, state: BrokerState, directory: ConfigDirectory, disk_thread: Executor) -> None:
        self._state = state
        self._directory = directory
        self._disk_thread = disk_thread  # the one thread that flushes the log
        self._thread = ThreadPoolExecutor(1, "orbitlog-config")
        self.delayed: DelayedDelivery | None = None
        self.timed: TimedDelivery | None = None
        self.pops: PopConsumption | None = None
        self._tables = SharedRun(self._save_tables)
        self._saved_versions: tuple[DataVersion, DataVersion] | None = None
        self.wanted = asyncio.Event()

    def soon(self) -> None:
        """Save topics and groups as soon as the event loop has a moment."""
        self.wanted.set()

    def begin_tables(self) -> asyncio.Future[None]:
        """Begin to save topics and groups as they are now; it ends when they are on the disk."""
        return self._tables.begin()

    async def save_tables(self) -> None:
        """Return when topics and groups, as they are now, are on the disk."""
        await self._tables.run()

    def _versions(self) -> tuple[DataVersion, DataVersion]:
        return self._state.topics.data_version, self._state.groups.data_version

    async def _save_tables(self) -> None:
        versions = self._versions()
        await self._write(TOPICS, self._state.topics.snapshot())
        await self._write(SUBSCRIPTION_GROUP, self._state.groups.snapshot())
        self._saved_versions = versions
        await self._save_changed(CONSUMER_FILTER, self._state.filters)
        if self.pops is not None:
            await self._save_changed(MESSAGE_REQUEST_MODE, self.pops.modes)

    async def flush_log(self) -> None:
        """Return when the log is on the disk as far as it was written when this was called."""
        store = self._state.store
        if store.flushed_to < store.written_to:
            await asyncio.get_running_loop().run_in_executor(self._disk_thread, store.flush_log)

    async def save_offsets(self) -> None:
        """Return when the committed offsets are on the disk, and what POP consumers have beyond them."""
        pops = self.pops
        # Taken at the same moment as the offsets: they must fit each other.
        popped = pops.popped.snapshot() if pops is not None and pops.popped.is_changed else None
        is_saved = False
        try:
            await self._save_changed(self._state.offsets.file, self._state.offsets, tables_first=True)
            if popped is not None:
                await self.flush_log()
                await self._write(POP_PROGRESS, popped)
            is_saved = True
        finally:
            if pops is not None and popped is not None and not is_saved:
                pops.popped.is_changed = True
        if pops is not None:
            await self._save_changed(CONSUMER_ORDER_INFO, pops.ordered)

    async def save_delays(self) -> None:
        """Return when it is on the disk how far delayed delivery is."""
        if self.delayed is not None:
            await self._save_changed(DELAY_OFFSET, self.delayed)
        if self.timed is not None:
            await self._save_changed(TIMER_PROGRESS, self.timed)

    async def _save_changed(self, file: JsonFile[R], table: ChangingTable[R], *, tables_first: bool = False) -> None:
        if not table.is_changed:
            return
        snapshot = table.snapshot()
        is_saved = False
        try:
            if tables_first and self._saved_versions != self._versions():
                await self.save_tables()
            await self.flush_log()
            await self._write(file, snapshot)
            is_saved = True
        finally:
            if not is_saved:
                table.is_changed = True  # the next look tries again

    async def close(self) -> None:
        """Save everything a last time; what a disk that failed does not have is not told of either."""
        await self.save_tables()
        try:
            await self.save_offsets()
            await self.save_delays()
        except StoreError as error:
            log.error("how far consumers and delayed messages are is not saved: %s", error)
        self._thread.shutdown()

    async def _write(self, file: JsonFile[R], table: R) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._encode_and_write, file, table)

    def _encode_and_write(self, file: JsonFile[R], table: R) -> None:
        # A table of ten thousand topics takes a moment to write as text: not in the thread that serves.
        self._directory.write(file.name, self._directory.encode(file, table))
