"""Numpy dtypes of fixed-size units in store files, taken from their layouts. Imports numpy only, not numba."""

from __future__ import annotations

import numpy as np

from orbitlog.formats.derived.index_layout import INDEX_ENTRY
from orbitlog.formats.derived.queue_entry import QUEUE_ENTRY
from orbitlog.formats.records.dledger import ENTRY_HEADER, INDEX_UNIT

QUEUE_UNIT_DTYPE = np.dtype(QUEUE_ENTRY.numpy_fields)
INDEX_ENTRY_DTYPE = np.dtype(INDEX_ENTRY.numpy_fields)
ENTRY_HEADER_DTYPE = np.dtype(ENTRY_HEADER.numpy_fields)
ENTRY_UNIT_DTYPE = np.dtype(INDEX_UNIT.numpy_fields)
assert QUEUE_UNIT_DTYPE.itemsize == QUEUE_ENTRY.size_bytes
assert INDEX_ENTRY_DTYPE.itemsize == INDEX_ENTRY.size_bytes
assert ENTRY_HEADER_DTYPE.itemsize == ENTRY_HEADER.size_bytes
assert ENTRY_UNIT_DTYPE.itemsize == INDEX_UNIT.size_bytes
