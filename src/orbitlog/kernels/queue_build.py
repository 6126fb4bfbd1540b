"""Queue build: writes ConsumeQueue units from dispatch columns, each at the position of its queue offset.

A queue's offsets rise along the log, so almost every unit goes to the same file as the one before. The kernel runs
until a unit needs another file, the caller provides it, and the kernel continues. Writing the same units twice gives
the same bytes, so work may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, PRE_BLANK_RAW, QUEUE_ENTRY, check_queue_file_bytes
from orbitlog.kernels import COMPILED
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.dispatch import DispatchColumns, enters_queue
from orbitlog.kernels.jit import kernel
from orbitlog.kernels.unaligned import store_i32, store_i64

_ENTRY_BYTES = ENTRY_BYTES
_SIZE, _TAGS_CODE = QUEUE_ENTRY.position("size_bytes"), QUEUE_ENTRY.position("tags_code")
_NO_FILE = -1

OpenQueueFile = Callable[[int, int], npt.NDArray[np.uint8]]
"""Takes a queue code and the base of a file, gives the bytes of that file to write into."""


@kernel
def place_units(columns, row, file_bytes, file_bases, file_addresses):
    """Place the units of the rows from `row` on; returns the row whose file is not open, or the number of rows."""
    rows = columns.physical_offset.shape[0]
    while row < rows:
        if enters_queue(columns.sys_flag[row]):
            code = columns.queue_code[row]
            place = columns.queue_offset[row] * _ENTRY_BYTES - file_bases[code]
            if file_bases[code] < 0 or place < 0 or place >= file_bytes:
                return row
            store_i64(file_addresses[code], place, columns.physical_offset[row])
            store_i32(file_addresses[code], place + _SIZE, columns.size_bytes[row])
            store_i64(file_addresses[code], place + _TAGS_CODE, columns.tags_code[row])
        row += 1
    return row


def _no_addresses(count: int) -> Any:
    """Return room for addresses of files, which are memoryviews if kernels are not compiled."""
    return np.zeros(count, np.uintp) if COMPILED else [None] * count


class QueueBuilder:
    """Places units of many queues into files that `open_file` provides."""

    def __init__(self, file_bytes: int, open_file: OpenQueueFile) -> None:
        self._file_bytes = check_queue_file_bytes(file_bytes)
        self._open_file = open_file
        self._bases = np.full(1024, _NO_FILE, np.int64)
        self._addresses = _no_addresses(1024)
        self._open: dict[int, npt.NDArray[np.uint8]] = {}
        self._begun: set[int] = set()

    def add(self, columns: DispatchColumns) -> None:
        """Place the units of a chunk."""
        if len(columns.queue_code) == 0:
            return
        self._make_room(int(columns.queue_code.max()) + 1)
        row = 0
        while True:
            row = place_units(columns, row, self._file_bytes, self._bases, self._addresses)
            if row == len(columns.queue_code):
                return
            self._turn_to_file(int(columns.queue_code[row]), int(columns.queue_offset[row]))

    def _make_room(self, queues: int) -> None:
        while len(self._bases) < queues:
            self._bases = np.concatenate([self._bases, np.full_like(self._bases, _NO_FILE)])
            before, self._addresses = self._addresses, _no_addresses(len(self._bases))
            self._addresses[: len(before)] = before

    def _turn_to_file(self, code: int, queue_offset: int) -> None:
        if queue_offset < 0:
            raise ValueError(f"queue {code} has a message with queue offset {queue_offset}")
        position = queue_offset * ENTRY_BYTES % self._file_bytes
        base = queue_offset * ENTRY_BYTES - position
        file = self._open_file(code, base)
        if len(file) != self._file_bytes or not file.flags.c_contiguous or not file.flags.writeable:
            raise ValueError(f"a queue file has {self._file_bytes} writable bytes, not {len(file)}")
        if code not in self._begun:
            self._begun.add(code)
            file[:position] = np.frombuffer(PRE_BLANK_RAW * (position // ENTRY_BYTES), np.uint8)
        self._open[code] = file  # keeps the bytes alive while the kernel has their address
        self._bases[code] = base
        self._addresses[code] = file.ctypes.data
