"""Dispatch scheduling: decides when appended messages enter their queues and wakes the consumers that wait for them.

Mirrors the thread of Java's `ReputMessageService`. Here dispatch runs in the event loop, in steps small enough not to
delay requests. A step has a fixed cost, so when many messages arrive and no consumer waits, a step is delayed by a few
milliseconds and covers all messages that arrive meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor, Future, ThreadPoolExecutor

from orbitlog.broker.delayed.delivery_loop import DeliveryLoop
from orbitlog.broker.pop.pop_consumption import PopConsumption
from orbitlog.broker.pulling.handle_pull import PullHandler
from orbitlog.broker.runtime.background_loops import BackgroundLoops
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.dispatch_pace import DispatchPace
from orbitlog.errors import StoreError
from orbitlog.kernels import COMPILED

log = logging.getLogger(__name__)

# Limits of one step, which blocks the event loop: both take a few milliseconds, in plain Python and with the kernels.
# Messages can have thousands of keys: 64 KiB of them take tens of milliseconds in plain Python.
_STEP_BYTES = 64 * 1024
_KERNEL_STEP_BYTES = 1024 * 1024
# Bytes of the log to read ahead: at 150 MB/s, two tenths of a second.
_READ_AHEAD_BYTES = 32 * 1024 * 1024
# A broker with this much undispatched is busy enough to need the kernels.
_BUSY_BYTES = 16 * 1024
_FOLLOW_MS = 5
_ORPHAN_CHECK_MS = 10_000
_RETRY_SECONDS = 1


class DispatchScheduler:
    """Plans dispatch steps of one broker. Used in the thread of the event loop, except for the two executors' jobs."""

    def __init__(
        self,
        state: BrokerState,
        pulls: PullHandler,
        pops: PopConsumption,
        deliveries: DeliveryLoop,
        kernel_thread: Executor | None = None,
    ) -> None:
        self._state = state
        self._store = state.store
        self._pulls = pulls
        self._pops = pops
        self.deliveries = deliveries
        # Not the disk thread, for which a stopping broker waits: compiling the kernels may take a minute.
        self._kernel_thread = kernel_thread or ThreadPoolExecutor(1, "orbitlog-kernels")
        self._read_ahead_thread = ThreadPoolExecutor(1, "orbitlog-fetch")
        self._pace = DispatchPace()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_planned = False
        self.kernels_requested = False
        self.delayed_step: asyncio.Handle | None = None
        """The planned step, if it may be run early: a request that reads queues does so by `run_now`."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Plan the first step: the store may have messages that an earlier run did not dispatch."""
        self._loop = loop
        self.plan()

    def start_following(self, loops: BackgroundLoops) -> None:
        """Watch the engine in another process that dispatches for this broker."""
        loops.every("following of dispatch", lambda: _FOLLOW_MS, self._follow)
        loops.every("check for an orphaned dispatch", lambda: _ORPHAN_CHECK_MS, self._warn_if_orphaned)

    def close(self) -> None:
        """Plan no further step. A step that is planned does nothing: closing the store dispatches the rest."""
        self._loop = None
        self._read_ahead_thread.shutdown()

    def plan(self, *, soon: bool = False) -> None:
        """Plan one step for all messages appended until it runs, after the requests being read have been served.

        Without a waiting consumer the step is delayed by the pace, unless `soon`: messages that arrive meanwhile cost
        much less in one step.
        """
        if self._is_planned or self._loop is None:
            return
        self._is_planned = True
        if self._is_awaited:
            self._loop.call_soon(self.run_step)
        elif soon:
            self.delayed_step = self._loop.call_soon(self.run_step)
        else:
            self.delayed_step = self._loop.call_later(self._pace.seconds, self.run_step)

    @property
    def _is_awaited(self) -> bool:
        """Return whether a pull or a POP request waits for a message."""
        return bool(self._pulls.held or self._pops.are_held)

    def run_now(self, delayed_step: asyncio.Handle) -> None:
        """Run the delayed step, and those after it, before a request that may read what they dispatch."""
        delayed_step.cancel()
        store = self._store
        self.run_step()
        while self.delayed_step is not None and store.dispatched_to < store.confirmed_to:
            self.delayed_step.cancel()
            self.run_step()

    def run_step(self) -> None:
        """Dispatch one step, wake the consumers of what arrived, and plan the next step if messages are left."""
        self._is_planned = False
        self.delayed_step = None
        if self._loop is None:
            return
        store = self._store
        self._pace.note(self._loop.time(), store.messages_appended)
        if store.written_to - store.dispatched_to >= _BUSY_BYTES and not self.kernels_requested:
            self._load_kernels()
        if self.kernels_requested and (read_ahead := store.fetch_ahead(_READ_AHEAD_BYTES)) is not None:
            self._read_ahead_thread.submit(read_ahead)
        try:
            max_bytes = _KERNEL_STEP_BYTES if store.has_kernels else _STEP_BYTES
            arrivals = store.dispatch_once(max_bytes, each=self._is_awaited)
        except StoreError as error:
            log.error("dispatch failed, retrying in %d s: %s", _RETRY_SECONDS, error)
            self._loop.call_later(_RETRY_SECONDS, self.plan)
            return
        if arrivals:
            self._pulls.wake(arrivals)
            self._pops.wake(arrivals)
            self.deliveries.wake(arrivals)
        if store.dispatched_to < store.confirmed_to and (arrivals or store.is_dispatch_inline):
            self.plan(soon=True)  # more than one step was left

    def dispatch_all(self) -> None:
        """Dispatch everything appended so far: before timer files are written, the timer must have every checkpoint."""
        store, dispatched_before = self._store, -1
        while store.is_dispatch_inline and dispatched_before < store.dispatched_to < store.confirmed_to:
            dispatched_before = store.dispatched_to
            store.dispatch_once(_STEP_BYTES)

    def _load_kernels(self) -> None:
        """Load the compiled dispatch kernels in a thread. They take memory, so only a busy broker loads them."""
        self.kernels_requested = True
        if not COMPILED:
            log.info("dispatch runs in plain Python; pip install 'orbitlog[fast]' installs the compiled kernels")
            return
        loading = self._kernel_thread.submit(self._store.load_kernels)
        loading.add_done_callback(_log_failure)

    # Dispatch by another process

    def hand_over(self) -> None:
        """Let an engine in another process dispatch from now on, and follow it."""
        self._store.hand_over_dispatch()

    def take_back(self) -> bool:
        """Dispatch in this process from now on. Return False while the other engine finishes: then retry."""
        is_back = self._store.take_back_dispatch()
        self.plan()
        return is_back

    def _follow(self) -> None:
        """Plan a step that reads the progress of the engine in the other process."""
        if not self._store.is_dispatch_inline:
            self.plan()

    def _warn_if_orphaned(self) -> None:
        store = self._store
        if not store.is_dispatch_inline and store.is_dispatch_orphaned and store.dispatched_to < store.confirmed_to:
            log.warning(
                "no process dispatches: consumers do not see the last %d bytes; start `orbitlog pipeline dispatch %s`",
                store.confirmed_to - store.dispatched_to,
                self._state.root,
            )


def _log_failure(loading: Future[None]) -> None:
    error = loading.exception()
    if error is not None:
        log.warning("could not load the dispatch kernels, dispatch continues without them: %s", error)
