"""ConsumeQueue units of a range of the log, sorted by queue: what each queue got, one after the other, as bytes.

Units are counted while chunks come, and put to their places when all are there: a counting sort, whose order within
a queue is that of the log.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QUEUE_ENTRY
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.dispatch import DispatchColumns, enters_queue
from orbitlog.kernels.jit import kernel
from orbitlog.kernels.unaligned import store_i32, store_i64

_ENTRY_BYTES = ENTRY_BYTES
_SIZE, _TAGS_CODE = QUEUE_ENTRY.position("size_bytes"), QUEUE_ENTRY.position("tags_code")
_BEFORE_ANY = -2  # no queue offset follows it


class SortedUnits(NamedTuple):
    """Units by queue; `begins` marks units that start a new run.

    These are the first unit of a queue, the first of a queue file, one whose queue offset does not follow the one
    before, and every one with an invalid queue offset.
    """

    raw: npt.NDArray[np.uint8]
    queue_code: npt.NDArray[np.int32]
    queue_offset: npt.NDArray[np.int64]
    store_timestamp_ms: npt.NDArray[np.int64]
    begins: npt.NDArray[np.bool_]


@kernel
def count_units(columns, counts):
    """Add the units of a chunk to the counts of their queues."""
    for row in range(columns.sys_flag.shape[0]):
        if enters_queue(columns.sys_flag[row]):
            counts[columns.queue_code[row]] += 1


@kernel
def place_sorted(columns, places, last_offsets, units_in_file, units):
    """Put the units of a chunk at `places`, and advance them."""
    address = units.raw.ctypes.data
    for row in range(columns.sys_flag.shape[0]):
        if not enters_queue(columns.sys_flag[row]):
            continue
        code = columns.queue_code[row]
        place = places[code]
        places[code] = place + 1
        queue_offset = columns.queue_offset[row]
        store_i64(address, place * _ENTRY_BYTES, columns.physical_offset[row])
        store_i32(address, place * _ENTRY_BYTES + _SIZE, columns.size_bytes[row])
        store_i64(address, place * _ENTRY_BYTES + _TAGS_CODE, columns.tags_code[row])
        units.queue_code[place] = code
        units.queue_offset[place] = queue_offset
        units.store_timestamp_ms[place] = columns.store_timestamp_ms[row]
        follows = queue_offset == last_offsets[code] + 1 and queue_offset > 0
        units.begins[place] = not follows or queue_offset % units_in_file == 0
        last_offsets[code] = queue_offset


class UnitSorter:
    """Takes the chunks of a range, which it keeps until they are sorted."""

    def __init__(self) -> None:
        self._chunks: list[DispatchColumns] = []
        self._counts = np.zeros(1024, np.int64)

    def add(self, columns: DispatchColumns) -> None:
        """Take a chunk whose arrays stay as they are."""
        if len(columns.queue_code) == 0:
            return
        while len(self._counts) <= int(columns.queue_code.max()):
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        count_units(columns, self._counts)
        self._chunks.append(columns)

    def sort(self, queue_file_bytes: int) -> SortedUnits:
        """Return all units, sorted by the code of their queue, and forget the chunks."""
        total = int(self._counts.sum())
        units = SortedUnits(
            np.empty(total * ENTRY_BYTES, np.uint8),
            np.empty(total, np.int32),
            np.empty(total, np.int64),
            np.empty(total, np.int64),
            np.empty(total, np.bool_),
        )
        places = np.cumsum(self._counts) - self._counts
        last_offsets = np.full_like(places, _BEFORE_ANY)
        for columns in self._chunks:
            place_sorted(columns, places, last_offsets, queue_file_bytes // ENTRY_BYTES, units)
        self._chunks.clear()
        return units
