"""Index repair: cuts an index file back to a header with fewer keys.

A killed writer leaves entries after those that it published, and slots that point to them. The earlier entries are
complete, and the newest entry of a slot is the last of them with a hash of that slot. So slots are rebuilt from the
entries; the progress of the killed writer and the order in which its stores became visible do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from orbitlog.formats.derived.index_layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    IndexHeader,
    IndexLayout,
    encode_empty_header,
    encode_header,
)
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.row_dtypes import INDEX_ENTRY_DTYPE
from orbitlog.storefiles.disk import MappedFile

_CHUNK_ENTRIES = 1 << 16
_PAGE_BYTES = 4096


def cut_index_file(file: MappedFile, layout: IndexLayout, header: IndexHeader) -> None:
    """Cut the file to the keys that `header` counts; its bytes up to there must be allocated."""
    _write_where_other(file, INDEX_HEADER.size_bytes, _slots(file, layout, header.index_count).tobytes())
    start = layout.entry_position(header.index_count)
    stop = min(file.data_end(), layout.file_bytes)
    for position in range(start, stop, _CHUNK_ENTRIES):
        _write_where_other(file, position, bytes(min(_CHUNK_ENTRIES, stop - position)))
    file.write(0, encode_header(header) if header.key_count else encode_empty_header(header))


def _slots(file: MappedFile, layout: IndexLayout, index_count: int) -> npt.NDArray[np.int32]:
    slots, number = np.zeros(layout.slot_count, ">i4"), 1
    for entries in _entries(file, layout, index_count):
        places = entries["key_hash"].astype(np.int64) % layout.slot_count
        # numpy keeps the last of several assignments to one slot: the newest entry.
        slots[places] = np.arange(number, number + len(entries))
        number += len(entries)
    assert slots.itemsize == INDEX_SLOT.size_bytes
    return slots


def _entries(file: MappedFile, layout: IndexLayout, index_count: int) -> Iterator[npt.NDArray[np.void]]:
    """Yield the entries before that number, in chunks."""
    for first in range(1, index_count, _CHUNK_ENTRIES):
        count = min(_CHUNK_ENTRIES, index_count - first)
        raw = file.read(layout.entry_position(first), count * INDEX_ENTRY.size_bytes)
        yield np.frombuffer(raw, INDEX_ENTRY_DTYPE)


def header_with(
    file: MappedFile, layout: IndexLayout, header: IndexHeader, key_count: int, end_timestamp_ms: int
) -> IndexHeader | None:
    """Return the header that the file had with fewer keys; None if its entries are not in log order."""
    slots_used, before = 0, header.begin_physical_offset
    for entries in _entries(file, layout, key_count + 1):
        offsets = entries["physical_offset"]
        if int(offsets[0]) < before or np.any(offsets[1:] < offsets[:-1]):
            return None
        before = int(offsets[-1])
        slots_used += int(np.count_nonzero(entries["previous_entry"] == 0))
    return replace(
        header,
        end_timestamp_ms=end_timestamp_ms,
        end_physical_offset=before,
        hash_slot_count=slots_used,
        index_count=key_count + 1,
    )


def _write_where_other(file: MappedFile, start: int, wanted: bytes) -> None:
    """Write only pages that differ: others may be holes without blocks, and stay so."""
    position, stop = start, start + len(wanted)
    while position < stop:
        count = min(_PAGE_BYTES - position % _PAGE_BYTES, stop - position)
        part = wanted[position - start : position - start + count]
        if file.read(position, count) != part:
            file.write(position, part)
        position += count
