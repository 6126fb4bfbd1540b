"""Maintenance: flushes the store, deletes expired segments, prepares the next one, reports damage, samples statistics.

Each step is one call of the store; the intervals are Java's settings. Flushes run in the disk thread, everything else
in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.background_loops import BackgroundLoops
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.group_commit import FlushRule
from orbitlog.broker.tables.statistics import SAMPLE_MS

log = logging.getLogger(__name__)

# Syncing thousands of queues takes half a second of one core; rebuilding this much after a crash takes less.
_DERIVED_FLUSH_BYTES = 64 * 1024 * 1024
_DERIVED_FLUSH_MS = 1_000
_RETENTION_MS = 10_000
_PREPARE_MS = 1_000
_DAMAGE_MS = 10_000


class Maintenance:
    """The regular work on one broker's store."""

    def __init__(self, state: BrokerState, disk_thread: Executor, flush_log: Callable[[], int]) -> None:
        self._state = state
        self._sync_log = flush_log
        self._disk_thread = disk_thread
        # Retention deletes derived files in the event loop's thread, and a flush walks them in the disk thread: without
        # the lock a flush could sync a file that was closed under it.
        self._derived_lock = asyncio.Lock()
        self._log_flushed_ms = self._derived_flushed_ms = state.now_ms()
        self._derived_flushed_to = state.store.dispatched_to
        self._reported_damage = 0

    def start(self, loops: BackgroundLoops) -> None:
        """Report the damage found at opening, and start the loops."""
        settings = self._state.settings
        self._report_damage()
        loops.every("flush of the log", lambda: settings[keys.FLUSH_INTERVAL_MS], self._flush_log)
        loops.every("flush of derived files", lambda: _DERIVED_FLUSH_MS, self._flush_derived)
        loops.every("retention", lambda: _RETENTION_MS, self.delete_expired)
        loops.every("preparation of the next segment", lambda: _PREPARE_MS, self._prepare_segment)
        loops.every("statistics", lambda: SAMPLE_MS, self._sample_statistics)
        loops.every("damage report", lambda: _DAMAGE_MS, self._report_damage)

    async def delete_expired(self) -> None:
        """Delete one round of expired segments and the derived files that point into them."""
        async with self._derived_lock:
            deleted = self._state.store.retain_once()
        for segment in deleted.segments:
            log.info("deleted: %s", segment.reason)

    async def _flush_log(self) -> None:
        state, now_ms = self._state, self._state.now_ms()
        store, settings = state.store, state.settings
        rule = FlushRule(
            settings[keys.FLUSH_INTERVAL_MS], settings[keys.FLUSH_LEAST_PAGES], settings[keys.FLUSH_THOROUGH_MS]
        )
        since_ms = now_ms - self._log_flushed_ms
        if rule.is_due(written_to=store.written_to, flushed_to=store.flushed_to, since_flush_ms=since_ms):
            await asyncio.get_running_loop().run_in_executor(self._disk_thread, self._sync_log)
            self._log_flushed_ms = state.now_ms()

    async def _flush_derived(self) -> None:
        state, now_ms = self._state, self._state.now_ms()
        # Read before the flush: units dispatched while it runs may not be covered by it.
        dispatched_to = state.store.dispatched_to
        unflushed_bytes = dispatched_to - self._derived_flushed_to
        is_due = now_ms - self._derived_flushed_ms >= state.settings[keys.QUEUE_FLUSH_INTERVAL_MS]
        if not unflushed_bytes or not (is_due or unflushed_bytes >= _DERIVED_FLUSH_BYTES):
            return
        async with self._derived_lock:
            await asyncio.get_running_loop().run_in_executor(self._disk_thread, state.store.flush_derived)
        self._derived_flushed_to, self._derived_flushed_ms = dispatched_to, state.now_ms()

    def _prepare_segment(self) -> None:
        self._state.store.prepare_once()

    def _report_damage(self) -> None:
        """Log damage found since the last report, at opening or by a reader."""
        damage = self._state.store.damage
        for damaged in damage[self._reported_damage :]:
            log.error(
                "unreadable log: %d bytes at physical offset %d: %s",
                damaged.size_bytes,
                damaged.physical_offset,
                damaged.reason,
            )
        self._reported_damage = len(damage)

    def _sample_statistics(self) -> None:
        now_ms = self._state.now_ms()
        self._state.statistics.sample(now_ms, time.localtime(now_ms / 1000).tm_yday)
