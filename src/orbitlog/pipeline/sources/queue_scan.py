"""Reading a range of a queue in a worker: units, then the records they lead to, as decoded batches.

The tag is tested twice, as RocketMQ does: by its hash, which the unit holds, and then by its text. A unit that leads
to no intact record of its own queue means lost data; whether that ends the query is the user's choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitlog.errors import OrbitlogError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.java import INT_MAX, INT_MIN, string_hash
from orbitlog.formats.names import LMQ_PREFIX
from orbitlog.kernels.listed_records import ListedDecoder
from orbitlog.kernels.row_dtypes import QUEUE_UNIT_DTYPE
from orbitlog.pipeline.sources.read_plan import QueueRange, StoreShape
from orbitlog.storefiles.store_paths import StorePaths

# What every record is checked by: it must be of the queue that led to it.
CHECKED_BY = ("topic", "queue_id", "queue_offset")


class DataLoss(OrbitlogError):
    """Messages that were asked for are gone or damaged."""


@dataclass(frozen=True, slots=True)
class ScanRules:
    """How ranges are read: by which tags, with which checks, and whether lost data is an error."""

    tags: tuple[str, ...] = ()
    check_crc: bool = True
    fail_on_data_loss: bool = True


def record_bytes(found: QueueRange) -> int:
    """Return how many bytes the records of a range have; reads its units only."""
    scan = QueueScan(list(CHECKED_BY), ScanRules(fail_on_data_loss=False))
    return sum(int(units["size_bytes"][scan.chosen(units)].sum(dtype=np.int64)) for _, units in scan.units(found))


class QueueScan:
    """Reads ranges with one decoder; keeps the segment it read last mapped."""

    def __init__(self, columns: list[str], rules: ScanRules) -> None:
        wanted = [*columns, "tags"] if rules.tags and "tags" not in columns else columns
        self._decoder = ListedDecoder(wanted)
        self._rules = rules
        self._tag_codes = np.array([string_hash(tag) for tag in rules.tags], np.int64)
        self._tags = pa.array(rules.tags, pa.string())
        self._mapped: tuple[tuple[str, int], memoryview] | None = None

    def batches(self, found: QueueRange) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range in order."""
        for first_offset, units in self.units(found):
            chosen = self.chosen(units)
            queue_offsets = first_offset + chosen
            places = units["physical_offset"][chosen].astype(np.int64)
            sizes = units["size_bytes"][chosen].astype(np.int32)
            bases = places - places % found.shape.segment_bytes
            # Physical offsets rise within a queue, so there is one run for each segment.
            edges = np.flatnonzero(np.diff(bases)) + 1
            for run in np.split(np.arange(len(bases)), edges) if len(bases) else []:
                base = int(bases[run[0]])
                yield from self._records(found, base, places[run] - base, sizes[run], queue_offsets[run])

    def units(self, found: QueueRange) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """Yield units file by file, with the queue offset of the first of each."""
        file_bytes = found.shape.queue_file_bytes
        directory = Path(found.shape.root) / tree.queue_directory(found.topic, found.queue_id)
        queue_offset = found.start
        while queue_offset < found.stop:
            base = queue_offset * ENTRY_BYTES // file_bytes * file_bytes
            count = min((base + file_bytes) // ENTRY_BYTES, found.stop) - queue_offset
            try:
                with (directory / tree.offset_file_name(base)).open("rb") as file:
                    file.seek(queue_offset * ENTRY_BYTES - base)
                    raw = file.read(count * ENTRY_BYTES)
            except FileNotFoundError:
                raw = b""
            whole = len(raw) // ENTRY_BYTES
            if whole:
                yield queue_offset, np.frombuffer(raw, QUEUE_UNIT_DTYPE, whole)
            if whole < count:
                self._lost(found, queue_offset + whole, f"{count - whole} units of its ConsumeQueue are not there")
            queue_offset += count

    def chosen(self, units: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        """Leave out units that only fill room, and those whose tag is not asked for."""
        sizes = units["size_bytes"]
        wanted = (sizes > 0) & (sizes != INT_MAX)
        if len(self._tag_codes):
            codes = units["tags_code"].astype(np.int64)
            # A code that is no hash is the place of an extension unit or a delivery time: the text decides.
            wanted &= np.isin(codes, self._tag_codes) | (codes < INT_MIN) | (codes > INT_MAX)
        return np.flatnonzero(wanted)

    def _records(
        self,
        found: QueueRange,
        base: int,
        places: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32],
        queue_offsets: npt.NDArray[np.int64],
    ) -> Iterator[pa.RecordBatch]:
        view = self._segment(found, base)
        if view is None:
            self._lost(found, int(queue_offsets[0]), f"segment {tree.offset_file_name(base)} is not there any more")
            return
        decoded = self._decoder.decode_listed(
            view, places, sizes, base_physical_offset=base, check_crc=self._rules.check_crc
        )
        for part in decoded:
            if part.batch is None:
                place = base + int(places[part.first])
                self._lost(found, int(queue_offsets[part.first]), f"no intact record lies at physical offset {place}")
                continue
            expected = queue_offsets[part.first : part.first + part.batch.num_rows]
            yield self._with_right_tags(self._of_queue(found, part.batch, expected))

    def _of_queue(
        self, found: QueueRange, batch: pa.RecordBatch, queue_offsets: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        """Prove that records are those of the queue; a light queue leads to records of other topics."""
        if found.topic.startswith(LMQ_PREFIX):
            own = {
                "topic": pa.repeat(pa.scalar(found.topic), batch.num_rows),
                "queue_id": pa.repeat(pa.scalar(found.queue_id, pa.int32()), batch.num_rows),
                "queue_offset": pa.array(queue_offsets, pa.int64()),
            }
            arrays = [own.get(name, batch.column(name)) for name in batch.schema.names]
            return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
        stated = batch.column("queue_offset").to_numpy(zero_copy_only=True)
        right = (stated == queue_offsets) & (batch.column("queue_id").to_numpy(zero_copy_only=True) == found.queue_id)
        right &= pc.equal(batch.column("topic"), found.topic).to_numpy(zero_copy_only=False)
        if right.all():
            return batch
        wrong = int(np.flatnonzero(~right)[0])
        self._lost(found, int(queue_offsets[wrong]), "its ConsumeQueue unit leads to a message of another queue")
        return batch.filter(pa.array(right))

    def _with_right_tags(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._rules.tags:
            return batch
        return batch.filter(pc.is_in(batch.column("tags"), value_set=self._tags))

    def _segment(self, found: QueueRange, base: int) -> memoryview | None:
        place = found.shape.root, base
        if self._mapped is None or self._mapped[0] != place:
            self._mapped = None
            path = _paths_of(found.shape).find_segment(base)
            try:
                # Unmapped when nothing looks into it any more; a reader that stops early leaves nothing behind.
                self._mapped = place, np.memmap(path, np.uint8, mode="r").data
            except (FileNotFoundError, ValueError):  # gone, or empty
                return None
        return self._mapped[1][: found.shape.segment_bytes]

    def _lost(self, found: QueueRange, queue_offset: int, why: str) -> None:
        if self._rules.fail_on_data_loss:
            raise DataLoss(
                f"message {queue_offset} of {found.topic}, queue {found.queue_id} at {found.shape.broker_name}:"
                f" {why}; option failOnDataLoss=false goes on without it"
            )


@lru_cache(maxsize=64)
def _paths_of(shape: StoreShape) -> StorePaths:
    return shape.paths
