"""Range scan: reads queue ranges in a worker, from a store or over the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from orbitlog.pipeline.sources.queue_scan import QueueScan, ScanRules
from orbitlog.pipeline.sources.read_plan import StoreShape

if TYPE_CHECKING:
    import pyarrow as pa

    from orbitlog.pipeline.network.network_options import ClusterOptions
    from orbitlog.pipeline.sources.read_plan import QueueRange


class RangeScan(Protocol):
    """Reads ranges as decoded batches."""

    def read(self, ranges: Sequence[QueueRange]) -> Iterator[tuple[QueueRange, pa.RecordBatch]]:
        """Yield the messages of ranges in order, with the range that each batch belongs to."""
        ...


def open_scan(
    columns: list[str],
    rules: ScanRules,
    cluster: ClusterOptions | None = None,
    sql: str | None = None,
    *,
    has_stores: bool = False,
) -> RangeScan:
    """Return a scan of stores, or of a cluster if one is given, or of both."""
    if cluster is None:
        return QueueScan(columns, rules)
    from orbitlog.pipeline.network.cluster_session import session_of
    from orbitlog.pipeline.network.pulled_batches import NetworkScan

    network = NetworkScan(session_of(cluster), columns, rules, sql)
    return MixedScan(QueueScan(columns, rules), network) if has_stores else network


class MixedScan:
    """Reads each range from where the plan has placed it: the files of a store, or the broker."""

    def __init__(self, files: QueueScan, network: RangeScan) -> None:
        self._files, self._network = files, network

    def read(self, ranges: Sequence[QueueRange]) -> Iterator[tuple[QueueRange, pa.RecordBatch]]:
        """Yield the messages of ranges in order, with the range that each batch belongs to."""
        for is_stored, group in groupby(ranges, lambda item: isinstance(item.shape, StoreShape)):
            yield from (self._files if is_stored else self._network).read(list(group))
