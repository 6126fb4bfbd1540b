"""Splits: cuts a segment into ranges that are read independently, and verifies that their records connect.

A range usually starts inside a record, so its reader first searches for a record start. A message body can contain
bytes that look exactly like one. The check is free: the chain of records of one range must end at the start of the next
range's chain. If it does not, the next range was misaligned, and is walked from the end of the chain before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orbitlog.formats.records.dledger import FILE_END_MAGIC
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, Bytes
from orbitlog.formats.records.message_scan import MAGIC_BLANK
from orbitlog.kernels.arrays import np
from orbitlog.kernels.jit import kernel
from orbitlog.kernels.record_walk import MESSAGE, SEGMENT_END, SourceBytes, Stop, count_records, is_intact, look_at
from orbitlog.kernels.unaligned import load_u8

_FIRST_OF_MAGIC = MAGIC_V1 >> 24
assert MAGIC_V2 >> 24 == _FIRST_OF_MAGIC
_FIRST_OF_BLANK = MAGIC_BLANK >> 24
_FIRST_OF_FILE_END = FILE_END_MAGIC & 0xFF
_NONE = -1


@kernel
def find_record_start(address, position, stop, end, base, header_bytes, check_crc):
    """Return the first position before `stop` of a record, an entry or the end of the segment, or -1."""
    magic = header_bytes + 4
    while position < stop and position + 8 <= end:
        if header_bytes:
            looks_right = load_u8(address, position) == _FIRST_OF_FILE_END
        else:
            looks_right = load_u8(address, position + 4) == _FIRST_OF_BLANK
        if not looks_right and position + magic < end:
            looks_right = load_u8(address, position + magic) == _FIRST_OF_MAGIC
        if looks_right:
            kind, parts = look_at(address, position, end, base, True, header_bytes)
            if kind == SEGMENT_END:
                return position
            if kind == MESSAGE and is_intact(address, position + header_bytes, parts, True, check_crc):
                return position
        position += 1
    return np.int64(_NONE)


def find_record(
    buffer: Bytes,
    start: int,
    stop: int | None = None,
    *,
    base_physical_offset: int,
    log_format: LogFormat = LogFormat.ORDINARY,
    check_crc: bool = True,
) -> int | None:
    """Return where the next record or entry starts: the twin of `formats.records.log_format.find_in_log`."""
    source = SourceBytes(buffer, base_physical_offset, log_format)
    return _find_start(source, *source.range(start, stop), check_crc=check_crc)


def _find_start(source: SourceBytes, start: int, stop: int, *, check_crc: bool) -> int | None:
    position = int(
        find_record_start(source.address, start, stop, len(source), source.base, source.header_bytes, check_crc)
    )
    return None if position == _NONE else position


@dataclass(frozen=True, slots=True)
class Split:
    """A range of a segment: the messages that start in it belong to it."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class SplitWalk:
    """Result of a split: start of its chain, required start of the next one, number of messages, reason for its end.

    Without a `first`, no record starts in the split: one that started earlier covers it.
    """

    split: Split
    first: int | None
    next_position: int
    message_count: int
    stop: Stop = None


def cut(size_bytes: int, split_bytes: int) -> list[Split]:
    """Cut a segment into splits of that size, the last one shorter."""
    if split_bytes <= 0:
        raise ValueError(f"splits of {split_bytes} bytes are too small")
    return [Split(start, min(start + split_bytes, size_bytes)) for start in range(0, size_bytes, split_bytes)]


def walk_split(source: SourceBytes, split: Split, *, first: int | None = None, check_crc: bool = False) -> SplitWalk:
    """Walk one split from `first` if that is known, else from the first position that looks like a record."""
    assert source.check_offset, "a split is found by the physical offsets that records state"
    start, stop = source.range(split.start, split.stop)
    if first is None and start > 0:
        first = _find_start(source, start, stop, check_crc=check_crc)
        if first is None:
            return SplitWalk(split, None, start, 0)
    first = start if first is None else first
    count, position, why = count_records(
        source.address, first, stop, len(source), source.base, True, source.header_bytes, check_crc
    )
    return SplitWalk(split, first, position, count, source.explain(position, why, check_crc=check_crc))


def unproved(walks: Sequence[SplitWalk]) -> tuple[int, int] | None:
    """Return the first walk that does not start at the end of the chain before it, and its required start.

    Walks are in order and start at 0. After a stop (segment end, zeros, damage) there is no chain to check.
    """
    expected = 0
    for number, found in enumerate(walks):
        if expected >= found.split.stop:
            if found.message_count:
                return number, expected
            continue
        if found.first != expected:
            return number, expected
        if found.stop is not None:
            return None
        expected = found.next_position
    return None


def walk_in_splits(
    buffer: Bytes,
    split_bytes: int,
    *,
    base_physical_offset: int,
    log_format: LogFormat = LogFormat.ORDINARY,
    check_crc: bool = False,
) -> list[SplitWalk]:
    """Walk a segment in splits and verify them, as a cluster does with tasks."""
    source = SourceBytes(buffer, base_physical_offset, log_format)
    walks = [walk_split(source, split, check_crc=check_crc) for split in cut(len(source), split_bytes)]
    while (wrong := unproved(walks)) is not None:
        number, expected = wrong
        split = walks[number].split
        if expected >= split.stop:
            walks[number] = SplitWalk(split, None, expected, 0)
        else:
            walks[number] = walk_split(source, split, first=expected, check_crc=check_crc)
    for number, found in enumerate(walks):
        if found.stop is not None:
            return walks[: number + 1]
    return walks
