"""Index tasks: build index files from the staged keys of splits; prefix sums of key counts decide which splits.

An index file is built by one task, under a temporary name until it is complete (`build_index`). If several cores would
wait for that one, and all tasks run on this machine, pieces of it are written in parallel into one file
(`write_piece`): each piece reads the hashes before it to know the slots that it begins with, and the last one writes
the slots. Such a file belongs to one run: a process that is left of an earlier run writes into another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from orbitlog.formats.derived.index_layout import (
    INDEX_HEADER,
    IndexHeader,
    IndexLayout,
    decode_header,
    encode_empty_header,
    encode_header,
    header_after,
)
from orbitlog.jobs.rebuild.rebuild_tasks import staged_keys
from orbitlog.jobs.staging import TEMPORARY, shared_file, whole_file
from orbitlog.kernels.arrays import np
from orbitlog.kernels.index_stream import EntryStream, KeyColumns
from orbitlog.storefiles.disk import Disk, PlainFile, RealDisk, disk_errors

INDEX_PARTS = "index-parts"
_SLOTS_AT_ONCE = 1 << 14
_PIECE_KEYS_MIN = 200_000
_PIECES_MAX = 8  # more would mostly read each other's keys: each takes a fifth of the whole at least
# What else takes time, counted in keys that are put: one that is passed over, and a slot that is written at the end.
_PASSED_OVER_COST, _SLOT_COST = 0.2, 0.12


@dataclass(frozen=True, slots=True)
class KeyPart:
    """The staged keys of a split, and how much of the log they stand for."""

    path: str
    log_bytes: int


@dataclass(frozen=True, slots=True)
class IndexTask:
    """Build index file `number` from the keys of splits; the first of them holds the key before the file's first."""

    staging: str
    number: int
    layout: IndexLayout
    parts: tuple[KeyPart, ...]
    keys_before: int
    """The number of keys of the log before the first of the parts."""
    key_count: int

    @property
    def target(self) -> Path:
        return Path(self.staging, INDEX_PARTS, f"{self.number:06d}")

    @property
    def log_bytes(self) -> int:
        return sum(part.log_bytes for part in self.parts)

    @property
    def cost(self) -> float:
        """About how many microseconds it takes."""
        return 13_000 + 0.018 * self.key_count


@dataclass(frozen=True, slots=True)
class IndexPiece:
    """Write the keys from number `first` to before `stop` of an index file, which other tasks write as well."""

    index: IndexTask
    path: str
    first: int
    stop: int

    @property
    def cost(self) -> float:
        """About how many microseconds it takes."""
        return 13_000 + 0.018 * (self.stop - self.first + _PASSED_OVER_COST * self.first)


def build_index(task: IndexTask, *, disk: Disk | None = None) -> dict[str, Any]:
    """Build one index file unless it exists."""
    if not task.target.exists():
        with whole_file(disk or RealDisk(), task.target, Path(task.staging, TEMPORARY)) as file:
            file.resize(task.layout.file_bytes)
            _fill(task, file, 0, task.key_count)
    return {"scanned_bytes": task.log_bytes}


def index_header(task: IndexTask) -> IndexHeader:
    """Return the header of an index file that was built."""
    with task.target.open("rb") as file:
        return decode_header(file.read(INDEX_HEADER.size_bytes))


@contextmanager
def pieces_of(task: IndexTask, writers: int, *, disk: Disk | None = None) -> Iterator[tuple[IndexPiece, ...]]:
    """Yield the pieces of an index file, of equal cost; it gets its name when they were written in the block.

    The list is empty if one task is enough, or if the file exists. The file they are written into stays open meanwhile:
    else a failed writeback might be reported to no process.
    """
    firsts = _equal_pieces(task.key_count, writers, round(task.layout.slot_count * _SLOT_COST))
    if len(firsts) == 1 or task.target.exists():
        yield ()
        return
    with shared_file(disk or RealDisk(), task.target, Path(task.staging, TEMPORARY)) as (file, path):
        file.resize(task.layout.file_bytes)
        yield tuple(IndexPiece(task, path, first, stop) for first, stop in pairwise([*firsts, task.key_count]))


