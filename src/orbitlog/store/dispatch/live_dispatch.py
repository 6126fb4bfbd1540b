"""Dispatching what came in since the last step with the kernels, where that is more than a handful of messages.

One call finds units and key hashes of all of them, another puts the keys; units go to their queues in one piece each,
or one by one where anything is unusual. The more messages a step has the more it pays: a broker under load has many.
The bytes are those of plain Python. The kernels must have been loaded before (`LiveDispatch.load`), which takes half a
second to a minute: a broker does it in a thread once it serves.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from orbitlog.errors import FormatError, StoreError
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexHeader, IndexLayout
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QUEUE_ENTRY, QueueEntry
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.kernels.dispatch import DispatchColumns, DispatchScan
from orbitlog.kernels.index_build import put_into
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.derived.index_files import IndexBoundary, IndexFiles
from orbitlog.store.derived.queue_set import QueueKey, QueueSet
from orbitlog.store.dispatch.bulk_dispatch import BulkProgress, keys_from
from orbitlog.store.dispatch.dispatcher import Arrival
from orbitlog.store.log.commitlog import Span

_ROWS = 1024
_PREPARED = int(flags.TransactionType.PREPARED)
_PACK_UNIT = QUEUE_ENTRY.struct.pack
_UNIT = np.dtype([("physical_offset", ">i8"), ("size_bytes", ">i4"), ("tags_code", ">i8")])
assert _UNIT.itemsize == ENTRY_BYTES
_new_tuple = tuple.__new__  # a named tuple made in half the time of calling it


class LiveDispatch:
    """Puts the messages of one step after another into queues and index."""

    def __init__(self, queues: QueueSet, index: IndexFiles, rules: DeriveRules) -> None:
        self._queues = queues
        self._index = index
        self._multi_dispatch = rules.multi_dispatch
        self._scan = DispatchScan(rules, chunk_rows=_ROWS)
        self._keys: list[QueueKey] = []

    def load(self) -> None:
        """Have the kernels in memory: a first call compiles them, or fetches what was compiled before."""
        record = encode_message(make_message("T", b"", properties={"KEYS": "k", "TAGS": "t"}))
        columns = self._scan.chunk(record, 0, len(record), base_physical_offset=0)
        layout = IndexLayout(slot_count=1, entry_count=4)
        put_into(np.zeros(layout.file_bytes, np.uint8), IndexHeader(), layout, columns, 0, 0)

    def run(
        self, view: memoryview, span: Span, index_from: IndexBoundary, arrivals: list[Arrival], *, each: bool
    ) -> BulkProgress:
        """Dispatch messages of the span; ends before the first thing that is none, or that needs a closer look.

        A disk that is full, or a unit that cannot be, ends it in the same way: who looks closer meets it again. Adds
        the messages that can be read now to `arrivals`, `each` of them or at least the last of each queue.
        """
        progress = BulkProgress(span.start)
        while progress.position < span.stop:
            columns = self._scan.chunk(view, progress.position, span.stop, base_physical_offset=span.base)
            rows = len(columns.physical_offset)
            done = rows if self._put_runs(columns, arrivals, each) else self._put_units(columns, arrivals)
            if done:
                columns = columns.rows(done)
                self._index.settle()
                self._index.put_bulk(keys_from(columns, index_from))
                progress.last_physical_offset = int(columns.physical_offset[-1])
                progress.last_store_timestamp_ms = int(columns.store_timestamp_ms[-1])
                progress.position = progress.last_physical_offset + int(columns.size_bytes[-1]) - span.base
            if done < max(rows, 1):
                break
        return progress

    def _put_runs(self, columns: DispatchColumns, arrivals: list[Arrival], each: bool) -> bool:
        """Put units, all of a queue at once; False, and none put, where one of them is for `_put_units`."""
        rows = len(columns.physical_offset)
        if (columns.sys_flag & _PREPARED).any() or (self._multi_dispatch and columns.is_multi_dispatch.any()):
            return False
        order = np.argsort(columns.queue_code, kind="stable")
        codes, queue_offsets = columns.queue_code[order], columns.queue_offset[order]
        bounds = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), rows] if rows else [0]
        runs: list[tuple[ConsumeQueue, int, int]] = []
        for start, stop in pairwise(bounds):
            queue, first = self._queues.find_key(self._key(int(codes[start]))), int(queue_offsets[start])
            # Offsets of one queue only rise in a log: those that fill a room of their number have no gap.
            if queue is None or int(queue_offsets[stop - 1]) - first != stop - start - 1:
                return False
            try:
                if not queue.reserve(first, stop - start):
                    return False
            except StoreError:
                return False
            runs.append((queue, start, stop))
        units = np.empty(rows, _UNIT)
        units["physical_offset"] = columns.physical_offset[order]
        units["size_bytes"] = columns.size_bytes[order]
        units["tags_code"] = columns.tags_code[order]
        raw = units.tobytes()
        for queue, start, stop in runs:
            queue.put_reserved(raw[start * ENTRY_BYTES : stop * ENTRY_BYTES])
        self._arrive(columns, arrivals, range(rows) if each else order[[stop - 1 for _, _, stop in runs]].tolist())
        return True

    def _arrive(self, columns: DispatchColumns, arrivals: list[Arrival], rows: Iterable[int]) -> None:
        codes, queue_offsets, tags_codes, times = (column.tolist() for column in columns[2:6])
        for row in rows:
            topic, queue_id = self._keys[codes[row]]
            arrivals.append(_new_tuple(Arrival, (topic, queue_id, queue_offsets[row], tags_codes[row], times[row])))

    def _key(self, code: int) -> QueueKey:
        keys, names = self._keys, self._scan.queues
        while len(keys) <= code:
            keys.append(names.queue(len(keys)))
        return keys[code]

    def _put_units(self, columns: DispatchColumns, arrivals: list[Arrival]) -> int:
        """Put units, row by row; returns how many rows are done with."""
        queues = self._queues
        offsets, sizes, codes, queue_offsets, tags_codes, times, sys_flags, multiple = (
            column.tolist() for column in columns[:8]
        )
        for row in range(len(offsets)):
            if sys_flags[row] & _PREPARED:
                continue
            if self._multi_dispatch and multiple[row]:
                return row
            key, queue_offset = self._key(codes[row]), queue_offsets[row]
            queue = queues.find_key(key)
            unit = offsets[row], sizes[row], tags_codes[row]
            if queue is None or not queue.put_next(queue_offset, _PACK_UNIT(*unit)):
                try:
                    queue = queues.find_or_make(*key)
                    if not queue.put(queue_offset, QueueEntry(*unit)):
                        return row
                except (FormatError, StoreError):
                    return row
                queues.used(queue)
            arrivals.append(Arrival(*key, queue_offset, tags_codes[row], times[row]))
        return len(offsets)
