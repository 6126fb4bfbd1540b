"""Delta export: one Delta transaction per batch, with the batch number as app transaction.

Files of an uncommitted batch are not part of the table, even if they exist in its directory. The transaction that adds
the files also records the batch number, so a batch is in the table exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from orbitlog.pipeline.export.export_plan import ExportBatch, ExportError
from orbitlog.pipeline.runtime.location_files import LocationFiles

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

_APP = "orbitlog-export"


class DeltaExport:
    """Export target: a directory with a Delta log."""

    is_hidden, by_day = False, True

    def __init__(self, target: Path | str, schema: pa.Schema) -> None:
        self._target = LocationFiles(target).uri
        self._schema = schema.append(pa.field("dt", pa.date32()))

    def committed(self) -> int:
        table = self._table()
        version = None if table is None else table.transaction_version(_APP)
        return -1 if version is None else int(version)

    def commit(self, batch: ExportBatch, files: Sequence[dict[str, Any]]) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction

        table = self._table()
        if table is None:
            table = DeltaTable.create(
                self._target, self._schema, partition_by=["dt"], name=self._target.rpartition("/")[2]
            )
        else:
            table = self._with_all_columns(table)
        now_ms = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [add_action(file, now_ms, changes_data=True) for file in files]
        properties = CommitProperties(
            custom_metadata={"orbitlogRange": batch.range_id},
            app_transactions=[Transaction(_APP, batch.number)],
        )
        table.create_write_transaction(actions, "append", table.schema(), ["dt"], commit_properties=properties)

    def _with_all_columns(self, table: DeltaTable) -> DeltaTable:
        """Add the columns that the schema has since gained, in a version of its own; rows so far have null in them."""
        from deltalake import DeltaTable, Schema

        present = {field.name for field in table.schema().fields}
        missing = [field for field in Schema.from_arrow(self._schema).fields if field.name not in present]
        if not missing:
            return table
        table.alter.add_columns(missing)
        return DeltaTable(self._target)

    def _table(self) -> DeltaTable | None:
        return open_delta(self._target)


def add_action(file: dict[str, Any], now_ms: int, *, changes_data: bool) -> AddAction:
    """Return the action that adds a file, as its task reported it."""
    from deltalake.transaction import AddAction

    return AddAction(
        path=file["path"],
        size=file["size_bytes"],
        partition_values={"dt": file["day"]},
        modification_time=now_ms,
        data_change=changes_data,
        stats=orjson.dumps({"numRecords": file["rows"]}).decode(),
    )


def open_delta(target: str) -> DeltaTable | None:
    """Return the current version of a Delta table, or None."""
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise ExportError("Delta tables need the package deltalake: pip install 'orbitlog[lake]'") from error
    return DeltaTable(target) if DeltaTable.is_deltatable(target) else None
