"""What the messages of a range of the log mean for queues and index, worked out in one process and put in another.

Whoever works it out needs nothing but the bytes of the log, and writes nothing: it can be done many times, anywhere.
The bytes that go from one process to the other are columns one after the other, in the machine's own order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orbitlog.errors import LengthMismatch
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.kernels.dispatch import DispatchColumns, DispatchScan
from orbitlog.store.derived.queue_set import QueueKey

_CHUNK_ROWS = 16384
_NO_ROWS = DispatchColumns.allocate(0, 0)
_KINDS = tuple(column.dtype for column in _NO_ROWS)


@dataclass(frozen=True, slots=True)
class DerivedRange:
    """The range lies in one segment, starts and stops at records, and is worked out up to `derived_to`.

    What stopped that before `stop`, the end of the segment or damage, is left to whoever puts it. `queues` are those
    that the columns' codes mean.
    """

    start: int
    stop: int
    derived_to: int
    queues: Sequence[QueueKey]
    columns: DispatchColumns


def derive_range(segment: memoryview, base: int, start: int, stop: int, rules: DeriveRules) -> DerivedRange:
    """Work out the messages of a segment's range; `start` and `stop` are physical offsets."""
    scan = DispatchScan(rules, chunk_rows=_CHUNK_ROWS)
    limit = min(stop - base, len(segment))
    chunks = [
        DispatchColumns._make(column.copy() for column in chunk)
        for chunk in scan.scan(segment, start - base, limit, base_physical_offset=base)
    ]
    return DerivedRange(start, stop, base + scan.ended[0], scan.queues.queues(), _joined(chunks))


def _joined(chunks: list[DispatchColumns]) -> DispatchColumns:
    if len(chunks) == 1:
        return chunks[0]
    keys_before = 0
    for chunk in chunks:
        chunk.key_ends[:] += keys_before
        keys_before += len(chunk.key_hashes)
    return DispatchColumns._make(map(np.concatenate, zip(*chunks, strict=True))) if chunks else _NO_ROWS


def pack_columns(columns: DispatchColumns) -> bytes:
    """Return the bytes of all columns; `unpack_columns` wants to know how many rows and keys there are."""
    return b"".join(column.tobytes() for column in columns)


def unpack_columns(raw: bytes, rows: int, keys: int) -> DispatchColumns:
    """Return columns that look into the bytes."""
    counts = [rows] * (len(_KINDS) - 1) + [keys]
    sizes = [count * kind.itemsize for count, kind in zip(counts, _KINDS, strict=True)]
    if sum(sizes) != len(raw):
        raise LengthMismatch(field="derived range", stated=sum(sizes), counted=len(raw))
    columns, position = [], 0
    for count, kind, size_bytes in zip(counts, _KINDS, sizes, strict=True):
        columns.append(np.frombuffer(raw, kind, count, position))
        position += size_bytes
    return DispatchColumns._make(columns)
