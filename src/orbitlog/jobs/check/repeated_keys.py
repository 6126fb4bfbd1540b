"""Keys that an index file holds twice in a row, although the log has their message once.

A killed Java broker indexes the last message of the files that it kept a second time: it skips messages before the end
offset of the last file, not the one at that offset. Such a file is sound.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.dispatch import DispatchColumns


class Held(NamedTuple):
    """The messages of an index file, in order, and the number of its entries for each."""

    physical_offsets: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, entries: npt.NDArray[np.void]) -> Held:
        """Count the entries; once a file, because it sorts them."""
        return cls(*np.unique(entries["physical_offset"], return_counts=True))


def with_repeats(columns: DispatchColumns, file: Held) -> DispatchColumns:
    """Return the rows with each message as often as the file has all of its keys, at least once."""
    counts = np.diff(columns.key_ends, prepend=0)
    if not len(file.counts) or not len(counts):
        return columns
    place = np.minimum(np.searchsorted(file.physical_offsets, columns.physical_offset), len(file.counts) - 1)
    is_there = file.physical_offsets[place] == columns.physical_offset
    held = file.counts[place] * is_there.astype(np.int64)
    times = np.full(len(counts), 1, np.int64)
    for row in np.flatnonzero((counts > 0) & (held > counts)).tolist():
        if held[row] % counts[row] == 0:
            times[row] = held[row] // counts[row]
    rows = np.repeat(np.arange(len(counts)), times)
    if len(rows) == len(counts):
        return columns
    key_counts = counts[rows]
    key_ends = np.cumsum(key_counts)
    # For each key of the result, its place among the keys of the log.
    starts = columns.key_ends[rows] - key_counts
    keys = np.repeat(starts - (key_ends - key_counts), key_counts) + np.arange(int(key_ends[-1]))
    return DispatchColumns._make((*(column[rows] for column in columns[:-2]), key_ends, columns.key_hashes[keys]))
