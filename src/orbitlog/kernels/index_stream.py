"""Index stream: builds or compares the entries of an IndexFile block by block; only its slots are kept in memory.

An entry is written once and entry numbers only grow, so a file can be built or compared in one pass, in memory that
does not depend on its size. Keys come as columns that may have been stored on disk.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import NamedTuple

from orbitlog.formats.derived.index_layout import INDEX_ENTRY, IndexHeader, IndexLayout
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.index_build import time_diff
from orbitlog.kernels.jit import inlined, kernel
from orbitlog.kernels.unaligned import load_i32, load_i64, prefetch, store_i32, store_i64

_ENTRY_BYTES = INDEX_ENTRY.size_bytes
_ENTRY_OFFSET, _ENTRY_TIME, _ENTRY_PREVIOUS = (
    INDEX_ENTRY.position(name) for name in ("physical_offset", "time_diff_seconds", "previous_entry")
)
# Rows of the state array: the header's fields, in its order.
_BEGIN_TIME, _END_TIME, _BEGIN_OFFSET, _END_OFFSET, _SLOTS_USED, _NEXT_ENTRY = range(6)
_AHEAD = 256
_SLOT_BYTES = 4


class KeyColumns(NamedTuple):
    """Index keys of messages: those of a row are `key_hashes[key_ends[row - 1]:key_ends[row]]` (from 0 in row 0)."""

    physical_offset: npt.NDArray[np.int64]
    store_timestamp_ms: npt.NDArray[np.int64]
    key_ends: npt.NDArray[np.int64]
    key_hashes: npt.NDArray[np.int32]


@inlined
def _link(key_hashes, key, count, number, slots, ahead, previous):
    """Link `count` keys, numbered from `number` on, into the slots; return how many slots were empty before.

    Slots are scattered over their table, so all of them are prefetched before the first is used. Nothing else is done
    between two of them, so that the processor can overlap the loads: random keys are linked twice as fast.
    """
    slot_count = np.uint32(slots.shape[0])
    address = slots.ctypes.data
    used = 0
    for index in range(count):
        ahead[index] = np.uint32(key_hashes[key + index]) % slot_count
        prefetch(address, np.int64(ahead[index]) * _SLOT_BYTES)
    for index in range(count):
        found = slots[ahead[index]]
        slots[ahead[index]] = number + index
        previous[index] = found
        used += found == 0
    return used


@kernel
def put_entries(columns, row, key, slots, block, stop_number, state):
    """Put entries from key number `key` on, which belongs to `row` or later, until number `stop_number` is next.

    They are written from the start of `block`. Returns the next row and key, or (rows, keys). A row without keys also
    needs a free number.
    """
    rows, keys = columns.physical_offset.shape[0], columns.key_hashes.shape[0]
    address, place = block.ctypes.data, np.int64(0)
    ahead, previous = np.empty(_AHEAD, np.uint32), np.empty(_AHEAD, np.int32)
    linked_from = linked_until = key
    number, begin_time, last_row = state[_NEXT_ENTRY], state[_BEGIN_TIME], -1
    while row < rows and number < stop_number:
        if key < columns.key_ends[row]:
            physical_offset, store_timestamp_ms = columns.physical_offset[row], columns.store_timestamp_ms[row]
            seconds, last_row = time_diff(store_timestamp_ms, begin_time), row
        while key < columns.key_ends[row] and number < stop_number:
            if key == linked_until:
                count = min(_AHEAD, keys - key, stop_number - number)
                state[_SLOTS_USED] += _link(columns.key_hashes, key, count, number, slots, ahead, previous)
                linked_from, linked_until = key, key + count
            store_i32(address, place, columns.key_hashes[key])
            store_i64(address, place + _ENTRY_OFFSET, physical_offset)
            store_i32(address, place + _ENTRY_TIME, seconds)
            store_i32(address, place + _ENTRY_PREVIOUS, previous[key - linked_from])
            if number <= 1:
                state[_BEGIN_OFFSET] = physical_offset
                begin_time = state[_BEGIN_TIME] = store_timestamp_ms
                seconds = time_diff(store_timestamp_ms, begin_time)
            place += _ENTRY_BYTES
            number += 1
            key += 1
        if key == columns.key_ends[row]:
            row += 1
    if last_row >= 0:
        state[_END_OFFSET] = columns.physical_offset[last_row]
        state[_END_TIME] = columns.store_timestamp_ms[last_row]
    state[_NEXT_ENTRY] = number
    return row, key


@kernel
def pass_entries(key_hashes, key, stop_key, number, slots):
    """Leave the slots as entries of these keys would, which others put; returns how many slots they began."""
    ahead, previous = np.empty(_AHEAD, np.uint32), np.empty(_AHEAD, np.int32)
    used = 0
    while key < stop_key:
        count = min(_AHEAD, stop_key - key)
        used += _link(key_hashes, key, count, number, slots, ahead, previous)
        key += count
        number += count
    return used


@kernel
def match_entries(columns, row, key, address, count, begin_timestamp_ms, is_begin):
    """Compare `count` entries at an address with the keys from `key` on, but for links; returns how many are equal.

    The time of a file's first entry is not compared (`is_begin`): it counts from the end of the file before.
    """
    done = 0
    while done < count and row < columns.physical_offset.shape[0]:
        physical_offset, store_timestamp_ms = columns.physical_offset[row], columns.store_timestamp_ms[row]
        seconds = time_diff(store_timestamp_ms, begin_timestamp_ms)
        while key < columns.key_ends[row] and done < count:
            place = done * _ENTRY_BYTES
            if (
                load_i32(address, place) != columns.key_hashes[key]
                or load_i64(address, place + _ENTRY_OFFSET) != physical_offset
            ):
                return done
            if load_i32(address, place + _ENTRY_TIME) != seconds and not (is_begin and done == 0):
                return done
            key += 1
            done += 1
        row += 1
    return done


@kernel
def follow_links(address, number, count, slots):
    """Follow `count` entries at an address, the first of which has this number, through the slots as they are put.

    Returns how many have the right link, and how many slots they were the first in.
    """
    slot_count = np.uint32(slots.shape[0])
    slots_address = slots.ctypes.data
    used = 0
    for index in range(count):
        if index % _AHEAD == 0:
            for later in range(index, min(index + _AHEAD, count)):
                slot = np.uint32(load_i32(address, later * _ENTRY_BYTES)) % slot_count
                prefetch(slots_address, np.int64(slot) * _SLOT_BYTES)
        slot = np.uint32(load_i32(address, index * _ENTRY_BYTES)) % slot_count
        if load_i32(address, index * _ENTRY_BYTES + _ENTRY_PREVIOUS) != slots[slot]:
            return index, used
        if slots[slot] == 0:
            used += 1
        slots[slot] = number + index
    return count, used


class EntryStream:
    """The entries of one IndexFile, made block by block; `header` counts what was made so far."""

    def __init__(self, layout: IndexLayout, header: IndexHeader, *, block_entries: int = 1 << 16) -> None:
        self._state = np.array(astuple(header), np.int64)
        self.slots = np.zeros(layout.slot_count, np.int32)
        self._block = np.empty(block_entries * _ENTRY_BYTES, np.uint8)
        self._block_entries = block_entries

    @property
    def header(self) -> IndexHeader:
        return IndexHeader(*self._state.tolist())

    def put(self, columns: KeyColumns, row: int, key: int, stop_number: int) -> tuple[npt.NDArray[np.uint8], int, int]:
        """Put keys until entry `stop_number` is next or block or columns end; return entries, next row and next key.

        The entries follow those of the call before; the next call overwrites them.
        """
        number = int(self._state[_NEXT_ENTRY])
        stop = min(number + self._block_entries, stop_number)
        row, key = put_entries(columns, row, key, self.slots, self._block, stop, self._state)
        made = int(self._state[_NEXT_ENTRY]) - number
        return self._block[: made * _ENTRY_BYTES], int(row), int(key)

    def pass_over(self, columns: KeyColumns, key: int, stop_number: int) -> tuple[int, int]:
        """Skip keys until entry `stop_number` is next, as if they had been put; return the next row and key.

        Takes a fifth of the time of `put`. The header's end fields are valid only after a later key was put.
        """
        number = int(self._state[_NEXT_ENTRY])
        stop_key = min(key + stop_number - number, len(columns.key_hashes))
        if number <= 1 and stop_key > key:
            row = _row_of(columns, key)
            self._state[_BEGIN_TIME] = columns.store_timestamp_ms[row]
            self._state[_BEGIN_OFFSET] = columns.physical_offset[row]
        self._state[_SLOTS_USED] += pass_entries(columns.key_hashes, key, stop_key, number, self.slots)
        self._state[_NEXT_ENTRY] = number + stop_key - key
        return _row_of(columns, stop_key), stop_key


def _row_of(columns: KeyColumns, key: int) -> int:
    """Return the row that a key belongs to; after the last key, the number of rows."""
    return int(np.searchsorted(columns.key_ends, key, side="right"))


def equal_entries(
    columns: KeyColumns, key: int, entries: npt.NDArray[np.uint8], begin_timestamp_ms: int, *, is_begin: bool
) -> int:
    """Return how many of the entries are those of the keys from number `key` on, whatever they are linked to.

    `is_begin`: the first is its file's first, whose time counts from the end of the file before and is not compared.
    """
    row = _row_of(columns, key)
    count = len(entries) // _ENTRY_BYTES
    return int(match_entries(columns, row, key, entries.ctypes.data, count, begin_timestamp_ms, is_begin))


def right_links(entries: npt.NDArray[np.uint8], number: int, slots: npt.NDArray[np.int32]) -> tuple[int, int]:
    """Return how many entries, numbered from `number` on, have the right links, and how many slots were empty before.

    `slots` are updated from their state before the entries to that after them.
    """
    right, used = follow_links(entries.ctypes.data, number, len(entries) // _ENTRY_BYTES, slots)
    return int(right), int(used)
