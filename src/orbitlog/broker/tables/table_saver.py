"""Table saver: writes the broker's tables to its config directory, one at a time, in a thread.

A table that records progress in the log (consumer offsets, delay offsets, checks of transactions) must not be ahead of
the flushed log: after a power cut the messages that it passed over would be lost. So the log is flushed first. Nor may
it be ahead of topics and groups: a message moved to a new retry topic would be in a topic that does not exist.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.coalesced_call import CoalescedCall
from orbitlog.broker.tables.config_directory import ConfigDirectory
from orbitlog.broker.tables.topics import next_version
from orbitlog.errors import StoreError
from orbitlog.formats.tables.group_config import CONSUMER_FILTER, MESSAGE_REQUEST_MODE, SUBSCRIPTION_GROUP
from orbitlog.formats.tables.json_records import JsonFile, JsonRecord
from orbitlog.formats.tables.offset_tables import CONSUMER_ORDER_INFO, DELAY_OFFSET
from orbitlog.formats.tables.pop_progress import POP_PROGRESS
from orbitlog.formats.tables.timer_progress import TIMER_PROGRESS
from orbitlog.formats.tables.topic_config import TOPIC_QUEUE_MAPPING, TOPICS, DataVersion
from orbitlog.remoting.loop_slices import STEP_ITEMS

if TYPE_CHECKING:
    from orbitlog.broker.delayed.delayed_delivery import DelayedDelivery
    from orbitlog.broker.delayed.timed_delivery import TimedDelivery
    from orbitlog.broker.pop.pop_consumption import PopConsumption
    from orbitlog.remoting.thread_pace import ThreadPace

log = logging.getLogger(__name__)

R = TypeVar("R", bound=JsonRecord)
R_co = TypeVar("R_co", bound=JsonRecord, covariant=True)


class ChangingTable(Protocol[R_co]):
    """A table that is saved periodically: `snapshot` clears `is_changed`."""

    is_changed: bool

    def snapshot(self) -> R_co: ...


def copy_of(table: ChangingTable[R_co]) -> R_co:
    """Return the content of a table. Its changes stay to be saved: a request for a copy must not lose them."""
    is_changed = table.is_changed
    content = table.snapshot()
    table.is_changed = is_changed
    return content


class TableSaver:
    """Saves topics and groups when they change, and offsets periodically.

    Tables are copied in the thread of the event loop, where handlers change them; copies are encoded and written in the
    saver's own thread.
    """

    def __init__(
        self,
        state: BrokerState,
        directory: ConfigDirectory,
        disk_thread: Executor,
        *,
        wanted: asyncio.Event,
        delayed: DelayedDelivery,
        timed: TimedDelivery,
        pops: PopConsumption,
    ) -> None:
        self._state = state
        self._directory = directory
        self._disk_thread = disk_thread  # the thread of the periodic flushes
        self.wanted = wanted
        """Set when topics, groups, filters or request modes should be saved."""
        self._delayed = delayed
        self._timed = timed
        self._pops = pops
        self._thread = ThreadPoolExecutor(1, "orbitlog-config")
        self._tables = CoalescedCall(self._save_tables)
        self._saved_versions: tuple[DataVersion, DataVersion] | None = None
        self._pace: ThreadPace | None = None

    def begin_tables(self) -> asyncio.Future[None]:
        """Start to save topics and groups as they are now; the future is done when they are synced."""
        return self._tables.begin()

    async def save_tables(self) -> None:
        """Return when topics and groups, as they are now, are synced."""
        await self._tables.run()

    def _versions(self) -> tuple[DataVersion, DataVersion]:
        return self._state.topics.data_version, self._state.groups.data_version

    async def _save_tables(self) -> None:
        if self._saved_versions != self._versions():
            if (pace := self._pace_of_large_tables()) is not None:
                await pace.rest()
            versions = self._versions()
            await self._write(TOPICS, self._state.topics.snapshot(), pace)
            await self._write(SUBSCRIPTION_GROUP, self._state.groups.snapshot(), pace)
            self._saved_versions = versions
        await self._save_changed(CONSUMER_FILTER, self._state.filters)
        await self._save_changed(MESSAGE_REQUEST_MODE, self._pops.modes)

    def _pace_of_large_tables(self) -> ThreadPace | None:
        """Return the pace for topics and groups; None while they are so few that no rest is needed."""
        if self._pace is None and len(self._state.topics.table) + len(self._state.groups.table) > STEP_ITEMS:
            from orbitlog.remoting.thread_pace import ThreadPace  # most brokers have few topics

            self._pace = ThreadPace()
        return self._pace

    async def flush_log(self) -> None:
        """Return when the log is flushed up to the end that it had when this was called."""
        store = self._state.store
        if store.flushed_to < store.written_to:
            await asyncio.get_running_loop().run_in_executor(self._disk_thread, store.flush_log)

    async def save_offsets(self) -> None:
        """Return when committed offsets are synced, and the progress of POP consumers past them."""
        popped, ordered = self._pops.popped, self._pops.ordered
        if popped.is_changed:
            self._pops.hand_over_gaps()  # before the copy: the flush below covers the checkpoints
        # Copied in the same turn of the event loop as the offsets: POP progress is relative to them.
        popped_progress = popped.snapshot() if popped.is_changed else None
        is_saved = False
        try:
            await self._save_changed(self._state.offsets.file, self._state.offsets, tables_first=True)
            if popped_progress is not None:
                await self.flush_log()
                await self._write(POP_PROGRESS, popped_progress)
            is_saved = True
        finally:
            if popped_progress is not None and not is_saved:
                popped.is_changed = True
        await self._save_changed(CONSUMER_ORDER_INFO, ordered)

    async def save_tables_and_offsets(self) -> None:
        """Return when topics, groups, request modes and offsets are synced."""
        await self.save_tables()
        await self.save_offsets()

    async def forget_topics(self, topics: Collection[str]) -> None:
        """Remove deleted topics from POP progress, and from the table of static topics, which a Java broker reads."""
        self._pops.forget_topics(topics)
        static = self._directory.load(TOPIC_QUEUE_MAPPING)
        if static is not None and any(topic in static.mappings for topic in topics):
            kept = {topic: mapping for topic, mapping in static.mappings.items() if topic not in topics}
            version = next_version(static.data_version, self._state.now_ms())
            await self._write(TOPIC_QUEUE_MAPPING, replace(static, mappings=kept, data_version=version))

    async def save_delays(self) -> None:
        """Return when the progress of delayed and timed delivery is synced."""
        # After the topics: a message may have been moved to the quarantine topic, which is created by its first one.
        await self._save_changed(DELAY_OFFSET, self._delayed, tables_first=True)
        await self._save_changed(TIMER_PROGRESS, self._timed, tables_first=True)

    async def _save_changed(self, file: JsonFile[R], table: ChangingTable[R], *, tables_first: bool = False) -> None:
        if not table.is_changed:
            return
        snapshot = table.snapshot()
        is_saved = False
        try:
            if tables_first and self._saved_versions != self._versions():
                await self.save_tables()
            # The snapshot is older than the flush, so the flushed log covers all progress in it.
            await self.flush_log()
            await self._write(file, snapshot)
            is_saved = True
        finally:
            if not is_saved:
                table.is_changed = True  # the next save retries

    async def save_file(self, name: str, content: bytes) -> None:
        """Replace a file of the config directory; return when it is synced."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._directory.write, name, content)

    async def close(self) -> None:
        """Save all tables a last time; failures of the offsets are logged, those of topics and groups raised."""
        await self.save_tables()
        try:
            await self.save_offsets()
            await self.save_delays()
        except StoreError as error:
            log.error("could not save consumer and delay offsets: %s", error)
        self._thread.shutdown()

    async def _write(self, file: JsonFile[R], table: R, pace: ThreadPace | None = None) -> None:
        write = self._encode_and_write if pace is None else pace.paced(self._encode_and_write)
        await asyncio.get_running_loop().run_in_executor(self._thread, write, file, table)

    def _encode_and_write(self, file: JsonFile[R], table: R) -> None:
        # Encoding a table of ten thousand topics takes milliseconds, too long for the thread of the event loop.
        self._directory.write(file.name, self._directory.encode(file, table))
