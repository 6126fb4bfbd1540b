"""Derived range: queue units and keys of a range of the log, derived in one process and put in another.

Deriving reads only the log and writes nothing, so it can be repeated anywhere. The bytes sent between processes are the
columns one after the other, in native byte order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orbitlog.errors import LengthMismatch
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.kernels.arrays import np
from orbitlog.kernels.dispatch import DispatchColumns, DispatchScan
from orbitlog.store.derived.queue_set import QueueKey

_CHUNK_ROWS = 16384
_NO_ROWS = DispatchColumns.allocate(0, 0)
_KINDS = tuple(column.dtype for column in _NO_ROWS)


@dataclass(frozen=True, slots=True)
class DerivedRange:
    """A range of one segment that starts and stops at records, derived up to `derived_to`.

    If the end of the segment or damage stopped it before `stop`, the putting process handles the rest. `queues` maps
    the queue codes of the columns to queues.
    """

    start: int
    stop: int
    derived_to: int
    queues: Sequence[QueueKey]
    columns: DispatchColumns


def derive_range(segment: memoryview, base: int, start: int, stop: int, rules: DeriveRules) -> DerivedRange:
    """Derive the messages of a segment's range; `start` and `stop` are physical offsets."""
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
    """Return the bytes of all columns; `unpack_columns` needs the numbers of rows and keys."""
    return b"".join(column.tobytes() for column in columns)


def unpack_columns(raw: bytes, rows: int, keys: int) -> DispatchColumns:
    """Return columns as views of the bytes."""
    counts = [rows] * (len(_KINDS) - 1) + [keys]
    sizes = [count * kind.itemsize for count, kind in zip(counts, _KINDS, strict=True)]
    if sum(sizes) != len(raw):
        raise LengthMismatch(field="derived range", stated=sum(sizes), counted=len(raw))
    columns, position = [], 0
    for count, kind, size_bytes in zip(counts, _KINDS, sizes, strict=True):
        columns.append(np.frombuffer(raw, kind, count, position))
        position += size_bytes
    return DispatchColumns._make(columns)
