"""Kernel dispatch: derives queue units and index entries of many messages with numba.

`BulkDispatch` catches up with a long range of the log, as after a restart; `LiveDispatch` takes each step of a broker
under load. Both write the bytes of the plain-Python `Dispatcher`. Units of one queue are written in one piece, keys go
straight into the mapped index file. Loading the kernels takes half a second, or a minute if they must be compiled, so
the dispatcher leaves short ranges to plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from orbitlog.errors import FormatError, StoreError
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexHeader, IndexLayout
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QUEUE_ENTRY, QueueEntry
from orbitlog.formats.records.flags import enters_queue
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.dispatch import DispatchColumns, DispatchScan
from orbitlog.kernels.index_build import put_into
from orbitlog.kernels.row_dtypes import QUEUE_UNIT_DTYPE
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.derived.index_files import IndexBoundary, IndexFiles
from orbitlog.store.derived.queue_set import QueueKey, QueueSet
from orbitlog.store.dispatch.arrival import Arrival
from orbitlog.store.log.commitlog import Span
from orbitlog.store.recovery.recovery_plan import LeftOutUnits

_LIVE_CHUNK_ROWS = 1024
_PACK_UNIT = QUEUE_ENTRY.struct.pack
_new_tuple = tuple.__new__  # creates a named tuple in half the time of calling its class

QueueOf = Callable[[int], QueueKey]
_Rows = npt.NDArray[np.int64]


@dataclass(slots=True)
class KernelProgress:
    """Position after the last dispatched message of a segment, and that message's marks."""

    position: int
    last_physical_offset: int = 0
    last_store_timestamp_ms: int = 0

    def advance(self, columns: DispatchColumns) -> None:
        """Note the marks of a chunk's last message."""
        self.last_physical_offset = int(columns.physical_offset[-1])
        self.last_store_timestamp_ms = int(columns.store_timestamp_ms[-1])


class BulkDispatch:
    """Dispatches whole chunks of messages."""

    def __init__(self, queues: QueueSet, index: IndexFiles, rules: DeriveRules) -> None:
        self._queues = queues
        self._index = index
        self._scan = DispatchScan(rules)
        self.left_out: LeftOutUnits | None = None

    def run(self, view: memoryview, span: Span, index_from: IndexBoundary) -> KernelProgress:
        """Dispatch the messages that start in the span; stops before the first bytes that are not a message."""
        progress = KernelProgress(span.start)
        for columns in self._scan.scan(view, span.start, span.stop, base_physical_offset=span.base):
            self._put_units(columns, self._scan.queues.queue)
            for unit in self._scan.light_queue_units(view, columns, span.base):
                key = unit.topic, unit.queue_id
                if self.left_out is not None and not self.left_out.takes(
                    key, unit.entry.physical_offset, unit.queue_offset
                ):
                    continue
                queue = self._queues.find_or_make(unit.topic, unit.queue_id)
                queue.put(unit.queue_offset, unit.entry)
                self._queues.used(queue)
            self._index.put_bulk(keys_from(columns, index_from))
            progress.advance(columns)
        progress.position = self._scan.ended[0]
        return progress

    def put(self, columns: DispatchColumns, queue_of: QueueOf, index_from: IndexBoundary) -> None:
        """Put a chunk scanned elsewhere; `queue_of` maps its queue codes to queues."""
        self._put_units(columns, queue_of)
        self._index.settle()
        self._index.put_bulk(keys_from(columns, index_from))

    def _put_units(self, columns: DispatchColumns, queue_of: QueueOf) -> None:
        rows = entering_rows(columns)
        units = units_of(columns, rows)
        codes = columns.queue_code[rows]
        bounds = np.flatnonzero(np.diff(codes)) + 1
        for numbers in np.split(np.arange(len(rows)), bounds) if len(rows) else []:
            key = queue_of(int(codes[numbers[0]]))
            chosen = self._chosen(key, columns, rows, numbers)
            if len(chosen):
                queue = self._queues.find_or_make(*key)
                _put_run(queue, columns.queue_offset[rows[chosen]], units[chosen])
                self._queues.used(queue)

    def _chosen(self, key: QueueKey, columns: DispatchColumns, rows: _Rows, numbers: _Rows) -> _Rows:
        """Return the numbers of rows whose messages get a unit: all of them, except while recovering."""
        left_out = self.left_out
        if left_out is None:
            return numbers
        physical_offsets = columns.physical_offset[rows[numbers]]
        if key in left_out.reused:
            pairs = zip(physical_offsets.tolist(), columns.queue_offset[rows[numbers]].tolist(), strict=True)
            return numbers[[left_out.takes(key, *pair) for pair in pairs]]
        return numbers[physical_offsets >= left_out.first_taken(key)]


