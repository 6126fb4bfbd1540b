"""Encoded rows: consecutive rows of a DataFrame as members of batch requests, and runs of them that share a request."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from orbitlog.formats.records import properties as props
from orbitlog.formats.records.batch import BATCH_MEMBER
from orbitlog.kernels.rows.row_members import ID_CHARACTERS, write_members
from orbitlog.pipeline.sink.row_ids import ByteRanges, Bytes, constant_bytes
from orbitlog.pipeline.sink.row_texts import ANY_QUEUE, QueueOfRow, RowTexts

if TYPE_CHECKING:
    import pyarrow as pa

_HEAD_BYTES, _PROPERTIES_LENGTH_BYTES = BATCH_MEMBER.size_bytes, 2
# The last properties of a row; the kernel replaces the zeros by its id.
_AROUND_ID = (
    f"{props.UNIQ_KEY}{props.NAME_END}{chr(0) * ID_CHARACTERS}{props.PROPERTY_END}"
    f"{props.WAIT}{props.NAME_END}true{props.PROPERTY_END}"
).encode()
ID_PROPERTIES_BYTES = len(_AROUND_ID)
MEMBER_OVERHEAD_BYTES = _HEAD_BYTES + _PROPERTIES_LENGTH_BYTES + ID_PROPERTIES_BYTES


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that no broker would accept, and why."""

    batch: pa.RecordBatch
    index: int
    why: str


class EncodedRows:
    """Rows `first` to before `first + len` of a record batch, encoded; invalid ones have no member."""

    def __init__(  # noqa: PLR0917 - all parts of rows
        self,
        batch: pa.RecordBatch,
        first: int,
        bodies: ByteRanges,
        texts: RowTexts,
        ids: Bytes,
        failures: dict[int, str],
    ) -> None:
        self.batch = batch
        self.first = first
        self.failed = [FailedRow(batch, first + index, why) for index, why in sorted(failures.items())]
        self._topic = texts.topic
        self._targets = texts.targets
        self._is_single = texts.is_single
        self._ids = ids
        sizes = bodies.lengths + texts.properties.lengths + MEMBER_OVERHEAD_BYTES
        sizes[list(failures)] = 0
        ends = sizes.cumsum()
        self.ends: list[int] = [0, *ends.tolist()]
        """Where the member of each row ends, after a 0; a list, because single elements of arrays cost more."""
        members = np.empty(self.ends[-1], np.uint8)
        properties = texts.properties
        write_members(
            *(bodies.data, bodies.starts, bodies.stops, properties.data, properties.starts, properties.stops),
            ids,
            constant_bytes(_AROUND_ID),
            texts.flags,
            ends,
            members,
        )
        self.members = members.data

    def __len__(self) -> int:
        return len(self.ends) - 1

    def runs(self) -> Iterator[RowRun]:
        """Yield runs of valid rows for one topic and one choice of a queue."""
        if not self.failed and self._targets is None:
            yield RowRun(self, 0, len(self))
            return
        start = 0
        for index in range(1, len(self) + 1):
            if index == len(self) or self._kind(index) != self._kind(start):
                if self._kind(start) is not None:
                    yield RowRun(self, start, index)
                start = index

    def _kind(self, index: int) -> tuple[tuple[str, QueueOfRow], bool] | None:
        """Return what rows of a run have in common; None for an invalid row."""
        if self.ends[index] == self.ends[index + 1]:
            return None
        return self.target(index), self.is_single(index)

    def target(self, index: int) -> tuple[str, QueueOfRow]:
        """Return topic and queue of a row."""
        return (self._topic, ANY_QUEUE) if self._targets is None else self._targets[index]

    def is_single(self, index: int) -> bool:
        """Return whether a row may not share a request with others."""
        return self._is_single is not None and bool(self._is_single[index])

    def unique_id(self, index: int) -> str:
        return bytes(self._ids[index]).decode()


@dataclass(frozen=True, slots=True)
class SinkRow:
    """One encoded row."""

    rows: EncodedRows
    index: int

    @property
    def topic(self) -> str:
        return self.rows.target(self.index)[0]

    @property
    def unique_id(self) -> str:
        return self.rows.unique_id(self.index)

    @property
    def body(self) -> bytes:
        return self._parts()[0]

    @property
    def properties_raw(self) -> bytes:
        return self._parts()[1]

    @property
    def flag(self) -> int:
        return int(BATCH_MEMBER.struct.unpack_from(self._member())[3])

    def failed(self, why: str) -> FailedRow:
        return FailedRow(self.rows.batch, self.rows.first + self.index, why)

    def _member(self) -> memoryview:
        return self.rows.members[self.rows.ends[self.index] : self.rows.ends[self.index + 1]]

    def _parts(self) -> tuple[bytes, bytes]:
        member = self._member()
        body_end = _HEAD_BYTES + int(BATCH_MEMBER.struct.unpack_from(member)[4])
        return bytes(member[_HEAD_BYTES:body_end]), bytes(member[body_end + _PROPERTIES_LENGTH_BYTES :])


@dataclass(slots=True)
class RowRun:
    """Rows from `start` to before `stop`, whose members are successive bytes."""

    rows: EncodedRows
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def fitting(self, rows_max: int, bytes_max: int) -> int:
        """Return how many of the first rows stay within both limits."""
        ends, start = self.rows.ends, self.start
        stop_max = min(self.stop, start + rows_max)
        if ends[stop_max] - ends[start] <= bytes_max:
            return max(stop_max - start, 0)
        return bisect_right(ends, ends[start] + bytes_max, start, stop_max) - 1 - start

    def split(self, count: int) -> tuple[RowRun, RowRun]:
        """Return the first `count` rows and the others."""
        middle = self.start + count
        return RowRun(self.rows, self.start, middle), RowRun(self.rows, middle, self.stop)


@dataclass(slots=True)
class RequestRows:
    """Rows of one request; iterating yields each row."""

    runs: list[RowRun] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0

    @classmethod
    def of(cls, rows: Iterable[SinkRow]) -> RequestRows:
        request = cls()
        for row in rows:
            request.add(RowRun(row.rows, row.index, row.index + 1))
        return request

    def add(self, run: RowRun) -> None:
        self.runs.append(run)
        self.count += run.stop - run.start
        self.size_bytes += run.rows.ends[run.stop] - run.rows.ends[run.start]

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[SinkRow]:
        for run in self.runs:
            for index in range(run.start, run.stop):
                yield SinkRow(run.rows, index)

    @property
    def first(self) -> SinkRow:
        return SinkRow(self.runs[0].rows, self.runs[0].start)

    @property
    def is_single(self) -> bool:
        """Return whether no row may join; all rows of a request are alike in this."""
        return self.runs[0].rows.is_single(self.runs[0].start)

    def members(self) -> list[memoryview]:
        """Return the encoded rows, in their order."""
        return [run.rows.members[run.rows.ends[run.start] : run.rows.ends[run.stop]] for run in self.runs]
