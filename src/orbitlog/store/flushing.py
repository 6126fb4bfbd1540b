"""When the log goes to the disk: Java's rules for doing it now and then, and one trip for many who wait for it.

Pure decisions and one lock; the threads are whoever calls. `FlushRule` mirrors Java's FlushRealTimeService,
`GroupCommit` its GroupCommitService.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

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
    """Lets any number of threads wait until their messages are on the disk, with as few trips as there can be.

    One of them flushes all that was written by then; the others wait, and all whose messages it took along go on.
    """

    def __init__(self, flush: Callable[[], int], flushed_to: Callable[[], int]) -> None:
        self._flush = flush
        self._flushed_to = flushed_to
        self._is_flushing = False
        self._changed = threading.Condition()

    def wait(self, end: int, timeout_ms: int) -> bool:
        """Return True once everything before `end` is on the disk, False if that took too long."""
        deadline_s = time.monotonic() + timeout_ms / 1000
        while self._flushed_to() < end:
            with self._changed:
                if self._is_flushing:
                    left_s = deadline_s - time.monotonic()
                    if left_s <= 0 or not self._changed.wait(left_s):
                        return self._flushed_to() >= end
                    continue
                self._is_flushing = True
            try:
                self._flush()
            finally:
                with self._changed:
                    self._is_flushing = False
                    self._changed.notify_all()
        return True