class LiveDispatch:
    """Dispatches the messages of one broker step after another; `load` must have been called before."""

    def __init__(self, queues: QueueSet, index: IndexFiles, rules: DeriveRules) -> None:
        self._queues = queues
        self._index = index
        self._multi_dispatch = rules.multi_dispatch
        self._scan = DispatchScan(rules, chunk_rows=_LIVE_CHUNK_ROWS)
        self._keys: list[QueueKey] = []

    def load(self) -> None:
        """Load the kernels: the first call compiles them or reads compiled code from the cache."""
        record = encode_message(make_message("T", b"", properties={"KEYS": "k", "TAGS": "t"}))
        columns = self._scan.chunk(record, 0, len(record), base_physical_offset=0)
        layout = IndexLayout(slot_count=1, entry_count=4)
        put_into(np.zeros(layout.file_bytes, np.uint8), IndexHeader(), layout, columns, 0, 0)

    def run(
        self, view: memoryview, span: Span, index_from: IndexBoundary, arrivals: list[Arrival], *, each: bool
    ) -> KernelProgress:
        """Dispatch messages of the span; stops before the first bytes that are not a message or need the slow path.

        A full disk or an invalid unit stops it in the same way: the slow path meets it and reports it. Adds messages
        that can be read now to `arrivals`: `each` of them, or at least the last of each queue.
        """
        progress = KernelProgress(span.start)
        while progress.position < span.stop:
            columns = self._scan.chunk(view, progress.position, span.stop, base_physical_offset=span.base)
            rows = len(columns.physical_offset)
            done = rows if self._put_runs(columns, arrivals, each) else self._put_units(columns, arrivals)
            if done:
                columns = columns.rows(done)
                self._index.settle()
                self._index.put_bulk(keys_from(columns, index_from))
                progress.advance(columns)
                progress.position = progress.last_physical_offset + int(columns.size_bytes[-1]) - span.base
            if done < max(rows, 1):
                break
        return progress

    def _put_runs(self, columns: DispatchColumns, arrivals: list[Arrival], each: bool) -> bool:
        """Put units, all of a queue at once; return False, with none put, if one of them needs `_put_units`."""
        rows = len(columns.physical_offset)
        if not enters_queue(columns.sys_flag).all() or (self._multi_dispatch and columns.is_multi_dispatch.any()):
            return False
        order = np.argsort(columns.queue_code, kind="stable")
        codes, queue_offsets = columns.queue_code[order], columns.queue_offset[order]
        bounds = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), rows] if rows else [0]
        runs: list[tuple[ConsumeQueue, int, int]] = []
        for start, stop in pairwise(bounds):
            queue, first = self._queues.find_key(self._key(int(codes[start]))), int(queue_offsets[start])
            # Offsets of one queue only rise in a log: if last minus first equals the count minus 1, there is no gap.
            if queue is None or int(queue_offsets[stop - 1]) - first != stop - start - 1:
                return False
            try:
                if not queue.reserve(first, stop - start):
                    return False
            except StoreError:
                return False
            runs.append((queue, start, stop))
        # Room for every run is reserved before the first unit is written: from here on nothing can fail half done.
        raw = units_of(columns, order).tobytes()
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
        """Put units row by row; return the number of rows done."""
        queues, entering = self._queues, enters_queue(columns.sys_flag).tolist()
        offsets, sizes, codes, queue_offsets, tags_codes, times, _, multiple = (
            column.tolist() for column in columns[:8]
        )
        for row in range(len(offsets)):
            if not entering[row]:
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


def entering_rows(columns: DispatchColumns) -> _Rows:
    """Return the rows of messages that enter a queue, by queue and within each queue in log order."""
    rows = np.flatnonzero(enters_queue(columns.sys_flag))
    return rows[np.argsort(columns.queue_code[rows], kind="stable")]


def units_of(columns: DispatchColumns, rows: _Rows) -> npt.NDArray[np.void]:
    """Return the units of some rows as stored on disk."""
    units = np.empty(len(rows), QUEUE_UNIT_DTYPE)
    units["physical_offset"] = columns.physical_offset[rows]
    units["size_bytes"] = columns.size_bytes[rows]
    units["tags_code"] = columns.tags_code[rows]
    return units


def keys_from(columns: DispatchColumns, index_from: IndexBoundary) -> DispatchColumns:
    """Return the columns without the keys that are in the index already.

    These are all keys of rows before the boundary, and the first `skip_keys` keys of the row at the boundary.
    """
    first_row = int(np.searchsorted(columns.physical_offset, index_from.physical_offset))
    if first_row == 0 and (not len(columns.physical_offset) or columns.physical_offset[0] > index_from.physical_offset):
        return columns
    skip = 0
    if first_row < len(columns.physical_offset) and columns.physical_offset[first_row] == index_from.physical_offset:
        skip = index_from.skip_keys
    first_key = (int(columns.key_ends[first_row - 1]) if first_row else 0) + skip
    if skip and first_key >= columns.key_ends[first_row]:
        first_row += 1  # all its keys are in the index; a row without keys would begin a new index file
    return columns._replace(
        physical_offset=columns.physical_offset[first_row:],
        store_timestamp_ms=columns.store_timestamp_ms[first_row:],
        key_ends=columns.key_ends[first_row:] - first_key,
        key_hashes=columns.key_hashes[first_key:],
    )


def _put_run(queue: ConsumeQueue, queue_offsets: _Rows, units: npt.NDArray[np.void]) -> None:
    """Put units of one queue: in one piece if they are consecutive and continue the queue, else one by one."""
    first, last = int(queue_offsets[0]), int(queue_offsets[-1])
    if first == queue.max_offset and not queue.segments.is_empty and last - first + 1 == len(units):
        queue.put_run(units.tobytes())
        return
    for queue_offset, unit in zip(queue_offsets.tolist(), units.tolist(), strict=True):
        queue.put(queue_offset, QueueEntry(*unit))
