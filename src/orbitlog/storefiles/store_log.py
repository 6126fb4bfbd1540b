"""Store log: the log of any store as its readers see it, and the committed end of one that DLedger replicates.

A job over a log needs four things, the same for every kind of store:

    store.segments                 all files of the log in order (`StoreFiles`): those of commitlog/, then DLedger's
    segment.log_format             how a file stores its records; every kernel and `read_log_at` take it
    committed_end(store)           the physical offset at which readers stop; None if the log has no such limit
                                   (`jobs.store_use.StoreUse.confirmed_to` includes it, `readable_end` is never None)
    plan_splits(…, until=…)        `jobs.log_splits`: cuts the log there; a `LogSplit` has its own `log_format`

Physical offsets of messages are those of records in both formats, so a lookup by offset needs only the file. Entries
after the committed index were written on this member but not agreed upon: `uncommitted_tail` counts them. After a crash
the checkpoint of DLedger is up to three seconds old; a broker dispatches only committed entries, so the last queue unit
shows a later end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orbitlog.errors import FormatError, StoreLinkError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.records.dledger import (
    ENTRY_HEADER_BYTES,
    INDEX_UNIT_BYTES,
    DLedgerCheckpoint,
    DLedgerEntry,
    DLedgerIndexUnit,
    decode_dledger_checkpoint,
    decode_entry_header,
    decode_index_unit,
    read_entry_at,
)
from orbitlog.formats.records.log_format import LogFormat, find_in_log, read_log_at
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import LogEnd, SegmentEnd
from orbitlog.storefiles.confined.regular_files import read_regular
from orbitlog.storefiles.log_presence import last_referenced_ends
from orbitlog.storefiles.mapped_view import first_written, mapped_view, written_until
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles, find_segments

_CHECKPOINT_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class UncommittedTail:
    """Entries after the committed end: how many are whole, and where one is torn."""

    path: Path
    physical_offset: int
    entry_count: int
    torn_at: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.described}"

    @property
    def described(self) -> str:
        """What there is, without the path of the file."""
        if not self.entry_count:
            return f"bytes that are not an entry after the committed end, at physical offset {self.torn_at}"
        entries = f"{self.entry_count} entr{'y' if self.entry_count == 1 else 'ies'} after the committed end"
        torn = "" if self.torn_at is None else f", then an incomplete one at physical offset {self.torn_at}"
        return f"{entries}, from physical offset {self.physical_offset} on{torn}"


def read_checkpoint(directory: Path) -> DLedgerCheckpoint:
    """Read `checkpoint` of a DLedger directory, or its backup; without a committed index if neither states one."""
    path = directory / tree.CHECKPOINT
    for candidate in (path, path.with_name(path.name + tree.BACKUP_SUFFIX)):
        try:
            raw = read_regular(candidate, _CHECKPOINT_BYTES_MAX)
            found = decode_dledger_checkpoint(raw.decode("latin-1"))
        except (OSError, FormatError, StoreLinkError):
            continue
        if found.committed_index is not None:
            return found
    return DLedgerCheckpoint(None, None)


def committed_end(store: StoreFiles) -> int | None:
    """Return the physical offset after the last committed entry.

    None for an ordinary log, for a checkpoint without a committed index, and if the log ends before that entry: then
    nothing can be after it.
    """
    member = store.dledger_member
    if member is None:
        return None
    committed = read_checkpoint(store.root / member).committed_index
    if committed is None:
        return None
    data = store.dledger_segments[member]
    end = data[0].base if committed < 0 else _end_of_entry(store.root / member, data, committed)
    if end is None or store.abort is None:
        return end
    return max([end, *_dispatched_ends(store, data, end)])


def readable_end(store: StoreFiles) -> int:
    """Return the physical offset at which readers of a DLedger log stop: its committed end, else its last entry's."""
    assert store.dledger_member is not None
    end = committed_end(store)
    if end is not None:
        return end
    data = store.dledger_segments[store.dledger_member]
    for file in reversed(data):
        ends = [position + entry.size_bytes for position, entry in _entries(file)]
        if ends:
            return file.base + ends[-1]
    return data[0].base


