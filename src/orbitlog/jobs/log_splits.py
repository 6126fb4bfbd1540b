"""Log splits: ranges of CommitLogs that tasks read independently, with a proof that none started inside a record.

A range usually begins inside a record, and a message body can contain bytes that look like one. So the walk of a split
reports where its chain of records begins and ends; the previous chain must end at that very position
(`kernels.splits`). If it does not, the split is re-walked from the proved position.

    plan_splits     cuts the segments of a store; reads nothing but file sizes
    unproved_splits returns the splits to re-walk, from the reports of the walks so far
    prove_splits    does both in this process, on threads: for planners that have no Spark at hand
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message_scan import BLANK_BYTES, Damage, LogEnd, SegmentEnd
from orbitlog.kernels.record_walk import SourceBytes, Stop
from orbitlog.kernels.splits import Split, SplitWalk, cut, unproved, walk_split
from orbitlog.storefiles.mapped_view import mapped_view, written_until
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles, list_segments
from orbitlog.storefiles.store_paths import StorePaths

SPLIT_BYTES_DEFAULT = 128 * 1024 * 1024
SPLIT_BYTES_MIN = 64 * 1024
# Why a chain of records ended inside its split; None if it continues in the next one.
SEGMENT_END, LOG_END, DAMAGE = "segment end", "log end", "damage"


@dataclass(frozen=True, slots=True)
class LogSplit:
    """A range of one segment of one store: the messages that start in it belong to it. Positions count in the file.

    `segment_bytes` is the size that segments of this log have, even if the file was cut. `first` is the position of
    the first record, if that is proved; if it is past `stop`, the split has none. In a DLedger data file positions are
    those of entries; pass `log_format` to every kernel that reads the split.
    """

    store_number: int
    path: str
    base: int
    segment_bytes: int
    start: int
    stop: int
    first: int | None = None
    root: str = ""
    directories: tuple[str, ...] = ()
    """The store's root and its CommitLog directories, if storePathCommitLog names them."""
    dledger: str = ""
    """The directory of DLedger data files, if the log has any."""
    log_format: LogFormat = LogFormat.ORDINARY
    committed_end: int | None = None
    """The physical offset up to which DLedger has entries for certain."""

    def __post_init__(self) -> None:
        # A list and a string when they come from JSON.
        object.__setattr__(self, "directories", tuple(self.directories))
        object.__setattr__(self, "log_format", LogFormat(self.log_format))

    @property
    def store_paths(self) -> StorePaths:
        if self.root:
            directories = tuple(map(Path, self.directories))
            dledger = Path(self.dledger) if self.dledger else None
            return StorePaths(Path(self.root), directories, is_configured=True, dledger=dledger)
        return StorePaths(Path(self.path).parent.parent, (Path(self.path).parent,))

    def all_segments(self) -> tuple[OffsetFile, ...]:
        """List the segments of the log that this split is of."""
        return list_segments(self.store_paths).segments

    @property
    def is_empty(self) -> bool:
        return self.first is not None and self.first >= self.stop


@dataclass(frozen=True, slots=True)
class WalkedSplit:
    """The walk of a split: start of its chain (None without a record), end, and why it ended."""

    split: LogSplit
    first: int | None
    next_position: int
    message_count: int
    ended: str | None = None
    reason: str = ""

    def as_report(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)

    @classmethod
    def from_report(cls, report: dict[str, Any]) -> WalkedSplit:
        fields = {name: report[name] for name in cls.__slots__}
        return cls(**{**fields, "split": LogSplit(**report["split"])})


@dataclass(frozen=True, slots=True)
class ProvedLog:
    """Splits whose beginnings are proved, and for each store where its log ended and why."""

    walks: tuple[WalkedSplit, ...]

    @property
    def splits(self) -> tuple[LogSplit, ...]:
        """The splits in which records start, each with its proved `first`."""
        return tuple(replace(walk.split, first=walk.first) for walk in self.walks if walk.message_count)

    @property
    def damage(self) -> tuple[WalkedSplit, ...]:
        """The walks that ended in damage."""
        return tuple(walk for walk in self.walks if walk.ended == DAMAGE)


def plan_splits(
    store: StoreFiles,
    segment_bytes: int,
    *,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    store_number: int = 0,
    until: int | None = None,
) -> list[LogSplit]:
    """Cut the segments of a store, each up to the end of its data, or up to physical offset `until`.

    For a DLedger log `until` must be its committed end (`store_log.committed_end`), or the end of an earlier entry.
    """
    splits: list[LogSplit] = []
    where = _where(store)
    for segment in store.segments:
        where["log_format"] = segment.log_format
        where["committed_end"] = until if segment.log_format is LogFormat.DLEDGER else None
        size_bytes = min(segment.size_bytes, segment_bytes)
        # After the last data there is a hole; a few bytes of it show a walk that the log ends there.
        stop = min(size_bytes, written_until(segment.path) + BLANK_BYTES)
        if until is not None:
            stop = min(stop, until - segment.base)
        if stop > 0:
            parts = cut(stop, split_bytes)
            splits += [
                LogSplit(store_number, str(segment.path), segment.base, segment_bytes, part.start, part.stop, **where)
                for part in parts
            ]
    return splits


