"""Ranges of the log that tasks read: every one begins and ends where a record does.

From the beginning of a store they come from `log_splits`, which cuts first and then proves. From a given physical
offset on, and for streams, the log is followed record by record, which needs no proof. What may be read ends at what
a running Orbitlog broker has confirmed, else where the intact records end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import Damage, SegmentEnd, read_at
from orbitlog.jobs.log_splits import plan_splits, prove_splits
from orbitlog.kernels.record_walk import SourceBytes, Stop
from orbitlog.kernels.splits import Split, walk_split
from orbitlog.pipeline.sources.named_stores import OptionError
from orbitlog.pipeline.sources.queue_scan import DataLoss
from orbitlog.pipeline.sources.store_snapshot import StoreLook, confirmed_to
from orbitlog.storefiles.store_files import OffsetFile


@dataclass(frozen=True, slots=True)
class LogRange:
    """Records of one segment from `start` to before `stop`; both count from the start of the file."""

    broker_name: str
    path: str
    base: int
    segment_bytes: int
    start: int
    stop: int


def whole_log(look: StoreLook, split_bytes: int, *, fail_on_damage: bool) -> list[LogRange]:
    """Cut the whole log of a store, in splits that are proved by stitching."""
    splits = plan_splits(
        look.files, look.segment_bytes, split_bytes=split_bytes, until=confirmed_to(Path(look.store.root))
    )
    proved = prove_splits(splits)
    if fail_on_damage and proved.damage:
        walk = proved.damage[0]
        raise _damage(look, walk.split.base + walk.next_position, walk.reason)
    name = look.store.broker_name
    return [
        LogRange(name, split.path, split.base, split.segment_bytes, split.first or 0, split.stop)
        for split in proved.splits
    ]


class LogFollower:
    """Follows the log of one store record by record, and notes where it may be cut."""

    def __init__(self, look: StoreLook, *, check_crc: bool = True) -> None:
        self._look = look
        self._check_crc = check_crc
        self._until = look.readable_to

    def end_of_log(self, start: int, bytes_max: int | None = None) -> int:
        """Return where the records that follow `start` end, or where about `bytes_max` of them do."""
        start = self._behind_blank(start)
        limit = self._until if bytes_max is None else min(self._until, start + bytes_max)
        end = start
        # The record that starts before the limit is taken whole, so a large one alone does not stop a stream.
        for found in self._follow(start, limit):
            end = found.base + found.stop
        return end

    def ranges(self, start: int, end: int, split_bytes: int) -> list[LogRange]:
        """Cut what lies between two places where records start."""
        return [piece for found in self._follow(start, end, check_crc=False) for piece in self._cut(found, split_bytes)]

    def check_start(self, start: int) -> None:
        """Refuse a place where no record starts."""
        segments = self._look.files.segments
        first = segments[0].base if segments else 0
        if start < first:
            raise DataLoss(f"the log of {self._look.store.broker_name} starts at {first} by now, {start} was asked for")
        segment = self._segment(start)
        if start >= self._until or segment is None:
            return
        found = read_at(_view(segment, self._look), start - segment.base, base_physical_offset=segment.base)
        if isinstance(found, Damage):
            raise OptionError(f"no record of {self._look.store.broker_name} starts at physical offset {start}")

    def _behind_blank(self, start: int) -> int:
        """Return where the log goes on: behind the end of a segment, in the next one that is there."""
        segment = self._segment(start)
        if segment is None or start >= self._until:
            return start
        found = read_at(_view(segment, self._look), start - segment.base, base_physical_offset=segment.base)
        following = segment.base + self._look.segment_bytes
        is_over = isinstance(found, SegmentEnd) and self._segment(following) is not None and following <= self._until
        return following if is_over else start

    def _follow(self, start: int, limit: int, *, check_crc: bool | None = None) -> Iterator[LogRange]:
        """Yield what was followed, segment by segment: records that start before `limit` and end before the log's."""
        crc = self._check_crc if check_crc is None else check_crc
        while (segment := self._segment(start)) is not None and start < limit:
            view = _view(segment, self._look)
            source = SourceBytes(view, segment.base)
            position = start - segment.base
            stop = min(limit - segment.base, len(source))
            walk = walk_split(source, Split(position, stop), first=position, check_crc=crc)
            reached, ended = walk.next_position, walk.stop
            if segment.base + reached > self._until:
                reached = self._last_whole(view, segment.base, position)
                ended = None
            if reached > position:
                name = self._look.store.broker_name
                yield LogRange(name, str(segment.path), segment.base, len(source), position, reached)
            if not isinstance(ended, SegmentEnd):
                return
            start = segment.base + self._look.segment_bytes

    def _last_whole(self, view: memoryview, base: int, position: int) -> int:
        """Return where the last record that lies before the readable end entirely ends."""
        reached = position
        while base + reached < self._until:
            found = read_at(view, reached, base_physical_offset=base, check_crc=False)
            if not isinstance(found, Message) or base + reached + found.size_bytes > self._until:
                break
            reached += found.size_bytes
        return reached

    def _cut(self, found: LogRange, split_bytes: int) -> Iterator[LogRange]:
        segment = self._segment(found.base)
        assert segment is not None
        source = SourceBytes(_view(segment, self._look), found.base)
        start = found.start
        while start < found.stop:
            target = min(start + split_bytes, found.stop)
            walk = walk_split(source, Split(start, target), first=start)
            assert walk.stop is None, "it was followed before"
            yield LogRange(found.broker_name, found.path, found.base, found.segment_bytes, start, walk.next_position)
            start = walk.next_position

    def _segment(self, physical_offset: int) -> OffsetFile | None:
        base = physical_offset - physical_offset % self._look.segment_bytes
        return next((segment for segment in self._look.files.segments if segment.base == base), None)


def _view(segment: OffsetFile, look: StoreLook) -> memoryview:
    # Unmapped when nothing looks into it any more.
    return np.memmap(segment.path, np.uint8, mode="r").data[: look.segment_bytes]


def _damage(look: StoreLook, physical_offset: int, reason: str) -> DataLoss:
    return DataLoss(
        f"the log of {look.store.broker_name} is damaged at physical offset {physical_offset} ({reason});"
        " option failOnDataLoss=false leaves out the rest of that segment"
    )


def check_end(found: LogRange, ended: tuple[int, Stop], *, fail_on_damage: bool) -> None:
    """Raise unless a read got to the end of its range."""
    position, stop = ended
    if position < found.stop and isinstance(stop, Damage) and fail_on_damage:
        raise DataLoss(
            f"the log of {found.broker_name} is damaged at physical offset {found.base + position}"
            f" ({stop.error.problem}); option failOnDataLoss=false leaves out the rest of that segment"
        )


def total_bytes(ranges: Sequence[LogRange]) -> int:
    return sum(found.stop - found.start for found in ranges)