def uncommitted_tail(store: StoreFiles, end: int | None) -> UncommittedTail | None:
    """Return the entries after the committed end, None without any."""
    if store.dledger_member is None or end is None:
        return None
    first: tuple[Path, int] | None = None
    count = 0
    for segment in store.dledger_segments[store.dledger_member]:
        if segment.base + segment.size_bytes <= end:
            continue
        with mapped_view(segment.path) as view:
            position = max(end - segment.base, 0)
            while position < len(view):
                found = read_log_at(view, position, LogFormat.DLEDGER, base_physical_offset=segment.base)
                if isinstance(found, SegmentEnd):
                    break
                if isinstance(found, LogEnd):
                    position = first_written(view, position, written_until(segment.path)) or len(view)
                    if position == len(view):
                        break
                first = first or (segment.path, segment.base + position)
                if not isinstance(found, Message):
                    return UncommittedTail(*first, count, segment.base + position)
                count += 1
                position += ENTRY_HEADER_BYTES + found.size_bytes
    return None if first is None else UncommittedTail(*first, count)


def _end_of_entry(directory: Path, data: Sequence[OffsetFile], index: int) -> int | None:
    """Return the end of the entry with a number: by its index unit if the entry confirms it, else from the data."""
    unit_end = _end_by_unit(directory / tree.DLEDGER_INDEX, data, index)
    return unit_end if unit_end is not None else _end_by_data(data, index)


def _end_by_unit(directory: Path, data: Sequence[OffsetFile], index: int) -> int | None:
    """Return the end that the index unit of an entry states, if the entry or the unit before it confirms it."""
    unit = read_index_unit(directory, index)
    if unit is None:
        return None
    entry = entry_at(data, unit.physical_offset)
    if entry is not None and entry.index == index:
        return entry.physical_offset + entry.size_bytes
    before = read_index_unit(directory, index - 1) if index else None
    follows = before is not None and before.end_physical_offset == unit.physical_offset
    follows |= unit.physical_offset in {file.base for file in data}
    is_right = follows and (entry is None or entry.size_bytes == unit.size_bytes)
    return unit.end_physical_offset if is_right else None


def read_index_unit(directory: Path, index: int) -> DLedgerIndexUnit | None:
    """Read the unit of an entry from the index files of DLedger; None if it is missing, blank or damaged."""
    for file in find_segments(directory) if directory.is_dir() else ():
        position = index * INDEX_UNIT_BYTES - file.base
        if 0 <= position <= file.size_bytes - INDEX_UNIT_BYTES:
            with file.path.open("rb") as opened:
                opened.seek(position)
                try:
                    unit = decode_index_unit(opened.read(INDEX_UNIT_BYTES))
                except FormatError:
                    return None
            return unit if unit is not None and unit.index == index else None
    return None


def entry_at(data: Sequence[OffsetFile], physical_offset: int) -> DLedgerEntry | None:
    """Return the entry that starts at a physical offset, None if none does."""
    for file in data:
        if file.base <= physical_offset < file.base + file.size_bytes:
            with mapped_view(file.path) as view:
                try:
                    return decode_entry_header(view, physical_offset - file.base, physical_offset=physical_offset)
                except FormatError:
                    return None
    return None


def _end_by_data(data: Sequence[OffsetFile], index: int) -> int | None:
    """Find the entry in the data files; if it cannot be read, the start of the next one that can."""
    later: int | None = None
    for file in reversed(data):
        first = _first_index(file)
        if first is not None and first <= index:
            for position, entry in _entries(file):
                if entry.index >= index:
                    return file.base + position + (entry.size_bytes if entry.index == index else 0)
            return later
        if first is not None:
            later = file.base
    return later


def _first_index(file: OffsetFile) -> int | None:
    return next((entry.index for _, entry in _entries(file)), None)


def _entries(file: OffsetFile) -> Iterator[tuple[int, DLedgerEntry]]:
    """Yield positions and headers of the entries of a data file; damage is passed over."""
    end = written_until(file.path)
    with mapped_view(file.path) as view:
        position: int | None = 0
        while position is not None and position < min(end, len(view)):
            match read_entry_at(view, position, base_physical_offset=file.base):
                case DLedgerEntry() as entry:
                    yield position, entry
                    position += entry.size_bytes
                case SegmentEnd():
                    return
                case _:
                    with view[:end] as written:
                        position = find_in_log(
                            written, position + 1, LogFormat.DLEDGER, base_physical_offset=file.base, check_crc=False
                        )


def _dispatched_ends(store: StoreFiles, data: Sequence[OffsetFile], end: int) -> Iterator[int]:
    """Yield the end of the last entry that a queue has a unit for, if it is after `end`."""
    for physical_offset, size_bytes in sorted(last_referenced_ends(store), reverse=True):
        if physical_offset + size_bytes <= end:
            return
        entry = entry_at(data, physical_offset - ENTRY_HEADER_BYTES)
        if entry is not None and entry.body_bytes == size_bytes:
            yield physical_offset + size_bytes
            return
