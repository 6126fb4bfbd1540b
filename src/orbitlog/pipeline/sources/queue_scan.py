"""Queue scan: reads a range of a ConsumeQueue in a worker, then the records its units point to, as decoded batches.

Tags are tested twice, as in RocketMQ: by the hash in the unit, then by the text in the record. A unit that does not
point to an intact record of its queue means lost data, which fails the query unless failOnDataLoss=false.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.java import INT_MAX, INT_MIN, string_hash
from orbitlog.formats.names import LMQ_PREFIX
from orbitlog.kernels.listed_records import ListedDecoder
from orbitlog.kernels.row_dtypes import QUEUE_UNIT_DTYPE
from orbitlog.pipeline.sources.read_plan import QueueRange, StoreShape
from orbitlog.pipeline.sources.rocksdb_queue import adjacent_units
from orbitlog.pipeline.sources.source_errors import DataLoss
from orbitlog.storefiles.confined.regular_files import open_below
from orbitlog.storefiles.rocksdb.databases import open_database
from orbitlog.storefiles.rocksdb.rocksdb_queues import queue_database
from orbitlog.storefiles.store_paths import StorePaths

# Columns that identify a record: they must match the queue unit that points to it.
_UNITS_READ_AT_ONCE = 65_536
IDENTITY_COLUMNS = ("topic", "queue_id", "queue_offset")


@dataclass(frozen=True, slots=True)
class ScanRules:
    """Scan settings: the tags to select, whether to check CRCs, and whether lost data is an error."""

    tags: tuple[str, ...] = ()
    check_crc: bool = True
    fail_on_data_loss: bool = True


def record_bytes(queue_range: QueueRange) -> int:
    """Return the total size of the records of a range; reads only its units."""
    scan = QueueScan(list(IDENTITY_COLUMNS), ScanRules(fail_on_data_loss=False))
    return sum(
        int(units["size_bytes"][scan.selected(units)].sum(dtype=np.int64)) for _, units in scan.units(queue_range)
    )


class QueueScan:
    """Reads ranges with one decoder; keeps the most recently read segment mapped."""

    def __init__(self, columns: list[str], rules: ScanRules) -> None:
        wanted = [*columns, "tags"] if rules.tags and "tags" not in columns else columns
        self._decoder = ListedDecoder(wanted)
        self._rules = rules
        self._tag_codes = np.array([string_hash(tag) for tag in rules.tags], np.int64)
        self._tags = pa.array(rules.tags, pa.string())
        self._mapped: tuple[tuple[str, int], memoryview] | None = None

    def read(self, ranges: Sequence[QueueRange]) -> Iterator[tuple[QueueRange, pa.RecordBatch]]:
        """Yield the messages of ranges in order, with the range that each batch belongs to."""
        for queue_range in ranges:
            for batch in self.batches(queue_range):
                yield queue_range, batch

    def batches(self, queue_range: QueueRange) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range in order."""
        for first_offset, units in self.units(queue_range):
            selected = self.selected(units)
            queue_offsets = first_offset + selected
            offsets = units["physical_offset"][selected].astype(np.int64)
            sizes = units["size_bytes"][selected].astype(np.int32)
            bases = offsets - offsets % queue_range.store.segment_bytes
            # Physical offsets ascend within a queue, so the units of one segment are adjacent.
            edges = np.flatnonzero(np.diff(bases)) + 1
            for run in np.split(np.arange(len(bases)), edges) if len(bases) else []:
                base = int(bases[run[0]])
                yield from self._records(queue_range, base, offsets[run] - base, sizes[run], queue_offsets[run])

    def units(self, queue_range: QueueRange) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """Yield the units of a range in pieces, each with the queue offset of the first."""
        database = queue_database(Path(queue_range.store.root))
        pieces = self._file_pieces(queue_range) if database is None else self._stored_pieces(queue_range, database)
        for queue_offset, count, raw in pieces:
            whole = len(raw) // ENTRY_BYTES
            if whole:
                yield queue_offset, np.frombuffer(raw, QUEUE_UNIT_DTYPE, whole)
            if whole < count:
                self._lost(queue_range, queue_offset + whole, f"{count - whole} ConsumeQueue units are missing")

    def _file_pieces(self, queue_range: QueueRange) -> Iterator[tuple[int, int, bytes]]:
        """Yield the units of each queue file: the queue offset of the first, their number, and what the file has."""
        file_bytes = queue_range.store.queue_file_bytes
        directory = Path(queue_range.store.root) / tree.queue_directory(queue_range.topic, queue_range.queue_id)
        queue_offset = queue_range.start
        while queue_offset < queue_range.stop:
            base = queue_offset * ENTRY_BYTES // file_bytes * file_bytes
            count = min((base + file_bytes) // ENTRY_BYTES, queue_range.stop) - queue_offset
            try:
                path = directory / tree.offset_file_name(base)
                with os.fdopen(open_below(Path(queue_range.store.root), path, os.O_RDONLY), "rb") as file:
                    file.seek(queue_offset * ENTRY_BYTES - base)
                    raw = file.read(count * ENTRY_BYTES)
            except FileNotFoundError:
                raw = b""
            yield queue_offset, count, raw
            queue_offset += count

    def _stored_pieces(self, queue_range: QueueRange, directory: Path) -> Iterator[tuple[int, int, bytes]]:
        """Yield the same from RocksDB; a unit that is missing there ends the range."""
        with open_database(directory) as database:
            queue_offset, stop = queue_range.start, queue_range.stop
            units = adjacent_units(database, queue_range.topic, queue_range.queue_id, queue_offset, stop)
            while queue_offset < stop:
                raw = b"".join(islice(units, _UNITS_READ_AT_ONCE))
                is_missing = len(raw) < min(_UNITS_READ_AT_ONCE, stop - queue_offset) * ENTRY_BYTES
                count = stop - queue_offset if is_missing else len(raw) // ENTRY_BYTES
                yield queue_offset, count, raw
                queue_offset += count

    def selected(self, units: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        """Return the indices of units that are not placeholders and whose tag hash is requested."""
        sizes = units["size_bytes"]
        wanted = (sizes > 0) & (sizes != INT_MAX)
        if len(self._tag_codes):
            codes = units["tags_code"].astype(np.int64)
            # A code outside of 32 bits is not a hash but the address of an extension unit or a delivery time:
            # the record's tag text decides.
            wanted &= np.isin(codes, self._tag_codes) | (codes < INT_MIN) | (codes > INT_MAX)
        return np.flatnonzero(wanted)

    def _records(
        self,
        queue_range: QueueRange,
        base: int,
        positions: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32],
        queue_offsets: npt.NDArray[np.int64],
    ) -> Iterator[pa.RecordBatch]:
        view = self._segment(queue_range, base)
        if view is None:
            self._lost(queue_range, int(queue_offsets[0]), f"segment {tree.offset_file_name(base)} was deleted")
            return
        decoded = self._decoder.decode_listed(
            view, positions, sizes, base_physical_offset=base, check_crc=self._rules.check_crc
        )
        for part in decoded:
            if part.batch is None:
                offset = base + int(positions[part.first])
                self._lost(queue_range, int(queue_offsets[part.first]), f"no intact record at physical offset {offset}")
                continue
            expected = queue_offsets[part.first : part.first + part.batch.num_rows]
            yield self._with_right_tags(self._of_queue(queue_range, part.batch, expected))

    def _of_queue(
        self, queue_range: QueueRange, batch: pa.RecordBatch, queue_offsets: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        """Drop records of other queues as lost data; units of a light queue (LMQ) point to records of other topics."""
        if queue_range.topic.startswith(LMQ_PREFIX):
            own = {
                "topic": pa.repeat(pa.scalar(queue_range.topic), batch.num_rows),
                "queue_id": pa.repeat(pa.scalar(queue_range.queue_id, pa.int32()), batch.num_rows),
                "queue_offset": pa.array(queue_offsets, pa.int64()),
            }
            arrays = [own.get(name, batch.column(name)) for name in batch.schema.names]
            return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
        stated = batch.column("queue_offset").to_numpy(zero_copy_only=True)
        right = (stated == queue_offsets) & (
            batch.column("queue_id").to_numpy(zero_copy_only=True) == queue_range.queue_id
        )
        right &= pc.equal(batch.column("topic"), queue_range.topic).to_numpy(zero_copy_only=False)
        if right.all():
            return batch
        wrong = int(np.flatnonzero(~right)[0])
        self._lost(queue_range, int(queue_offsets[wrong]), "its ConsumeQueue unit points to a message of another queue")
        return batch.filter(pa.array(right))

    def _with_right_tags(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._rules.tags:
            return batch
        return batch.filter(pc.is_in(batch.column("tags"), value_set=self._tags))

    def _segment(self, queue_range: QueueRange, base: int) -> memoryview | None:
        segment = queue_range.store.root, base
        if self._mapped is None or self._mapped[0] != segment:
            self._mapped = None
            path = _paths_of(queue_range.store).find_segment(base)
            try:
                # Unmapped when the last buffer over it is released, also after a reader that stops early.
                self._mapped = segment, np.memmap(path, np.uint8, mode="r").data
            except (FileNotFoundError, ValueError):  # deleted, or empty
                return None
        return self._mapped[1][: queue_range.store.segment_bytes]

    def _lost(self, queue_range: QueueRange, queue_offset: int, why: str) -> None:
        if self._rules.fail_on_data_loss:
            raise DataLoss(
                f"message {queue_offset} of {queue_range.topic}, queue {queue_range.queue_id}"
                f" at {queue_range.shape.broker_name}:"
                f" {why}; option failOnDataLoss=false skips it"
            )


@lru_cache(maxsize=64)
def _paths_of(shape: StoreShape) -> StorePaths:
    return shape.paths
