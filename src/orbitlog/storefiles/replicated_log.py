"""Replicated log: the records of a DLedger store in order, those of commitlog/ first if the store was converted.

Entries after the committed index were written on this member but not agreed upon; they are counted and not yielded,
unless asked for. A torn last entry ends the log. Damage before the committed index raises `DamagedEntry`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType

from orbitlog.errors import FormatError, StoreLayoutError
from orbitlog.formats.records.dledger import (
    ENTRY_HEADER_BYTES,
    DLedgerCheckpoint,
    DLedgerEntry,
    decode_entry_header,
    read_entry_at,
)
from orbitlog.formats.records.message import Message, decode_message
from orbitlog.formats.records.message_scan import BLANK, Damage, LogEnd, SegmentEnd, read_at
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles
from orbitlog.storefiles.store_log import committed_end, read_checkpoint


class DamagedEntry(StoreLayoutError):
    """A record before the committed index cannot be read."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log: a segment of commitlog/, or a data file of DLedger."""

    file: OffsetFile
    is_dledger: bool


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record as it is stored, and where the next one begins."""

    file: LogFile
    message: Message
    raw: bytes
    index: int | None
    """Number of its DLedger entry."""
    end: int
    """Physical offset of the byte after the record."""


@dataclass(slots=True)
class ReplicatedLog:
    """The log of one DLedger member; a context manager that keeps its files mapped."""

    files: tuple[LogFile, ...]
    member: str
    checkpoint: DLedgerCheckpoint
    accepts_uncommitted: bool = False
    committed_end: int | None = None
    uncommitted_count: int = 0
    torn_at: int | None = None
    _views: dict[int, memoryview] = field(default_factory=dict)
    _opened: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(cls, store: StoreFiles, *, accepts_uncommitted: bool = False) -> ReplicatedLog:
        """Return the log of the one DLedger directory that has data; raise `StoreLayoutError` for none or several."""
        members = {name: files for name, files in store.dledger_segments.items() if files}
        if len(members) != 1:
            names = ", ".join(sorted(members)) or "none"
            raise StoreLayoutError(
                f"{store.root} has data in {len(members)} DLedger directories ({names}); exactly one is needed:"
                " copy the store and keep the directory of the member that the broker ran as (dLegerSelfId)"
            )
        ((member, data),) = members.items()
        files = [
            *(LogFile(segment, False) for segment in store.plain_segments),
            *(LogFile(file, True) for file in data),
        ]
        checkpoint = read_checkpoint(store.root / member)
        return cls(tuple(files), member, checkpoint, accepts_uncommitted, committed_end(store))

    def __enter__(self) -> ReplicatedLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._views.clear()
        self._opened.close()

    @property
    def start(self) -> int:
        """The physical offset at which the log begins."""
        return self.files[0].file.base

    @property
    def size_bytes(self) -> int:
        return sum(part.file.size_bytes for part in self.files)

    def records(self, start: int | None = None) -> Iterator[SourceRecord]:
        """Yield the records from a physical offset on, where an entry or a record must begin."""
        begin = self.start if start is None else start
        expected: int | None = None
        for number, part in enumerate(self.files):
            if part.file.base + part.file.size_bytes <= begin:
                continue
            self._check_joins(number)
            position = max(begin - part.file.base, 0)
            view = self._view(part)
            is_last = number == len(self.files) - 1
            while position < len(view):
                record = self._read(part, view, position, expected, is_last=is_last)
                if record is None:
                    break
                if record.index is not None:
                    if self._is_uncommitted(record.index, record.end):
                        self.uncommitted_count += 1
                    expected = record.index + 1
                if not self.uncommitted_count:
                    yield record
                position = record.end - part.file.base
            if self.torn_at is not None:
                return

    def translate_start(self, physical_offset: int) -> tuple[bool, int | None] | None:
        """Return whether the record at an offset is in a DLedger entry, and its number; None without a record."""
        part = next(
            (one for one in self.files if one.file.base <= physical_offset < one.file.base + one.file.size_bytes), None
        )
        if part is None:
            return None
        view, position = self._view(part), physical_offset - part.file.base
        try:
            if not part.is_dledger:
                decode_message(view, position, physical_offset=physical_offset, check_crc=False)
                return False, None
            start = position - ENTRY_HEADER_BYTES
            if start < 0:
                return None
            entry = decode_entry_header(view, start, physical_offset=part.file.base + start)
        except FormatError:
            return None
        return True, entry.index

    def _is_uncommitted(self, index: int, end: int) -> bool:
        """Return whether an entry is after the committed one; after a crash, queues may show that it was committed."""
        committed = self.checkpoint.committed_index
        if committed is None or index <= committed or self.accepts_uncommitted:
            return False
        return self.committed_end is None or end > self.committed_end

    def _read(
        self, part: LogFile, view: memoryview, position: int, expected: int | None, *, is_last: bool
    ) -> SourceRecord | None:
        """Return the record at a position, None at the end of the file."""
        if not part.is_dledger:
            return self._read_ordinary(part, view, position)
        found = read_entry_at(view, position, base_physical_offset=part.file.base)
        if isinstance(found, DLedgerEntry):
            if expected is not None and found.index != expected:
                raise self._damaged(part, position, f"entry {found.index} follows {expected - 1}")
            try:
                message = decode_message(
                    view, position + ENTRY_HEADER_BYTES, physical_offset=found.record_physical_offset
                )
            except FormatError as error:
                self._end_torn(part, view, position, expected, str(error), is_last=is_last)
                return None
            start = position + ENTRY_HEADER_BYTES
            raw = bytes(view[start : start + found.body_bytes])
            return SourceRecord(part, message, raw, found.index, part.file.base + start + found.body_bytes)
        if isinstance(found, SegmentEnd):
            if is_last:
                self._check_committed(part, position, expected)
            return None
        if isinstance(found, LogEnd):
            if not is_last:
                raise self._damaged(part, position, "the file ends without a mark, but another one follows")
            self._check_committed(part, position, expected)
            return None
        reason = str(found.error) if isinstance(found, Damage) else "records without entry headers among entries"
        self._end_torn(part, view, position, expected, reason, is_last=is_last)
        return None

    def _read_ordinary(self, part: LogFile, view: memoryview, position: int) -> SourceRecord | None:
        found = read_at(view, position, base_physical_offset=part.file.base)
        if isinstance(found, Message):
            size_bytes = int(BLANK.struct.unpack_from(view, position)[0])
            raw = bytes(view[position : position + size_bytes])
            return SourceRecord(part, found, raw, None, part.file.base + position + size_bytes)
        if isinstance(found, SegmentEnd | LogEnd):
            return None
        raise self._damaged(part, position, str(found.error))

    def _end_torn(
        self, part: LogFile, view: memoryview, position: int, expected: int | None, reason: str, *, is_last: bool
    ) -> None:
        """Accept an entry that a crash tore at the end of the log; raise `DamagedEntry` for anything else."""
        if not is_last or _has_entry_after(view, position, part.file.base):
            raise self._damaged(part, position, reason)
        self._check_committed(part, position, expected)
        self.torn_at = part.file.base + position

    def _check_committed(self, part: LogFile, position: int, expected: int | None) -> None:
        committed = self.checkpoint.committed_index
        if committed is not None and committed >= 0 and (expected or 0) <= committed:
            raise self._damaged(part, position, f"the log ends before the committed entry {committed}")

    def _damaged(self, part: LogFile, position: int, reason: str) -> DamagedEntry:
        return DamagedEntry(
            f"{part.file.path} is damaged at position {position} (physical offset {part.file.base + position}):"
            f" {reason}; use the store of another member of the group, or restore the file"
        )

    def _check_joins(self, number: int) -> None:
        if number == 0:
            return
        before, part = self.files[number - 1].file, self.files[number].file
        if before.base + before.size_bytes != part.base:
            raise DamagedEntry(
                f"{part.path} begins at physical offset {part.base}, but {before.path} ends at"
                f" {before.base + before.size_bytes}; restore the files between them"
            )

    def _view(self, part: LogFile) -> memoryview:
        view = self._views.get(part.file.base)
        if view is None:
            view = self._views[part.file.base] = self._opened.enter_context(mapped_view(part.file.path))
        return view


def _has_entry_after(view: memoryview, position: int, base: int) -> bool:
    """Return whether an entry begins anywhere after a position; its header states its own physical offset."""
    end = len(view)
    search = position + 1
    while (found := _find_magic(view, search, end)) is not None:
        if isinstance(read_entry_at(view, found, base_physical_offset=base), DLedgerEntry):
            return True
        search = found + 1
    return False


def _find_magic(view: memoryview, start: int, end: int) -> int | None:
    """Return the next position of the entry magic, reading in blocks."""
    block = 1 << 20
    while start < end:
        chunk = bytes(view[start : min(start + block + 3, end)])
        found = chunk.find(b"\0\0\0\1")
        if found >= 0:
            return start + found
        start += block
    return None