def _where(store: StoreFiles) -> dict[str, Any]:
    """Return where the log of a store is, if that does not follow from the path of a segment."""
    paths = store.paths
    if not paths.is_configured and paths.dledger is None:
        return {}
    directories = tuple(str(path.absolute()) for path in paths.log_directories if path != paths.dledger)
    dledger = "" if paths.dledger is None else str(paths.dledger.absolute())
    return {"root": str(store.root), "directories": directories, "dledger": dledger}


def cut_at(splits: Sequence[LogSplit], physical_offset: int) -> list[LogSplit]:
    """Cut the split with the record at `physical_offset` in two at that record, or at the entry that contains it."""
    found: list[LogSplit] = []
    for split in splits:
        position = physical_offset - split.base - split.log_format.header_bytes
        if split.start < position < split.stop:
            found += [replace(split, stop=position), replace(split, start=position)]
        else:
            found.append(split)
    return found


def walk_log_split(split: LogSplit, *, check_crc: bool = False) -> WalkedSplit:
    """Walk the records of one split; touches headers only, unless CRCs are checked."""
    with mapped_view(Path(split.path)) as whole, whole[: split.segment_bytes] as view:
        source = SourceBytes(view, split.base, split.log_format)
        found = walk_split(source, Split(split.start, split.stop), first=split.first, check_crc=check_crc)
        size_bytes = len(source)
        del source  # the map cannot be closed while an array looks into it
    ended, reason = describe_stop(found.stop)
    if found.next_position == size_bytes and ended is None:
        ended, reason = DAMAGE, "the file ends without a segment end"
    return WalkedSplit(split, found.first, found.next_position, found.message_count, ended, reason)


def describe_stop(stop: Stop) -> tuple[str | None, str]:
    """Return why a walk ended, as text that can cross processes."""
    match stop:
        case None:
            return None, ""
        case SegmentEnd():
            return SEGMENT_END, ""
        case LogEnd():
            return LOG_END, ""
        case Damage(error=error):
            return DAMAGE, f"{error.field}: {error.problem}"


def unproved_splits(walks: Sequence[WalkedSplit]) -> dict[int, LogSplit]:
    """Return the numbers of walks that began at a wrong position, with the split as it must be walked instead.

    Of each segment only the first is known; call this a second time when those have been walked. A split that is
    entirely inside the record before it is returned as an empty one and needs no walk. `walks` are in log order.
    """
    wrong: dict[int, LogSplit] = {}
    numbered = enumerate(walks)
    for _, group in groupby(numbered, key=lambda item: (item[1].split.store_number, item[1].split.base)):
        members = list(group)
        found = unproved([_as_split_walk(walk) for _, walk in members])
        if found is not None:
            number, walk = members[found[0]]
            wrong[number] = replace(walk.split, first=found[1])
    return wrong


def empty_walk(split: LogSplit) -> WalkedSplit:
    """Return the walk of a split that is proved to have no record of its own."""
    assert split.is_empty
    assert split.first is not None
    return WalkedSplit(replace(split, first=None), None, split.first, 0)


def prove(
    splits: Sequence[LogSplit], walk_all: Callable[[Sequence[LogSplit]], Iterable[WalkedSplit]]
) -> list[WalkedSplit]:
    """Walk splits with `walk_all`, and re-walk those that started inside a record, until every one is proved."""
    walks = list(walk_all(splits))
    while wrong := unproved_splits(walks):
        again = {number: split for number, split in wrong.items() if not split.is_empty}
        for number, split in wrong.items():
            if split.is_empty:
                walks[number] = empty_walk(split)
        for number, walk in zip(again, walk_all(list(again.values())), strict=True):
            walks[number] = walk
    return walks


def prove_splits(splits: Sequence[LogSplit]) -> ProvedLog:
    """Walk and prove splits in this process; a GiB takes about a tenth of a second from the page cache."""

    def walk_all(wanted: Sequence[LogSplit]) -> list[WalkedSplit]:
        with ThreadPoolExecutor(max(os.cpu_count() or 1, 1)) as threads:
            return list(threads.map(walk_log_split, wanted))

    return ProvedLog(tuple(until_log_end(prove(splits, walk_all))))


def which_count(walks: Iterable[WalkedSplit]) -> list[bool]:
    """Return for each proved walk whether it is a part of its log.

    Those inside a record of an earlier split, or past the end of their segment, are not: bytes there only looked like
    records.
    """
    counted: list[bool] = []
    segment: tuple[int, int] | None = None
    expected, has_ended = 0, False
    for walk in walks:
        if segment != (walk.split.store_number, walk.split.base):
            segment, expected, has_ended = (walk.split.store_number, walk.split.base), 0, False
        counts = not has_ended and expected < walk.split.stop
        counted.append(counts)
        if counts:
            expected, has_ended = walk.next_position, walk.ended is not None
    return counted


def until_log_end(walks: Sequence[WalkedSplit]) -> list[WalkedSplit]:
    """Return the walks that count, and of each store none past the zeros that end its log."""
    kept: list[WalkedSplit] = []
    log_ended: set[int] = set()
    for walk, counts in zip(walks, which_count(walks), strict=True):
        if counts and walk.split.store_number not in log_ended:
            kept.append(walk)
            if walk.ended == LOG_END:
                log_ended.add(walk.split.store_number)
    return kept


def _as_split_walk(walk: WalkedSplit) -> SplitWalk:
    stop: Stop = None if walk.ended is None else LogEnd(walk.next_position)
    split = Split(walk.split.start, walk.split.stop)
    return SplitWalk(split, walk.first, walk.next_position, walk.message_count, stop)
