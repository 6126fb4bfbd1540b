"""Log partitions: the ranges of the CommitLog that tasks read, each from one record boundary to another.

A read from the start of a store uses `log_splits`, which cuts at fixed sizes and then validates the boundaries. A read
from a given physical offset, and a stream, walk the log record by record, which needs no validation. The readable part
ends at the offset that a running Orbitlog broker has confirmed, else after the last intact record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from orbitlog.formats.records.log_format import LogFormat, LogFound, read_log_at
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import Damage, SegmentEnd
from orbitlog.jobs.log_splits import plan_splits, prove_splits
from orbitlog.kernels.record_walk import SourceBytes, Stop
from orbitlog.kernels.splits import Split, walk_split
from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.source_errors import DataLoss
from orbitlog.pipeline.sources.store_snapshot import StoreSnapshot
from orbitlog.storefiles.store_files import OffsetFile

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class LogPartition:
    """Records of one segment from `start` to before `stop`; both are positions in the file."""

    broker_name: str
    path: str
    base: int
    segment_bytes: int
    start: int
    stop: int
    log_format: LogFormat = LogFormat.ORDINARY
    """If DLedger has written the file, `start` and `stop` are positions of entries."""


def plan_whole_log(snapshot: StoreSnapshot, split_bytes: int, *, fail_on_damage: bool) -> list[LogPartition]:
    """Return partitions of the whole log, cut at validated split boundaries; raise `DataLoss` for damage."""
    splits = plan_splits(snapshot.files, snapshot.segment_bytes, split_bytes=split_bytes, until=snapshot.limit)
    proved = prove_splits(splits)
    if fail_on_damage and proved.damage:
        walk = proved.damage[0]
        raise _damage(snapshot, walk.split.base + walk.next_position, walk.reason)
    if fail_on_damage and splits and splits[-1].committed_end is not None:
        last = proved.walks[-1]
        end = last.split.base + last.next_position
        if end < splits[-1].committed_end:
            raise _damage(snapshot, end, f"the log ends before its committed end {splits[-1].committed_end}")
    name = snapshot.store.broker_name
    return [
        LogPartition(name, split.path, split.base, split.segment_bytes, split.first or 0, split.stop, split.log_format)
        for split in proved.splits
    ]


class LogFollower:
    """Walks the log of one store record by record and cuts it at record boundaries."""

    def __init__(self, snapshot: StoreSnapshot, *, check_crc: bool = True) -> None:
        self._snapshot = snapshot
        self._check_crc = check_crc
        self._until = snapshot.readable_to

    def end_of_log(self, start: int, bytes_max: int | None = None) -> int:
        """Return the end of the records that follow `start`, or of about `bytes_max` bytes of them."""
        start = self._skip_blank(start)
        limit = self._until if bytes_max is None else min(self._until, start + bytes_max)
        end = start
        # A record that starts before the limit is included, so that one larger than the limit does not stall the
        # stream.
        for partition in self._follow(start, limit):
            end = partition.base + partition.stop
        return end

    def partitions(self, start: int, end: int, split_bytes: int) -> list[LogPartition]:
        """Return partitions of about `split_bytes` bytes between two record boundaries."""
        return [
            piece
            for followed in self._follow(start, end, check_crc=False)
            for piece in self._cut(followed, split_bytes)
        ]

    def check_start(self, start: int) -> int:
        """Return where to start; raise `DataLoss` if `start` was deleted, `OptionError` if no record starts there.

        The physical offset of a record in a DLedger entry leads to that entry.
        """
        segments = self._snapshot.files.segments
        first = segments[0].base if segments else 0
        if start < first:
            raise DataLoss(
                f"the log of {self._snapshot.store.broker_name} now starts at {first}, offset {start} was requested"
            )
        segment = self._segment(start)
        if start >= self._until or segment is None:
            return start
        for position in dict.fromkeys((start, start - segment.log_format.header_bytes)):
            if position >= segment.base and not isinstance(self._read(segment, position), Damage):
                return position
        raise OptionError(f"no record of {self._snapshot.store.broker_name} starts at physical offset {start}")

    def _read(self, segment: OffsetFile, physical_offset: int) -> LogFound:
        view = _view(segment, self._snapshot)
        return read_log_at(view, physical_offset - segment.base, segment.log_format, base_physical_offset=segment.base)

    def _skip_blank(self, start: int) -> int:
        """Return the start of the next segment if `start` is at the BLANK that ends one, else `start`."""
        segment = self._segment(start)
        if segment is None or start >= self._until:
            return start
        record = self._read(segment, start)
        following = segment.base + self._snapshot.segment_bytes
        is_at_end = isinstance(record, SegmentEnd) and self._segment(following) is not None and following <= self._until
        return following if is_at_end else start

    def _follow(self, start: int, limit: int, *, check_crc: bool | None = None) -> Iterator[LogPartition]:
        """Yield one partition per segment: records that start before `limit` and end within the readable log."""
        crc = self._check_crc if check_crc is None else check_crc
        while (segment := self._segment(start)) is not None and start < limit:
            view = _view(segment, self._snapshot)
            source = SourceBytes(view, segment.base, segment.log_format)
            position = start - segment.base
            stop = min(limit - segment.base, len(source))
            walk = walk_split(source, Split(position, stop), first=position, check_crc=crc)
            reached, ended = walk.next_position, walk.stop
            if segment.base + reached > self._until:
                reached = self._end_of_last_record(view, segment, position)
                ended = None
            if reached > position:
                name = self._snapshot.store.broker_name
                yield LogPartition(
                    name, str(segment.path), segment.base, len(source), position, reached, segment.log_format
                )
            if not isinstance(ended, SegmentEnd):
                return
            start = segment.base + self._snapshot.segment_bytes

    def _end_of_last_record(self, view: memoryview, segment: OffsetFile, position: int) -> int:
        """Return the end of the last record that is entirely within the readable log."""
        reached, base = position, segment.base
        while base + reached < self._until:
            record = read_log_at(view, reached, segment.log_format, base_physical_offset=base, check_crc=False)
            if not isinstance(record, Message):
                break
            end = reached + segment.log_format.header_bytes + record.size_bytes
            if base + end > self._until:
                break
            reached = end
        return reached

    def _cut(self, followed: LogPartition, split_bytes: int) -> Iterator[LogPartition]:
        segment = self._segment(followed.base)
        assert segment is not None
        source = SourceBytes(_view(segment, self._snapshot), followed.base, followed.log_format)
        start = followed.start
        while start < followed.stop:
            target = min(start + split_bytes, followed.stop)
            walk = walk_split(source, Split(start, target), first=start)
            assert walk.stop is None, "_follow walked these records before"
            yield replace(followed, start=start, stop=walk.next_position)
            start = walk.next_position

    def _segment(self, physical_offset: int) -> OffsetFile | None:
        base = physical_offset - physical_offset % self._snapshot.segment_bytes
        return next((segment for segment in self._snapshot.files.segments if segment.base == base), None)


def _view(segment: OffsetFile, snapshot: StoreSnapshot) -> memoryview:
    # Unmapped when the last buffer over it is released.
    return np.memmap(segment.path, np.uint8, mode="r").data[: snapshot.segment_bytes]


def _damage(snapshot: StoreSnapshot, physical_offset: int, reason: str) -> DataLoss:
    return DataLoss(
        f"the log of {snapshot.store.broker_name} is damaged at physical offset {physical_offset} ({reason});"
        " option failOnDataLoss=false skips the rest of that segment"
    )


def scan_partition(scan: Callable[..., Iterator[Part]], partition: LogPartition, *, check_crc: bool) -> Iterator[Part]:
    """Run a kernel's `scan` over the records of a partition."""
    view = np.memmap(partition.path, np.uint8, mode="r").data[: partition.segment_bytes]
    return scan(
        view,
        partition.start,
        partition.stop,
        base_physical_offset=partition.base,
        log_format=partition.log_format,
        check_crc=check_crc,
    )


def check_end(partition: LogPartition, ended: tuple[int, Stop], *, fail_on_damage: bool) -> None:
    """Raise `DataLoss` if damage stopped a read before the end of its partition."""
    position, stop = ended
    if position < partition.stop and isinstance(stop, Damage) and fail_on_damage:
        raise DataLoss(
            f"the log of {partition.broker_name} is damaged at physical offset {partition.base + position}"
            f" ({stop.error.problem}); option failOnDataLoss=false skips the rest of that segment"
        )


def total_bytes(partitions: Sequence[LogPartition]) -> int:
    return sum(partition.stop - partition.start for partition in partitions)
