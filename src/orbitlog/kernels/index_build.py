"""IndexFile bytes from dispatch columns: the twin of `formats.derived.index_layout.IndexWriter`.

Order matters here: an entry's number and its link to the one before depend on every key put earlier. Keys are put
straight into the bytes of the file; when it is full the caller provides the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple

from orbitlog.formats.derived.index_layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    IndexHeader,
    IndexLayout,
    decode_header,
    encode_empty_header,
    header_after,
)
from orbitlog.formats.java import INT_MAX
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.dispatch import DispatchColumns
from orbitlog.kernels.jit import inlined, kernel
from orbitlog.kernels.unaligned import load_i32, store_i32, store_i64

_HEADER_BYTES, _SLOT_BYTES, _ENTRY_BYTES = INDEX_HEADER.size_bytes, INDEX_SLOT.size_bytes, INDEX_ENTRY.size_bytes
_ENTRY_OFFSET, _ENTRY_TIME, _ENTRY_PREVIOUS = (
    INDEX_ENTRY.position(name) for name in ("physical_offset", "time_diff_seconds", "previous_entry")
)
# Rows of the state array: the header's fields, in its order.
_BEGIN_TIME, _END_TIME, _BEGIN_OFFSET, _END_OFFSET, _SLOTS_USED, _NEXT_ENTRY = range(6)
_INT_MAX = INT_MAX

OpenIndexFile = Callable[[int], npt.NDArray[np.uint8]]
"""Takes the store time of the first message, gives the zeroed bytes of a new index file."""


@inlined
def time_diff(store_timestamp_ms, begin_timestamp_ms):
    if begin_timestamp_ms <= 0 or store_timestamp_ms <= begin_timestamp_ms:
        return np.int32(0)
    return np.int32(min((store_timestamp_ms - begin_timestamp_ms) // 1000, _INT_MAX))


@inlined
def _put(address, slot_count, state, key_hash, physical_offset, store_timestamp_ms):
    """Put one key into a file that is not full."""
    number = state[_NEXT_ENTRY]
    slot = _HEADER_BYTES + np.int64(key_hash % slot_count) * _SLOT_BYTES
    previous = np.int64(load_i32(address, slot))
    if previous <= 0 or previous > number:
        previous = np.int64(0)
        state[_SLOTS_USED] += 1
    entry = _HEADER_BYTES + slot_count * _SLOT_BYTES + number * _ENTRY_BYTES
    store_i32(address, entry, key_hash)
    store_i64(address, entry + _ENTRY_OFFSET, physical_offset)
    store_i32(address, entry + _ENTRY_TIME, time_diff(store_timestamp_ms, state[_BEGIN_TIME]))
    store_i32(address, entry + _ENTRY_PREVIOUS, np.int32(previous))
    store_i32(address, slot, np.int32(number))
    if number <= 1:
        state[_BEGIN_OFFSET] = physical_offset
        state[_BEGIN_TIME] = store_timestamp_ms
    state[_NEXT_ENTRY] = number + 1
    state[_END_OFFSET] = physical_offset
    state[_END_TIME] = store_timestamp_ms


@kernel
def put_keys(columns, row, key, address, slot_count, entry_count, state):
    """Put keys from number `key` on, the next of which belongs to `row` or later.

    Returns the row and the key at which a new file is needed, or (rows, keys). A row needs one that is not full even if
    it has no keys.
    """
    rows = columns.physical_offset.shape[0]
    while row < rows:
        if state[_NEXT_ENTRY] >= entry_count:
            return row, key
        while key < columns.key_ends[row]:
            if state[_NEXT_ENTRY] >= entry_count:
                return row, key
            _put(
                address,
                slot_count,
                state,
                columns.key_hashes[key],
                columns.physical_offset[row],
                columns.store_timestamp_ms[row],
            )
            key += 1
        row += 1
    return row, key


def put_into(
    data: npt.NDArray[np.uint8], header: IndexHeader, layout: IndexLayout, columns: DispatchColumns, row: int, key: int
) -> tuple[IndexHeader, int, int]:
    """Put keys into the bytes of a file; return its header, which is not written, and the next row and key."""
    state = np.array(astuple(header), np.int64)
    row, key = put_keys(columns, row, key, data.ctypes.data, layout.slot_count, layout.entry_count, state)
    return IndexHeader(*state.tolist()), int(row), int(key)


class IndexBuilder:
    """Puts the keys of one chunk after another, in the order of the log."""

    def __init__(self, layout: IndexLayout, open_file: OpenIndexFile, *, after: IndexHeader | None = None) -> None:
        self._layout = layout
        self._open_file = open_file
        self._file: npt.NDArray[np.uint8] | None = None
        before = after or IndexHeader()
        self._state = np.array(astuple(before), np.int64)
        self._has_before = after is not None

    @property
    def header(self) -> IndexHeader:
        """The header of the current file."""
        return IndexHeader(*(int(value) for value in self._state))

    def resume(self, file: npt.NDArray[np.uint8]) -> None:
        """Continue a file that was started earlier."""
        self._take(file)
        self._state[:] = astuple(decode_header(file.data))

    def add(self, columns: DispatchColumns) -> None:
        """Put the keys of a chunk; a message without keys also begins a file where the last one is full."""
        rows, keys = len(columns.physical_offset), len(columns.key_hashes)
        row = key = 0
        while row < rows:
            if self._file is None or self._state[_NEXT_ENTRY] >= self._layout.entry_count:
                self._begin(int(columns.store_timestamp_ms[row]))
            assert self._file is not None
            row, key = put_keys(
                columns,
                row,
                key,
                self._file.ctypes.data,
                self._layout.slot_count,
                self._layout.entry_count,
                self._state,
            )
            if self._state[_NEXT_ENTRY] > 1:
                header = INDEX_HEADER.struct.pack(*self._state.tolist())
                self._file[: INDEX_HEADER.size_bytes] = np.frombuffer(header, np.uint8)
        assert key == keys

    def _begin(self, store_timestamp_ms: int) -> None:
        """Begin a new file; the last one's end is its begin until the first key is put."""
        header = IndexHeader()
        if self._file is not None or self._has_before:
            header = header_after(self.header)
        self._take(self._open_file(store_timestamp_ms))
        assert self._file is not None
        self._state[:] = astuple(header)
        self._file[: INDEX_HEADER.size_bytes] = np.frombuffer(encode_empty_header(header), np.uint8)

    def _take(self, file: npt.NDArray[np.uint8]) -> None:
        if len(file) != self._layout.file_bytes or not file.flags.c_contiguous or not file.flags.writeable:
            raise ValueError(f"an index file has {self._layout.file_bytes} writable bytes, not {len(file)}")
        self._file = file
