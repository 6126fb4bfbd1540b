"""Streaming source of the dispatch query: ranges of a live log with the queue units and index keys of their messages.

An offset is `{"phys": n}`, the physical offset of a record boundary. A partition is a range; the task that reads it
returns one row: queue units and key hashes as packed columns (`store.derived.derived_range`). No message crosses into
the JVM, and no task writes to the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from orbitlog.pipeline.dispatch.dispatch_ranges import DispatchPlanner, DispatchRange

FORMAT_NAME = "orbitlog-dispatch"
_SCHEMA = "start long, stop long, derived_to long, rows long, keys long, queues string, columns binary"


class DispatchSource(DataSource):
    """Used only by `pipeline.dispatch.dispatch_query`: the reading process must hold the dispatch lease."""

    @classmethod
    def name(cls) -> str:
        return FORMAT_NAME

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return DispatchStreamReader({name: str(self.options[name]) for name in _OPTIONS})


_OPTIONS = ("store", "from", "settings", "maxbytes", "rangebytes")


class DispatchStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in a Python process next to the driver, and derives ranges in workers."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._target: int | None = None
        self._planner: DispatchPlanner | None = None

    def _plan(self) -> DispatchPlanner:
        from orbitlog.pipeline.dispatch.dispatch_ranges import DispatchPlanner
        from orbitlog.store.dispatch.lease_settings import config_of

        if self._planner is None:
            options = self._options
            root = Path(options["store"])
            config = config_of(json.loads(options["settings"]), root)
            limits = int(options["maxbytes"]), int(options["rangebytes"])
            self._planner = DispatchPlanner(config.paths_of(root), config.geometry.segment_bytes, *limits)
        return self._planner

    def initialOffset(self) -> dict[str, int]:
        return {"phys": int(self._options["from"])}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()  # a batch must end at a record boundary, so `maxbytes` limits it instead

    def prepareForTriggerAvailableNow(self) -> None:
        # availableNow must end: the log keeps growing, so the end is fixed before the first batch.
        self._target = self._plan().confirmed_to()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        planner = self._plan()
        confirmed_to = planner.confirmed_to()
        if self._target is not None:
            confirmed_to = min(confirmed_to, self._target)
        return {"phys": planner.end(start["phys"], confirmed_to)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(log_range) for log_range in self._plan().ranges(start["phys"], end["phys"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from orbitlog.pipeline.runtime.worker_setup import set_up_worker

        set_up_worker()
        yield _derive(partition.value, Path(self._options["store"]), json.loads(self._options["settings"]))


def _derive(log_range: DispatchRange, root: Path, settings: dict[str, str]) -> pa.RecordBatch:
    import pyarrow as pa

    from orbitlog.store.derived.derived_range import derive_range, pack_columns
    from orbitlog.store.dispatch.lease_settings import config_of
    from orbitlog.storefiles.mapped_view import mapped_view

    config = config_of(settings, root)
    with mapped_view(config.paths_of(root).find_segment(log_range.base)) as view:
        derived = derive_range(view, log_range.base, log_range.start, log_range.stop, config.rules)
    columns = derived.columns
    row = {
        "start": derived.start,
        "stop": derived.stop,
        "derived_to": derived.derived_to,
        "rows": len(columns.physical_offset),
        "keys": len(columns.key_hashes),
        "queues": json.dumps(derived.queues),
        "columns": pack_columns(columns),
    }
    kinds = [pa.int64()] * 5 + [pa.string(), pa.binary()]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], kind) for value, kind in zip(row.values(), kinds, strict=True)], names=list(row)
    )
