"""Index files proved right without being built again: splits find their keys in them, and links are followed apart.

A split knows its keys when its records were checked. It looks up the first of them in the index files, by
the physical offsets there, and compares entry by entry from there on. Where what the splits found joins up, from a
file's first entry to its last and from key to key of the log, the entries of that file are right; then only its links,
slots and header are left to look at, for which the log is not needed. Whatever does not join up proves nothing: such a
file is rebuilt and compared (`check_index`), which shows what is wrong with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orbitlog.formats.derived.index_layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    IndexHeader,
    IndexLayout,
    decode_index_entry,
    time_diff_seconds,
)
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.index_stream import KeyColumns, equal_entries, right_links
from orbitlog.storefiles.mapped_view import mapped_view

_ENTRIES_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class IndexHead:
    """An index file and its header, as they were when the check began."""

    path: str
    header: IndexHeader


class MatchedKeys(NamedTuple):
    """A run of keys of a split, from number `key` on, that are the entries of a file from number `entry` on."""

    file: int
    entry: int
    key: int
    key_count: int
    first_timestamp_ms: int
    last_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class IndexProof:
    """Every entry of a file is a key of the log in its turn, the first of them the log's key number `first_key`."""

    header: IndexHeader
    first_key: int
    first_timestamp_ms: int
    last_timestamp_ms: int


def match_keys(files: Sequence[IndexHead], layout: IndexLayout, keys: KeyColumns) -> list[MatchedKeys]:
    """Find the keys of a split in the index files, up to the first difference."""
    found: list[MatchedKeys] = []
    count, key = len(keys.key_hashes), 0
    if count == 0:
        return found
    first_row = int(np.searchsorted(keys.key_ends, 0, side="right"))
    first_offset = int(keys.physical_offset[first_row])
    entry: int | None = None
    for number, file in enumerate(files):
        header = file.header
        if key == count or header.key_count == 0 or (entry is None and header.end_physical_offset < first_offset):
            continue
        with mapped_view(Path(file.path)) as view:
            if len(view) != layout.file_bytes or header.key_count > layout.capacity:
                break
            entry = _entry_at(view, layout, header, first_offset) if entry is None else 1
            wanted = min(count - key, header.index_count - entry)
            data = np.frombuffer(view, np.uint8)
            start = layout.entry_position(entry)
            entries = data[start : start + wanted * INDEX_ENTRY.size_bytes]
            matched = equal_entries(keys, key, entries, header.begin_timestamp_ms, is_begin=entry == 1)
            del data, entries  # the map cannot be closed while an array looks into it
        if matched:
            times = (_time_of(keys, key), _time_of(keys, key + matched - 1))
            found.append(MatchedKeys(number, entry, key, matched, *times))
        if matched < wanted:
            break
        key += matched
    return found


def _entry_at(view: memoryview, layout: IndexLayout, header: IndexHeader, physical_offset: int) -> int:
    """Return the number of the first entry that leads to this message or a later one."""
    numbers = range(1, header.index_count)
    return 1 + bisect_left(
        numbers,
        physical_offset,
        key=lambda number: decode_index_entry(view, layout.entry_position(number)).physical_offset,
    )


def _time_of(keys: KeyColumns, key: int) -> int:
    return int(keys.store_timestamp_ms[np.searchsorted(keys.key_ends, key, side="right")])


def prove_entries(
    files: Sequence[IndexHead], matches: Sequence[tuple[int, Sequence[Sequence[int]]]]
) -> list[IndexProof | None]:
    """Join what splits found, given with the number of their first key and in the order of the log."""
    pieces: list[list[tuple[int, MatchedKeys]]] = [[] for _ in files]
    for first_key, found in matches:
        for values in found:
            matched = MatchedKeys(*values)
            pieces[matched.file].append((first_key + matched.key, matched))
    return [_joined(file.header, parts) for file, parts in zip(files, pieces, strict=True)]


def _joined(header: IndexHeader, parts: Sequence[tuple[int, MatchedKeys]]) -> IndexProof | None:
    if not parts:
        return None
    first_key = parts[0][0]
    entry = 1
    for key, matched in parts:
        if matched.entry != entry or key != first_key + entry - 1:
            return None
        entry += matched.key_count
    if entry != header.index_count:
        return None
    return IndexProof(header, first_key, parts[0][1].first_timestamp_ms, parts[-1][1].last_timestamp_ms)


def rest_is_right(
    data: npt.NDArray[np.uint8], layout: IndexLayout, header: IndexHeader, proof: IndexProof, before: IndexHeader | None
) -> bool:
    """Return whether header, slots and links of a file whose entries are proved match its keys.

    Without the header of the previous file, the start of the first entry's time is unknown.
    """
    first, last = (decode_index_entry(data.data, layout.entry_position(number)) for number in (1, header.key_count))
    expected = IndexHeader(
        proof.first_timestamp_ms,
        proof.last_timestamp_ms,
        first.physical_offset,
        last.physical_offset,
        header.hash_slot_count,
        proof.header.index_count,
    )
    if header != expected or data[layout.entries_position : layout.entry_position(1)].any():
        return False
    if before is not None:
        expected_seconds = time_diff_seconds(proof.first_timestamp_ms, before.end_timestamp_ms)
        if first.time_diff_seconds != expected_seconds:
            return False
    slots = np.zeros(layout.slot_count, np.int32)
    slots_used = 0
    for number in range(1, header.index_count, _ENTRIES_AT_ONCE):
        stop = min(number + _ENTRIES_AT_ONCE, header.index_count)
        entries = data[layout.entry_position(number) : layout.entry_position(stop)]
        right, used = right_links(entries, number, slots)
        slots_used += used
        if right < stop - number:
            return False
    written = data[INDEX_HEADER.size_bytes : layout.entries_position].view(">i4")
    return slots_used == header.hash_slot_count and bool(np.array_equal(written, slots))
