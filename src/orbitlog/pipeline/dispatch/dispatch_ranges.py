"""Which part of a live log the next micro-batch of dispatch takes, cut into ranges that tasks work out apart.

Every range starts and stops at a record: where the log is confirmed, at the start of a segment, or where a walk from
the start has come. Nothing is searched for, so nothing in a body can be taken for a record.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.formats.derived.store_state import CONFIRMED, CONFIRMED_FILE
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_paths import StorePaths

MAX_BYTES_DEFAULT = 64 * 1024 * 1024
RANGE_BYTES_DEFAULT = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DispatchRange:
    """A part of one segment, in physical offsets."""

    base: int
    start: int
    stop: int


class DispatchPlanner:
    """Plans ranges of one store's log."""

    def __init__(self, paths: StorePaths, segment_bytes: int, max_bytes: int, range_bytes: int) -> None:
        self._paths = paths
        self._segment_bytes = segment_bytes
        self._max_bytes = max_bytes
        self._range_bytes = range_bytes

    def confirmed_to(self) -> int:
        """Return how far the broker says that others may read."""
        raw = (self._paths.root / CONFIRMED_FILE).read_bytes()
        return int(CONFIRMED.struct.unpack_from(raw)[0]) if len(raw) >= CONFIRMED.size_bytes else 0

    def end(self, start: int, confirmed_to: int) -> int:
        """Return where a micro-batch from `start` ends: about `max_bytes` further, or as far as is confirmed."""
        if confirmed_to - start <= self._max_bytes:
            return max(confirmed_to, start)
        ranges = self.ranges(start, confirmed_to, until=start + self._max_bytes)
        return ranges[-1].stop if ranges else start

    def ranges(self, start: int, end: int, *, until: int | None = None) -> list[DispatchRange]:
        """Cut the log from `start` to `end`, two places where records start; no range begins at or behind `until`."""
        found: list[DispatchRange] = []
        until = end if until is None else until
        while start < min(end, until):
            base = start - start % self._segment_bytes
            segment_end = min(base + self._segment_bytes, end)
            found += self._cut(base, start, segment_end, until)
            start = found[-1].stop
        return found

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
                # What is no message ends the walk: the last range has it, and whoever puts it looks closer.
                end = base + walk.next_position if walk.stop is None else stop
                ranges.append(DispatchRange(base, start, end))
                start = ranges[-1].stop
            del source  # the map cannot be closed while an array looks into it
        return ranges
