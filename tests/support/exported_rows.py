"""Rows of exported tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from orbitlog.pipeline.export.iceberg_export import latest_metadata


def read_table(target: Path, table_format: str) -> list[dict[str, Any]]:
    """Read a table with an independent reader, in the order of queues."""
    if table_format == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(target).to_pyarrow_dataset().to_table()
    elif table_format == "iceberg":
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(str(latest_metadata(target))).scan().to_arrow()
    else:
        files = pa.dataset.dataset(target, format="parquet", partitioning="hive")
        # As Spark with `mergeSchema`: files of earlier runs may have fewer columns.
        schemas = [files.schema, *(fragment.physical_schema for fragment in files.get_fragments())]
        table = files.replace_schema(pa.unify_schemas(schemas)).to_table()
    rows = table.to_pylist()
    return sorted(rows, key=lambda row: (row["brokerName"], row["queueId"], row["queueOffset"]))


def places(target: Path, table_format: str) -> list[tuple[int, int]]:
    return [(row["queueId"], row["queueOffset"]) for row in read_table(target, table_format)]
