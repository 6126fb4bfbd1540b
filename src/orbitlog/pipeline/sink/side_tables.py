"""Side tables: rows that no broker accepts, with the reason, and a record of the rows that were sent."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from orbitlog.errors import OrbitlogError
from orbitlog.formats.records import properties
from orbitlog.pipeline.runtime.location_files import LocationFiles
from orbitlog.pipeline.sink.encoded_rows import FailedRow, SinkRow
from orbitlog.pipeline.sink.sink_columns import SIDE_PREFIX
from orbitlog.pipeline.sink.write_identity import WriteIdentity

_SHOWN_MAX = 300


class RowRefused(OrbitlogError):
    """A row is not a valid message, and there is no table for failed rows."""


def write_failed_rows(path: str | None, identity: WriteIdentity, failed: Sequence[FailedRow]) -> None:
    """Write the rows of a task to the side table; raise `RowRefused` without one.

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
        "_error": pa.array([row.why[:_SHOWN_MAX] for row in failed], pa.string()),
        "_writeId": pa.repeat(pa.scalar(identity.write_id, pa.string()), len(failed)),
        "_epoch": pa.repeat(pa.scalar(identity.epoch, pa.int64()), len(failed)),
        "_partition": pa.repeat(pa.scalar(identity.partition, pa.int32()), len(failed)),
    }
    _write_table(path, "failed", identity, rows, added)


@dataclass(frozen=True, slots=True)
class SentRow:
    """A row that a broker has; queue and offset are unknown if it was found there by its id."""

    row: SinkRow
    broker_name: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None


def write_sent_rows(path: str | None, identity: WriteIdentity, sent: Sequence[SentRow]) -> None:
    """Record the rows of a task, without bodies and properties; a repeated task replaces its file."""
    if path is None or not sent:
        return
    batches = [item.row.rows.batch.slice(item.row.rows.first + item.row.index, 1) for item in sent]
    rows = pa.Table.from_batches(batches)
    rows = rows.select([name for name in rows.column_names if name.startswith(SIDE_PREFIX)])
    keys = [properties.decode_properties(item.row.properties_raw).get(properties.KEYS) for item in sent]
    added = {
        "topic": pa.array([item.row.topic for item in sent], pa.string()),
        "uniqKey": pa.array([item.row.unique_id for item in sent], pa.string()),
        "keys": pa.array(keys, pa.string()),
        "brokerName": pa.array([item.broker_name for item in sent], pa.string()),
        "queueId": pa.array([item.queue_id for item in sent], pa.int32()),
        "queueOffset": pa.array([item.queue_offset for item in sent], pa.int64()),
    }
    _write_table(path, "sent", identity, rows, added)


def _write_table(path: str, kind: str, identity: WriteIdentity, rows: pa.Table, added: dict[str, pa.Array]) -> None:
    columns = [*rows.columns, *added.values()]
    output = io.BytesIO()
    pq.write_table(pa.table(columns, names=[*rows.column_names, *added]), output)
    name = f"{kind}-{identity.write_id}-{identity.epoch:08d}-{identity.partition:05d}.parquet"
    LocationFiles(path).write(name, output.getvalue())
