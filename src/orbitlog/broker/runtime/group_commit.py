"""Flushes of the log: Java's rule for periodic flushes, and group commit for sends that wait for one.

`FlushRule` mirrors Java's FlushRealTimeService and only decides; `GroupCommit` mirrors its GroupCommitService.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from orbitlog.errors import StoreError

_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FlushRule:
    """Flush when enough pages were written, or any bytes if the thorough interval has passed."""

    interval_ms: int = 500
    least_pages: int = 4
    thorough_interval_ms: int = 10_000

    def is_due(self, *, written_to: int, flushed_to: int, since_flush_ms: int) -> bool:
        """Return whether to flush now; call this every `interval_ms`."""
        if written_to <= flushed_to:
            return False
        pages = written_to // _PAGE_BYTES - flushed_to // _PAGE_BYTES
        return pages >= self.least_pages or since_flush_ms >= self.thorough_interval_ms


LOG_RULE = FlushRule()
QUEUE_RULE = FlushRule(interval_ms=1_000, least_pages=2, thorough_interval_ms=60_000)


class GroupCommit:
    """Flushes the log in a thread of its own; one flush covers every append made before it started.

    The caller decides when: too early, and each flush covers few appends; too late, and all of them wait
    (`broker.sending.flush_queue` decides).
    """

    def __init__(
        self, flush: Callable[[], int], landed: Callable[[int], None], failed: Callable[[StoreError], None]
    ) -> None:
        """Call `landed` with the flushed end of the log after each flush, or `failed`; both in the flushing thread."""
        self._flush = flush
        self._landed = landed
        self._failed = failed
        # Set by the caller's thread, cleared by the flushing thread; the lock below orders the two.
        self._is_asked = self._is_closed = False
        # Held while no flush is requested: releasing a lock wakes a thread at a fraction of the cost of an Event.
        self._idle = threading.Lock()
        self._idle.acquire()
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Request a flush of everything written so far. Call it from one thread only."""
        if self._is_asked:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="orbitlog-group-commit", daemon=True)
            self._thread.start()
        self._is_asked = True
        self._idle.release()

    def close(self) -> None:
        """Return when the last requested flush has ended."""
        self._is_closed = True
        if self._thread is not None:
            if not self._is_asked:
                self._idle.release()
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._idle.acquire()
            if self._is_asked:
                # Cleared before the flush reads the end of the log: an append after that needs a flush of its own, and
                # its request must not be lost.
                self._is_asked = False
                self._flush_once()
            if self._is_closed and not self._is_asked:
                return

    def _flush_once(self) -> None:
        try:
            self._landed(self._flush())
        except StoreError as error:
            self._failed(error)
