"""Epoch history: which range of a replica's log was written under which master. Mirrors Java `EpochFileCache`.

Two logs with an entry of the same epoch and start have the same bytes up to the end of the shorter entry, because one
master wrote them. That holds only if every epoch with bytes has an entry, so an entry without bytes is replaced by the
next one (Java drops the next one), and entries past the end of the log are removed before it grows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from orbitlog.formats.derived.epoch_file import EpochEntry


class EpochHistory:
    """Entries of one log, by increasing epoch and start."""

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries = tuple(entries)
        self._starts = [entry.start_physical_offset for entry in self._entries]

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    @property
    def last_epoch(self) -> int:
        """Return the newest epoch; 0 without entries."""
        return self._entries[-1].epoch if self._entries else 0

    def begin(self, epoch: int, start: int) -> EpochHistory:
        """Return this history with a new epoch from `start` on, which replaces entries that have no bytes before it."""
        kept = [entry for entry in self._entries if entry.start_physical_offset < start]
        return EpochHistory((*kept, EpochEntry(epoch, start)))

    def up_to(self, end: int) -> EpochHistory:
        """Return the entries of a log that ends at `end`, one without bytes at the end included."""
        if not self._starts or self._starts[-1] <= end:
            return self
        return EpochHistory(self._entries[: bisect_right(self._starts, end)])

    def from_start(self, log_start: int) -> EpochHistory:
        """Return the history without the entries that end at or before the first kept byte."""
        first = bisect_right(self._starts, log_start) - 1
        return EpochHistory(self._entries[max(first, 0) :])

    def at(self, physical_offset: int, end: int) -> tuple[EpochEntry, int] | None:
        """Return the epoch of the byte at an offset, and the offset at which its entry ends; None before the first."""
        index = bisect_right(self._starts, physical_offset) - 1
        if index < 0:
            return None
        return self._entries[index], self._end_of(index, end)

    def common_point(self, own_end: int, other: EpochHistory, other_end: int) -> int | None:
        """Return the offset up to which both logs have the same bytes; None without a common epoch."""
        positions = {entry: index for index, entry in enumerate(other.entries)}
        for index in range(len(self._entries) - 1, -1, -1):
            match = positions.get(self._entries[index])
            if match is not None:
                return min(self._end_of(index, own_end), other._end_of(match, other_end))
        return None

    def _end_of(self, index: int, log_end: int) -> int:
        return self._starts[index + 1] if index + 1 < len(self._starts) else log_end


def adopted(master_entries: Sequence[EpochEntry], end: int) -> EpochHistory:
    """Return the history of a slave whose log equals the master's up to `end`."""
    return EpochHistory(master_entries).up_to(end)
