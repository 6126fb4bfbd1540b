"""Row ids: message ids that follow from the content of a row, so that a repeated row is recognised at the broker.

The id of a row is a hash of the write, the epoch, the partition, the content, and the number of equal rows before it in
the partition. It does not depend on the order of rows, which Spark may change after a shuffle. Ids have the layout of
Java's `MessageClientIDSetter`: bytes 10 to 13 are a time within the month, which tools use to narrow a search. They are
0, the start of the month.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitlog.kernels.rows.row_members import (
    ID_CHARACTERS,
    count_equal,
    hash_repeated,
    hash_rows,
    move_slots,
    scratch_for,
    write_ids,
)
from orbitlog.pipeline.sink.write_identity import WriteIdentity

_ACCUMULATOR = 1 << 64
ROOM_ROWS_MIN = 2048
"""Rows for which a new table has room."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ByteRanges:
    """A value of each row: from `starts` to before `stops` in `data`."""

    data: Bytes
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self.stops - self.starts


def constant_bytes(data: bytes | pa.Buffer) -> Bytes:
    """Return bytes as an array that cannot be written, so that kernels are compiled for one kind of array only."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def joined_ranges(values: list[bytes]) -> ByteRanges:
    """Return one range for each value."""
    ends = np.fromiter(map(len, values), np.int64, len(values)).cumsum()
    return ByteRanges(constant_bytes(b"".join(values)), np.concatenate((ends[:1] * 0, ends[:-1])), ends)


def repeated_range(value: bytes, count: int) -> ByteRanges:
    """Return the same range for all rows."""
    return ByteRanges(constant_bytes(value), np.zeros(count, np.int64), np.full(count, len(value), np.int64))


class RowIds:
    """Ids of the rows of one partition, and a digest of all of them that does not depend on their order.

    The hashed content of a row is its values in the order of their column names, then its topic, each with its length
    before it. The body is the first: no other name of a column precedes it.
    """

    def __init__(self, identity: WriteIdentity) -> None:
        self._start = constant_bytes(identity.text.encode())
        self._slots = np.zeros((2 * ROOM_ROWS_MIN, 2), np.uint64)
        self._used = 0
        self.count = 0
        self._sum = 0

    def assign(
        self, bodies: ByteRanges, around: tuple[bytes, bytes], others: ByteRanges, is_counted: npt.NDArray[np.bool_]
    ) -> Bytes:
        """Return the ids of rows as ASCII; those of rows that are not counted have no meaning.

        `around` are bytes that precede and follow each body in the hashed content, `others` are all other values.
        """
        rows = len(bodies.starts)
        if not rows:
            return np.empty((0, ID_CHARACTERS), np.uint8)
        before, after = map(constant_bytes, around)
        room = int(bodies.lengths.max()) + int(others.lengths.max()) + sum(map(len, around))
        scratch = scratch_for(self._start, room)
        hashes = np.empty((rows, 2), np.uint64)
        hash_rows(
            *(self._start, before, after, bodies.data, bodies.starts, bodies.stops),
            *(others.data, others.starts, others.stops, scratch, hashes),
        )
        self.make_room(rows)
        numbers = np.empty(rows, np.uint64)
        self._used += count_equal(self._slots, hashes, is_counted, numbers)
        if numbers.any():
            hash_repeated(self._start, numbers, scratch, hashes)
        self.count += int(is_counted.sum())
        self._sum = (self._sum + int(hashes[is_counted, 0].byteswap().sum(dtype=np.uint64))) % _ACCUMULATOR
        ids = np.empty((rows, ID_CHARACTERS), np.uint8)
        write_ids(hashes, ids)
        return ids

    @property
    def digest(self) -> str:
        """The same for the same rows in any order."""
        return f"{self.count}:{self._sum:016x}"

    def make_room(self, rows: int) -> None:
        """Make room for more rows; at least half of the slots stay empty."""
        slots = len(self._slots)
        while slots < 2 * (self._used + rows):
            slots *= 2
        if slots > len(self._slots):
            larger = np.zeros((slots, 2), np.uint64)
            move_slots(self._slots, larger)
            self._slots = larger


def stable_bytes(name: str, value: Any) -> bytes:
    """Return bytes that are the same for the same value of a column in every process, with their length before them."""
    raw = value if isinstance(value, bytes) else printed(name, value)
    return b"%d:%b" % (len(raw), raw)


def printed(name: str, value: Any) -> bytes:
    """Return the bytes of a value that is not bytes itself."""
    return repr((name, sorted(value) if name == "properties" and value else value)).encode(errors="surrogatepass")
