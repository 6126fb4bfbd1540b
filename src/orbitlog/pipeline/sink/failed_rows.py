"""Failed rows: a side table of rows that no broker accepts, as Parquet files with the reason of each."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.sink.row_ids import WriteIdentity
from orbitlog.pipeline.sink.sink_columns import FailedRow
from orbitlog.pipeline.sink.sink_files import SinkFiles

_SHOWN_MAX = 300


class RowRefused(OrbitlogError):
    """A row is not a valid message, and there is no table for failed rows."""


def write_failed_rows(path: str | None, identity: WriteIdentity, failed: Sequence[FailedRow]) -> None:
    """Write the rows of a task to the side table; raise `RowRefused` if there is none.

    The name of the file follows from write, epoch and partition, so a repeated task replaces its file.
    """
    if not failed:
        return
    if path is None:
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise RowRefused(
            f"row {failed[0].index} of a batch cannot be sent: {failed[0].why[:_SHOWN_MAX]}{more};"
            " option failedRowsPath collects such rows in a table"
        )
    rows = pa.Table.from_batches([row.batch.slice(row.index, 1) for row in failed])
    added = {
        "error": pa.array([row.why[:_SHOWN_MAX] for row in failed], pa.string()),
        "writeId": pa.repeat(pa.scalar(identity.write_id, pa.string()), len(failed)),
        "epoch": pa.repeat(pa.scalar(identity.epoch, pa.int64()), len(failed)),
        "partition": pa.repeat(pa.scalar(identity.partition, pa.int32()), len(failed)),
    }
    for name, column in added.items():
        rows = rows.append_column(f"_{name}", column)
    output = io.BytesIO()
    pq.write_table(rows, output)
    name = f"failed-{identity.write_id}-{identity.epoch:08d}-{identity.partition:05d}.parquet"
    SinkFiles(path).write(name, output.getvalue())
