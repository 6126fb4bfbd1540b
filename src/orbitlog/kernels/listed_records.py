"""Listed records: decodes records at given positions of a segment, such as those of a ConsumeQueue, into Arrow batches.

`arrow_batches` walks from record to record; here a list gives position and size of each. Every record is checked before
it is read, and one that does not match the list is reported and skipped: the caller decides what that means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitlog.formats.records.message import Bytes
from orbitlog.kernels.arrow_batches import ArrowDecoder, BatchParts
from orbitlog.kernels.columns import fill_row
from orbitlog.kernels.gather import copy_rows
from orbitlog.kernels.jit import kernel
from orbitlog.kernels.record_walk import (
    DAMAGE,
    MESSAGE,
    OUTPUT_FULL,
    RANGE_END,
    SourceBytes,
    is_intact,
    look_at,
)
from orbitlog.kernels.unaligned import prefetch

_AHEAD = 4


@kernel
def fill_listed(address, places, sizes, first, end, base, check_crc, bytes_max, columns, body, topic, properties):
    """Fill rows from the listed records `first` on; returns (rows, next of the list, why it stopped).

    DAMAGE: the next record does not match the list. OUTPUT_FULL without a row: one record is larger than the buffers.
    """
    rows, count = columns.position.shape[0], places.shape[0]
    for part in (body, topic, properties):
        if part.wanted:
            part.ends[0] = 0
    row, filled = 0, np.int64(0)
    for number in range(first, count):
        if row == rows:
            return row, number, OUTPUT_FULL
        position = places[number]
        if number + _AHEAD < count:
            prefetch(address, places[number + _AHEAD])
            prefetch(address, places[number + _AHEAD] + 64)
        if position < 0 or position > end:
            return row, number, DAMAGE
        kind, parts = look_at(address, position, end, base, True, 0)
        if kind != MESSAGE or parts[0] != sizes[number]:
            return row, number, DAMAGE
        if not is_intact(address, position, parts, True, check_crc):
            return row, number, DAMAGE
        if row > 0 and filled + parts[0] > bytes_max:
            return row, number, OUTPUT_FULL
        fill_row(address, row, position, parts, columns)
        kept = copy_rows(address, columns.body_position, columns.body_length, row, row + 1, body)
        kept = copy_rows(address, columns.topic_position, columns.topic_length, row, kept, topic)
        kept = copy_rows(address, columns.properties_position, columns.properties_length, row, kept, properties)
        if kept == row:
            return row, number, OUTPUT_FULL
        filled += parts[0]
        row += 1
    return row, count, RANGE_END


@dataclass(frozen=True, slots=True)
class ListedBatch:
    """Rows for the listed records from `first` on; without a `batch` if that record does not match the list."""

    first: int
    batch: pa.RecordBatch | None


class ListedDecoder(ArrowDecoder):
    """Decodes listed records into record batches with the chosen columns."""

    def decode_listed(
        self,
        buffer: Bytes,
        places: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32],
        *,
        base_physical_offset: int,
        check_crc: bool = True,
    ) -> Iterator[ListedBatch]:
        """Yield the records in the order of the list; `places` count from the start of the buffer."""
        assert len(places) == len(sizes)
        source = SourceBytes(buffer, base_physical_offset)
        number = 0
        while number < len(places):
            header = self._fresh_header()
            copies = {name: self._copied_part(name) for name in ("body", "topic", "properties_raw")}
            rows, following, why = fill_listed(
                source.address,
                places,
                sizes,
                number,
                len(source),
                source.base,
                check_crc,
                self._batch_bytes,
                header,
                copies["body"],
                copies["topic"],
                copies["properties_raw"],
            )
            self._learn_room(source, int(places[following]) if why == OUTPUT_FULL else 0, why, rows, copies)
            if rows:
                yield ListedBatch(number, BatchParts(source, header, rows, copies).build(self.schema))
            number = following
            if why == DAMAGE:
                yield ListedBatch(number, None)
                number += 1