def _equal_pieces(key_count: int, writers: int, extra: int) -> list[int]:
    """Return the first key of each piece; the last one has as much to do besides as `extra` keys would be.

    A piece takes its own keys and a part of those before it: each has fewer than the one before by that part.
    """
    kept = 1 - _PASSED_OVER_COST
    for count in range(min(writers, _PIECES_MAX), 1, -1):
        firsts = [round((key_count + extra) * (1 - kept**number) / (1 - kept**count)) for number in range(count)]
        if firsts[-1] <= key_count - _PIECE_KEYS_MIN:
            return firsts
    return [0]


def write_piece(piece: IndexPiece, *, disk: Disk | None = None) -> dict[str, Any]:
    """Write a piece and start its writeback; the sync follows when all pieces are written."""
    with disk_errors(f"writing {piece.index.target}"):
        file = (disk or RealDisk()).open_plain(Path(piece.path))
        try:
            _fill(piece.index, file, piece.first, piece.stop)
        finally:
            file.close()
    share = (piece.stop - piece.first) / piece.index.key_count
    return {"scanned_bytes": round(piece.index.log_bytes * share)}


def _fill(task: IndexTask, file: PlainFile, first: int, stop: int) -> None:
    """Write the file's keys from number `first` on; with the last of them also slots and header."""
    stream: EntryStream | None = None
    for columns, next_key in _columns_of(task):
        row, key = 0, next_key
        if stream is None:
            stream, row = _begin_file(task, columns, key)
        if stream.header.key_count < first:
            row, key = stream.pass_over(columns, key, first + 1)
        while row < len(columns.physical_offset) and stream.header.key_count < stop:
            position = task.layout.entry_position(stream.header.index_count)
            entries, row, key = stream.put(columns, row, key, stop + 1)
            file.write(position, entries.data)
            file.start_writeback(position, len(entries))
        if stream.header.key_count >= stop:
            break
    if stream is None or stop < task.key_count:
        return
    if stop:
        _write_slots(file, stream)
        file.write(0, encode_header(stream.header))
    elif task.number:
        file.write(0, encode_empty_header(stream.header))


def _columns_of(task: IndexTask) -> Iterator[tuple[KeyColumns, int]]:
    """Go through the parts from the one with the key before the file's first; of each, which key is the file's next."""
    first_key, key_number = task.number * task.layout.capacity, task.keys_before
    for part in task.parts:
        columns = staged_keys(Path(part.path))
        if key_number + len(columns.key_hashes) >= first_key:
            yield columns, max(first_key - key_number, 0)
        key_number += len(columns.key_hashes)


def _begin_file(task: IndexTask, columns: KeyColumns, key: int) -> tuple[EntryStream, int]:
    """Start a file, after another one with the time of that one's last key; returns the row to continue at."""
    if task.number == 0:
        return EntryStream(task.layout, IndexHeader()), 0
    row = int(np.searchsorted(columns.key_ends, key, side="left"))
    before = IndexHeader(
        end_timestamp_ms=int(columns.store_timestamp_ms[row]), end_physical_offset=int(columns.physical_offset[row])
    )
    return EntryStream(task.layout, header_after(before)), row


def _write_slots(file: PlainFile, stream: EntryStream) -> None:
    """Write the slots in use; ranges without any stay a hole."""
    for start in range(0, len(stream.slots), _SLOTS_AT_ONCE):
        slots = stream.slots[start : start + _SLOTS_AT_ONCE]
        if slots.any():
            position = INDEX_HEADER.size_bytes + start * slots.itemsize
            file.write(position, slots.astype(">i4").data.cast("B"))
    file.start_writeback(0, INDEX_HEADER.size_bytes + stream.slots.nbytes)
