"""Dispatching what came in since the last step with the kernels, where that is more than a handful of messages.

One call finds units and key hashes of all of them, another puts the keys; only the units, which go to many files, are
put one by one. The more messages a step has the more it pays: a broker under load has many. The bytes are those of
plain Python. The kernels must have been loaded before (`LiveDispatch.load`), which takes half a second to a minute:
a broker does it in a thread once it serves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from orbitlog.errors import FormatError, StoreError
from orbitlog.formats import flags
from orbitlog.formats.derive import DeriveRules
from orbitlog.formats.index_layout import IndexHeader, IndexLayout
from orbitlog.formats.message import encode_message, make_message
from orbitlog.formats.queue_entry import QUEUE_ENTRY, QueueEntry
from orbitlog.kernels.dispatch import DispatchColumns, DispatchScan
from orbitlog.kernels.index_build import put_into
from orbitlog.store.bulk_dispatch import BulkProgress, keys_from
from orbitlog.store.commitlog import Span
from orbitlog.store.index_files import IndexBoundary, IndexFiles
from orbitlog.store.queue_set import QueueKey, QueueSet

_ROWS = 1024
_PREPARED = int(flags.TransactionType.PREPARED)
_PACK_UNIT = QUEUE_ENTRY.struct.pack

Arrived = Callable[[QueueKey, int, int, int], None]
"""Takes the queue, the queue offset, the tags code and the store time of a message that was put into its queue."""


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

    def run(self, view: memoryview, span: Span, index_from: IndexBoundary, arrived: Arrived) -> BulkProgress:
        """Dispatch messages of the span; ends before the first thing that is none, or that needs a closer look.

        A disk that is full, or a unit that cannot be, ends it in the same way: who looks closer meets it again.
        """
        progress = BulkProgress(span.start)
        while progress.position < span.stop:
            columns = self._scan.chunk(view, progress.position, span.stop, base_physical_offset=span.base)
            rows = len(columns.physical_offset)
            done = self._put_units(columns, arrived)
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

    def _put_units(self, columns: DispatchColumns, arrived: Arrived) -> int:
        """Put units, row by row; returns how many rows are done with."""
        queues, keys, names = self._queues, self._keys, self._scan.queues
        while len(keys) < len(names):
            keys.append(names.queue(len(keys)))
        offsets, sizes, codes, queue_offsets, tags_codes, times, sys_flags, multiple = (
            column.tolist() for column in columns[:8]
        )
        for row in range(len(offsets)):
            if sys_flags[row] & _PREPARED:
                continue
            if self._multi_dispatch and multiple[row]:
                return row
            key, queue_offset = keys[codes[row]], queue_offsets[row]
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
            arrived(key, queue_offset, tags_codes[row], times[row])
        return len(offsets)
