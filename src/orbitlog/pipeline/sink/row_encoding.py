"""Row encoding: rows of record batches as members of requests, with deterministic ids."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from orbitlog.client.producer.outgoing import BODY_BYTES_MAX, body_bytes
from orbitlog.errors import ClientError
from orbitlog.formats.records import properties as props
from orbitlog.kernels.rows.row_members import is_plain_text
from orbitlog.pipeline.sink.encoded_rows import ID_PROPERTIES_BYTES, EncodedRows
from orbitlog.pipeline.sink.row_ids import ROOM_ROWS_MIN, ByteRanges, RowIds, joined_ranges, printed
from orbitlog.pipeline.sink.row_texts import RowTexts, ranges_of, texts_by_column, texts_by_row
from orbitlog.pipeline.sink.sink_columns import SinkColumns
from orbitlog.pipeline.sink.write_identity import WriteIdentity

_AROUND_TEXT = (b"('body', '", b"')")
# Limits of a step. While one step is sent, the next one is encoded, and both fit into the processor's cache. The second
# limit counts bytes of bodies; a larger body is a step of its own.
_STEP_ROWS, _STEP_BYTES = 1024, 2 << 20


class RowEncoder:
    """Encodes the rows of one partition."""

    def __init__(self, columns: SinkColumns, ids: RowIds) -> None:
        self._columns = columns
        self._ids = ids

    def steps(self, batch: pa.RecordBatch) -> Iterator[EncodedRows]:
        """Yield the rows of a batch with deterministic ids, as members of requests; invalid ones with the reason."""
        bodies = ranges_of(batch.column(self._columns.names["body"]))
        first = 0
        while first < batch.num_rows:
            fitting = int(bodies.stops.searchsorted(bodies.starts[first] + _STEP_BYTES, "right"))
            stop = min(max(fitting, first + 1), first + _STEP_ROWS, batch.num_rows)
            yield self._step(batch, first, batch.slice(first, stop - first))
            first = stop

    def _step(self, batch: pa.RecordBatch, first: int, rows: pa.RecordBatch) -> EncodedRows:
        columns = {name: rows.column(given) for name, given in self._columns.names.items()}
        column = columns.pop("body")
        texts = texts_by_column(columns, self._columns.topic, len(column))
        if texts is None:
            texts = texts_by_row(columns, self._columns.topic, len(column))
        bodies = ranges_of(column)
        is_null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        is_counted = texts.is_counted if is_null is None else texts.is_counted & ~is_null
        hashed, around = _hashed_bodies(column, bodies)
        row_ids = self._ids.assign(hashed, around, texts.others, is_counted)
        failures = {**_invalid(bodies, texts), **texts.failures}
        if is_null is not None:
            failures |= dict.fromkeys(np.flatnonzero(is_null).tolist(), "column body is null")
        return EncodedRows(batch, first, bodies, texts, row_ids, failures)


def run_kernels() -> None:
    """Run each kernel of the sink once, so that it is compiled before the first task."""
    ids, bodies = RowIds(WriteIdentity("w", 0, 0)), pa.array(["body", "body"])
    texts = texts_by_column({"tags": bodies}, "T", len(bodies))
    assert texts is not None
    ranges = ranges_of(bodies)
    assigned = ids.assign(ranges, _AROUND_TEXT, texts.others, texts.is_counted)
    ids.make_room(ROOM_ROWS_MIN)
    EncodedRows(pa.RecordBatch.from_arrays([bodies], ["body"]), 0, ranges, texts, assigned, {})


def _hashed_bodies(column: pa.Array, bodies: ByteRanges) -> tuple[ByteRanges, tuple[bytes, bytes]]:
    """Return what is hashed of bodies: bytes as they are, text as Python would print it."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return bodies, (b"", b"")
    if not len(column) or is_plain_text(bodies.data, bodies.starts[0], bodies.stops[-1]):
        return bodies, _AROUND_TEXT
    return joined_ranges([printed("body", body) for body in column.to_pylist()]), (b"", b"")


def _invalid(bodies: ByteRanges, texts: RowTexts) -> dict[int, str]:
    """Return why brokers would refuse rows, by their position."""
    failures: dict[int, str] = {}
    lengths, property_lengths = bodies.lengths, texts.properties.lengths + ID_PROPERTIES_BYTES
    for index in np.flatnonzero((lengths == 0) | (lengths > BODY_BYTES_MAX)).tolist():
        try:
            body_bytes(bytes(bodies.data[bodies.starts[index] : bodies.stops[index]]))
        except ClientError as error:
            failures[index] = str(error)
    for index in np.flatnonzero(property_lengths > props.PROPERTIES_BYTES_MAX).tolist():
        size_bytes = int(property_lengths[index])
        failures[index] = f"properties of {size_bytes} bytes are over the limit of {props.PROPERTIES_BYTES_MAX}"
    return failures
