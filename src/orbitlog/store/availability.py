"""Availability: whether a store takes messages, and why not: closed, failed sync, full disk, store of a slave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitlog.errors import StoreClosed, StoreError


class Availability:
    """State of one store, shared by the thread that appends and the one that flushes.

    `is_limited` is the only field that the append fast path reads. It is assigned last, and a bool is assigned at once:
    an append that starts after a failed sync sees it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.is_closed = False
        self.failure = ""
        self.full_disk = ""
        self.replica_reason = ""
        self.fence_reason = ""
        self.is_limited = False

    def close(self) -> None:
        """Take no more messages; not undone."""
        self.is_closed = self.is_limited = True

    def note_full_disk(self, reason: str) -> None:
        """Take no messages because a disk is too full; an empty reason lifts that."""
        self.full_disk = reason
        self._update()

    def fence(self, reason: str) -> None:
        """Take no messages because this broker may not be the master of its replica group; an empty reason lifts it."""
        self.fence_reason = reason
        self._update()

    def _update(self) -> None:
        reason = self.failure or self.full_disk or self.replica_reason or self.fence_reason
        self.is_limited = bool(self.is_closed or reason)

    def refuse_own_messages(self) -> None:
        """Take no messages except those of a master; not undone."""
        self.replica_reason = f"{self._root} is the store of a slave: send to its master"
        self.is_limited = True

    def fail(self, error: OSError) -> StoreError:
        """Take no more messages after a failed sync; return the error to raise."""
        self.failure = f"sync failed ({error}): unflushed messages may be lost; the store is read-only until a restart"
        self.is_limited = True
        return StoreError(self.failure)

    def check_open(self) -> None:
        """Raise `StoreClosed` if the store is closed."""
        if self.is_closed:
            raise StoreClosed(f"{self._root} is closed")

    @contextmanager
    def failing_for_good(self) -> Iterator[None]:
        """Turn a failed sync into a permanent failure.

        After a failed fsync the kernel may mark the pages clean: the next fsync would succeed without their bytes.
        """
        if self.failure:
            raise StoreError(self.failure)
        try:
            yield
        except OSError as error:
            raise self.fail(error) from error
