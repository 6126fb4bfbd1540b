"""Joined reads: copies the records of queue units one after another, the response to a pull, in one kernel call.

The twin of the loop in `store.reads.queue_reader`, for units of one CommitLog file without a filter. It stops at the
first unit that the loop would not take, or that needs another file: the loop continues there.
"""

from __future__ import annotations

from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QUEUE_ENTRY
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, RECORD_PREFIX
from orbitlog.kernels.arrays import np
from orbitlog.kernels.jit import short_kernel
from orbitlog.kernels.unaligned import copy_bytes, load_i32, load_i64, load_u32

_UNIT_OFFSET, _UNIT_SIZE = (QUEUE_ENTRY.position(name) for name in ("physical_offset", "size_bytes"))
_SIZE, _MAGIC, _OFFSET = (RECORD_PREFIX.position(name) for name in ("total_size", "magic", "physical_offset"))
_V1, _V2 = np.uint32(MAGIC_V1), np.uint32(MAGIC_V2)
_ROOM_MIN = 64 * 1024


@short_kernel
def copy_records(units, log, base, first, end, count_max, room_bytes, target):
    """Copy the records of units while they fit into `room_bytes`; return their number and their bytes.

    `log` is the file that starts at the physical offset `base`; records are taken from `first` up to `end`.
    """
    source, queue, to = log.ctypes.data, units.ctypes.data, target.ctypes.data
    low, high = max(np.int64(base), np.int64(first)), min(np.int64(end), base + np.int64(log.shape[0]))
    room = min(np.int64(room_bytes), np.int64(target.shape[0]))
    filled, count = np.int64(0), np.int64(0)
    position, stop = np.int64(0), min(np.int64(units.shape[0]) // ENTRY_BYTES, np.int64(count_max)) * ENTRY_BYTES
    while position < stop:
        physical_offset = load_i64(queue, position + _UNIT_OFFSET)
        size = np.int64(load_i32(queue, position + _UNIT_SIZE))
        if size < RECORD_BYTES_MIN or physical_offset < low or physical_offset > high - size or filled + size > room:
            break
        at = physical_offset - base
        magic = load_u32(source, at + _MAGIC)
        if load_i32(source, at + _SIZE) != size or load_i64(source, at + _OFFSET) != physical_offset:
            break
        if magic != _V1 and magic != _V2:
            break
        copy_bytes(to, filled, source, at, size)
        filled += size
        count += 1
        position += ENTRY_BYTES
    return count, filled


class JoinedReader:
    """Reads records into a buffer that is reused; for one thread."""

    def __init__(self) -> None:
        self._make_room(_ROOM_MIN)

    def _make_room(self, size_bytes: int) -> None:
        self._target = np.empty(size_bytes, np.uint8)
        self._view = self._target.data

    def load(self) -> None:
        """Load the kernel: the first call compiles it or reads compiled code from the cache."""
        self.read(bytes(ENTRY_BYTES), memoryview(b""), 0, 0, 0, 1, 0)

    def read(
        self, units: bytes, log: memoryview, base: int, first: int, end: int, count_max: int, bytes_max: int
    ) -> tuple[int, bytes]:
        """Return the number of records taken, and their bytes; see `copy_records`."""
        if bytes_max > len(self._target):
            self._make_room(bytes_max)
        entries = np.frombuffer(units, np.uint8)
        count, size = copy_records(
            entries, np.frombuffer(log, np.uint8), base, first, end, count_max, bytes_max, self._target
        )
        return count, bytes(self._view[:size])
