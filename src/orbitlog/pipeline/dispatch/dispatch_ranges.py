"""Micro-batch planning of dispatch: cuts the confirmed part of a live log into ranges that tasks derive in parallel.

Every range starts and ends at a record boundary: the confirmed offset, the start of a segment, or a position reached
by walking from the start. No boundary is searched for, so bytes in a body cannot be mistaken for a record.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.formats.derived.store_state import CONFIRMED, CONFIRMED_FILE
from orbitlog.storefiles.confined.regular_files import read_regular
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_paths import StorePaths

MAX_BYTES_DEFAULT = 64 * 1024 * 1024
RANGE_BYTES_DEFAULT = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DispatchRange:
    """A range of one segment, in physical offsets; `base` is the segment's start."""

    base: int
    start: int
    stop: int


class DispatchPlanner:
    """Plans the ranges of one store's log."""

    def __init__(self, paths: StorePaths, segment_bytes: int, max_bytes: int, range_bytes: int) -> None:
        self._paths = paths
        self._segment_bytes = segment_bytes
        self._max_bytes = max_bytes
        self._range_bytes = range_bytes

    def confirmed_to(self) -> int:
        """Return the physical offset up to which the broker allows other processes to read."""
        raw = read_regular(self._paths.root / CONFIRMED_FILE)
        return int(CONFIRMED.struct.unpack_from(raw)[0]) if len(raw) >= CONFIRMED.size_bytes else 0

    def end(self, start: int, confirmed_to: int) -> int:
        """Return the end of a micro-batch from `start`: about `max_bytes` later, at most `confirmed_to`."""
        if confirmed_to - start <= self._max_bytes:
            return max(confirmed_to, start)
        ranges = self.ranges(start, confirmed_to, until=start + self._max_bytes)
        return ranges[-1].stop if ranges else start

    def ranges(self, start: int, end: int, *, until: int | None = None) -> list[DispatchRange]:
        """Cut the log from `start` to `end`, both at record boundaries; no range starts at or past `until`."""
        ranges: list[DispatchRange] = []
        until = end if until is None else until
        while start < min(end, until):
            base = start - start % self._segment_bytes
            segment_end = min(base + self._segment_bytes, end)
            ranges += self._cut(base, start, segment_end, until)
            start = ranges[-1].stop
        return ranges

    def _cut(self, base: int, start: int, stop: int, until: int) -> list[DispatchRange]:
        if stop - start <= self._range_bytes:
            return [DispatchRange(base, start, stop)]
        from orbitlog.kernels.record_walk import SourceBytes
        from orbitlog.kernels.splits import Split, walk_split

        ranges: list[DispatchRange] = []
        with mapped_view(self._paths.find_segment(base)) as view:
            source = SourceBytes(view, base)
            while start < min(stop, until):
                limit = min(start + self._range_bytes, stop)
                walk = walk_split(source, Split(start - base, limit - base), first=start - base)
                # The walk ends at bytes that are not a message; the last range includes them, and the writer handles
                # them.
                end = base + walk.next_position if walk.stop is None else stop
                ranges.append(DispatchRange(base, start, end))
                start = ranges[-1].stop
            del source  # a map with exported buffers cannot be closed
        return ranges
