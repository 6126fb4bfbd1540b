"""When the log goes to the disk: Java's rules for doing it now and then, and one trip for many who wait for it.

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
    """Flush when enough pages were written, and at the latest after the thorough interval whatever was."""

    interval_ms: int = 500
    least_pages: int = 4
    thorough_interval_ms: int = 10_000

    def is_due(self, *, written_to: int, flushed_to: int, since_flush_ms: int) -> bool:
        """Tell whether to flush now; ask every `interval_ms`."""
        if written_to <= flushed_to:
            return False
        pages = written_to // _PAGE_BYTES - flushed_to // _PAGE_BYTES
        return pages >= self.least_pages or since_flush_ms >= self.thorough_interval_ms


LOG_RULE = FlushRule()
QUEUE_RULE = FlushRule(interval_ms=1_000, least_pages=2, thorough_interval_ms=60_000)


class GroupCommit:
    """Takes the log to the disk in a thread of its own: one trip serves all who wrote before it began.

    When to ask is the art: at once, and many trips carry few; late, and everybody waits (`broker.sending.flush_queue`
    does it).
    """

    def __init__(
        self, flush: Callable[[], int], landed: Callable[[int], None], failed: Callable[[StoreError], None]
    ) -> None:
        """Let `landed` be told, in the thread, how far the log is on the disk; `failed` if the disk refused."""
        self._flush = flush
        self._landed = landed
        self._failed = failed
        self._is_asked = self._is_closed = False
        # Held while there is nothing to do: a lock wakes a thread for a fraction of what an Event costs.
        self._nothing_to_do = threading.Lock()
        self._nothing_to_do.acquire()
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Have everything that is written by now on the disk soon; to be called in one thread alone."""
        if self._is_asked:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="orbitlog-group-commit", daemon=True)
            self._thread.start()
        self._is_asked = True
        self._nothing_to_do.release()

    def close(self) -> None:
        """Return when the last trip that was asked for is over."""
        self._is_closed = True
        if self._thread is not None:
            if not self._is_asked:
                self._nothing_to_do.release()
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._nothing_to_do.acquire()
            if self._is_asked:
                # Before the flush looks how much is written: who asks from now on may have written later.
                self._is_asked = False
                self._make_trip()
            if self._is_closed and not self._is_asked:
                return

    def _make_trip(self) -> None:
        try:
            self._landed(self._flush())
        except StoreError as error:
            self._failed(error)
