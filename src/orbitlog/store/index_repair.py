"""Taking an index file back to what it was when its header had fewer keys.

A writer that was killed leaves entries behind those it vouched for, and slots that point to them. The entries before
are whole: each slot's newest is the last of them with a hash of that slot. So slots are made again from the entries,
and nothing need be known of how far the killed one came, or in which order its stores became visible.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orbitlog.formats.index_layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    IndexHeader,
    IndexLayout,
    encode_empty_header,
    encode_header,
)
from orbitlog.store.disk import MappedFile

_CHUNK_ENTRIES = 1 << 16
_PAGE_BYTES = 4096
_ENTRY = np.dtype(
    [("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_diff", ">i4"), ("previous", ">i4")],
)
assert _ENTRY.itemsize == INDEX_ENTRY.size_bytes


def cut_index_file(file: MappedFile, layout: IndexLayout, header: IndexHeader) -> None:
    """Let the file hold the keys that `header` counts, and no other; its bytes up to there must be allocated."""
    _write_where_other(file, INDEX_HEADER.size_bytes, _slots(file, layout, header.index_count).tobytes())
    start = layout.entry_position(header.index_count)
    stop = min(file.data_end(), layout.file_bytes)
    for position in range(start, stop, _CHUNK_ENTRIES):
        _write_where_other(file, position, bytes(min(_CHUNK_ENTRIES, stop - position)))
    file.write(0, encode_header(header) if header.key_count else encode_empty_header(header))


def _slots(file: MappedFile, layout: IndexLayout, index_count: int) -> npt.NDArray[np.int32]:
    slots = np.zeros(layout.slot_count, ">i4")
    for first in range(1, index_count, _CHUNK_ENTRIES):
        count = min(_CHUNK_ENTRIES, index_count - first)
        raw = file.read(layout.entry_position(first), count * INDEX_ENTRY.size_bytes)
        hashes = np.frombuffer(raw, _ENTRY)["key_hash"].astype(np.int64)
        # Of several that go to one place the last stays, which is the newest.
        slots[hashes % layout.slot_count] = np.arange(first, first + count)
    assert slots.itemsize == INDEX_SLOT.size_bytes
    return slots


def _write_where_other(file: MappedFile, start: int, wanted: bytes) -> None:
    """Write page by page, and only those that differ: the others may have no blocks, and get none here."""
    position, stop = start, start + len(wanted)
    while position < stop:
        count = min(_PAGE_BYTES - position % _PAGE_BYTES, stop - position)
        part = wanted[position - start : position - start + count]
        if file.read(position, count) != part:
            file.write(position, part)
        position += count
