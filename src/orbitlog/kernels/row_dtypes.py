"""Dtypes of fixed-size units in store files, taken from their layouts. Imports numpy only, not numba."""

from __future__ import annotations

from orbitlog.formats.derived.index_layout import INDEX_ENTRY
from orbitlog.formats.derived.queue_entry import QUEUE_ENTRY
from orbitlog.formats.records.dledger import ENTRY_HEADER, INDEX_UNIT
from orbitlog.kernels import COMPILED
from orbitlog.kernels.arrays import np, npt

QUEUE_UNIT_DTYPE = np.dtype(QUEUE_ENTRY.numpy_fields)
INDEX_ENTRY_DTYPE = np.dtype(INDEX_ENTRY.numpy_fields)
ENTRY_HEADER_DTYPE = np.dtype(ENTRY_HEADER.numpy_fields)
ENTRY_UNIT_DTYPE = np.dtype(INDEX_UNIT.numpy_fields)
assert QUEUE_UNIT_DTYPE.itemsize == QUEUE_ENTRY.size_bytes
assert INDEX_ENTRY_DTYPE.itemsize == INDEX_ENTRY.size_bytes
assert ENTRY_HEADER_DTYPE.itemsize == ENTRY_HEADER.size_bytes
assert ENTRY_UNIT_DTYPE.itemsize == INDEX_UNIT.size_bytes

PLACE_DTYPE = np.dtype([("physical_offset", "<i8"), ("size_bytes", "<i8")])
"""Physical offset and size of a message, in memory."""


def rows_at(view: memoryview, positions: npt.NDArray[np.int64], kind: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Return copies of the rows of a type at these positions of a buffer, which must hold them."""
    size = kind.itemsize
    if not COMPILED:
        return np.frombuffer(b"".join(view[position : position + size] for position in positions.tolist()), kind)
    data = np.frombuffer(view, np.uint8)
    rows: npt.NDArray[np.void] = data[positions[:, None] + np.arange(size)].reshape(-1).view(kind)
    return rows


def places_of(physical_offsets: npt.NDArray[np.integer], sizes: npt.NDArray[np.integer]) -> npt.NDArray[np.void]:
    """Return rows of physical offset and size."""
    places = np.empty(len(physical_offsets), PLACE_DTYPE)
    places["physical_offset"] = physical_offsets
    places["size_bytes"] = sizes
    return places
