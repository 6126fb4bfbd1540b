"""Numpy dtypes of fixed-size units in derived files, taken from their layouts. Imports numpy only, not numba."""

from __future__ import annotations

import numpy as np

from orbitlog.formats.derived.index_layout import INDEX_ENTRY
from orbitlog.formats.derived.queue_entry import QUEUE_ENTRY

QUEUE_UNIT_DTYPE = np.dtype(QUEUE_ENTRY.numpy_fields)
INDEX_ENTRY_DTYPE = np.dtype(INDEX_ENTRY.numpy_fields)
assert QUEUE_UNIT_DTYPE.itemsize == QUEUE_ENTRY.size_bytes
assert INDEX_ENTRY_DTYPE.itemsize == INDEX_ENTRY.size_bytes
