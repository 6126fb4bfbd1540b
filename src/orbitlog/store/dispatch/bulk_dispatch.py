"""Dispatching a long stretch of the log at once, with the kernels: what catching up after a restart needs.

Units of one queue that follow each other are written in one piece; keys are put by the kernel straight into the bytes
of the index file. The bytes are those of the step-by-step dispatcher. Loading numba takes a moment, so short stretches
are better left to that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QueueEntry
from orbitlog.formats.records import flags
from orbitlog.kernels.dispatch import DispatchColumns, DispatchScan
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.derived.index_files import IndexBoundary, IndexFiles
from orbitlog.store.derived.queue_set import QueueKey, QueueSet
from orbitlog.store.recovery.recovery_plan import LeftOutUnits

_UNIT = np.dtype([("physical_offset", ">i8"), ("size_bytes", ">i4"), ("tags_code", ">i8")])
assert _UNIT.itemsize == ENTRY_BYTES

QueueOf = Callable[[int], QueueKey]


@dataclass(slots=True)
class BulkProgress:
    """How far a stretch was dispatched, and the last message of it."""

    position: int
    last_physical_offset: int = 0
    last_store_timestamp_ms: int = 0


class BulkDispatch:
    """Puts whole chunks of messages into queues and index."""

    def __init__(self, queues: QueueSet, index: IndexFiles, rules: DeriveRules) -> None:
        self._queues = queues
        self._index = index
        self._scan = DispatchScan(rules)
        self.left_out: LeftOutUnits | None = None

    def run(self, view: memoryview, start: int, stop: int, base: int, index_from: IndexBoundary) -> BulkProgress:
        """Dispatch the messages of a segment that start in the range; ends before the first thing that is none."""
        progress = BulkProgress(start)
        for columns in self._scan.scan(view, start, stop, base_physical_offset=base):
            self._put_units(columns, self._scan.queues.queue)
            for unit in self._scan.light_queue_units(view, columns, base):
                key = unit.topic, unit.queue_id
                if self.left_out is not None and not self.left_out.takes(
                    key, unit.entry.physical_offset, unit.queue_offset
                ):
                    continue
                queue = self._queues.find_or_make(unit.topic, unit.queue_id)
                queue.put(unit.queue_offset, unit.entry)
                self._queues.used(queue)
            self._index.put_bulk(keys_from(columns, index_from))
            progress.last_physical_offset = int(columns.physical_offset[-1])
            progress.last_store_timestamp_ms = int(columns.store_timestamp_ms[-1])
        progress.position = self._scan.ended[0]
        return progress

    def put(self, columns: DispatchColumns, queue_of: QueueOf, index_from: IndexBoundary) -> None:
        """Put a chunk that somebody else scanned; `queue_of` says which queue is meant by a code."""
        self._put_units(columns, queue_of)
        self._index.settle()
        self._index.put_bulk(keys_from(columns, index_from))

    def _put_units(self, columns: DispatchColumns, queue_of: QueueOf) -> None:
        rows = entering_rows(columns)
        units = units_of(columns, rows)
        codes = columns.queue_code[rows]
        bounds = np.flatnonzero(np.diff(codes)) + 1
        for part in np.split(np.arange(len(rows)), bounds) if len(rows) else []:
            key = queue_of(int(codes[part[0]]))
            chosen = self._chosen(key, columns, rows, part)
            if len(chosen):
                queue = self._queues.find_or_make(*key)
                _put_run(queue, columns.queue_offset[rows[chosen]], units[chosen])
                self._queues.used(queue)

    def _chosen(
        self, key: QueueKey, columns: DispatchColumns, rows: npt.NDArray[np.int64], part: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return those numbers of rows whose messages get a unit: all of them, except while recovering."""
        left_out = self.left_out
        if left_out is None:
            return part
        physical_offsets = columns.physical_offset[rows[part]]
        if key in left_out.reused:
            pairs = zip(physical_offsets.tolist(), columns.queue_offset[rows[part]].tolist(), strict=True)
            return part[[left_out.takes(key, *pair) for pair in pairs]]
        return part[physical_offsets >= left_out.begins.get(key, 0)]


def entering_rows(columns: DispatchColumns) -> npt.NDArray[np.int64]:
    """Return the rows of messages that enter a queue, by queue and within each in the order of the log."""
    state = columns.sys_flag & flags.TRANSACTION_MASK
    entering = (state != flags.TransactionType.PREPARED) & (state != flags.TransactionType.ROLLBACK)
    rows = np.flatnonzero(entering)
    return rows[np.argsort(columns.queue_code[rows], kind="stable")]


def units_of(columns: DispatchColumns, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    """Return the units of some rows as the bytes on disk have them."""
    units = np.empty(len(rows), _UNIT)
    for name in ("physical_offset", "size_bytes", "tags_code"):
        units[name] = getattr(columns, name)[rows]
    return units


def keys_from(columns: DispatchColumns, index_from: IndexBoundary) -> DispatchColumns:
    """Leave out rows whose keys are all in the index already, and those keys of the next row that are."""
    first_row = int(np.searchsorted(columns.physical_offset, index_from.physical_offset))
    if first_row == 0 and (not len(columns.physical_offset) or columns.physical_offset[0] > index_from.physical_offset):
        return columns
    skip = 0
    if first_row < len(columns.physical_offset) and columns.physical_offset[first_row] == index_from.physical_offset:
        skip = index_from.skip_keys
    first_key = (int(columns.key_ends[first_row - 1]) if first_row else 0) + skip
    if skip and first_key >= columns.key_ends[first_row]:
        first_row += 1  # all of its keys are in the index: left here without any, it would begin a new file
    return columns._replace(
        physical_offset=columns.physical_offset[first_row:],
        store_timestamp_ms=columns.store_timestamp_ms[first_row:],
        key_ends=columns.key_ends[first_row:] - first_key,
        key_hashes=columns.key_hashes[first_key:],
    )


def _put_run(queue: ConsumeQueue, queue_offsets: npt.NDArray[np.int64], units: npt.NDArray[np.void]) -> None:
    """Put units of one queue: in one piece where they follow each other and the queue's end, else one by one."""
    first, last = int(queue_offsets[0]), int(queue_offsets[-1])
    if first == queue.max_offset and not queue.segments.is_empty and last - first + 1 == len(units):
        queue.put_run(units.tobytes())
        return
    for queue_offset, unit in zip(queue_offsets.tolist(), units.tolist(), strict=True):
        queue.put(queue_offset, QueueEntry(*unit))
