"""Compaction job: merges the small files of an export's table, one commit per day.

    save the names of the output files -> tasks merge files -> one commit replaces them -> next day

Before the commit the new files are not part of the table; after it the old ones are not. A kill between any two steps
leaves the same rows in the table, and the next compaction deletes files that were not committed.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from orbitlog.jobs.local_runner import PhaseProgress, Runner, phase_of
from orbitlog.pipeline.export.compaction_files import MergeTask, merge_files
from orbitlog.pipeline.export.compaction_locks import COMPACTION_LOCK, WRITER_LOCK, table_lock
from orbitlog.pipeline.export.compaction_plan import (
    FILES_MIN_DEFAULT,
    TARGET_BYTES_DEFAULT,
    CompactionError,
    DayPlan,
    TableFile,
    is_small,
    output_name,
    plan_days,
)
from orbitlog.pipeline.export.compaction_records import CompactionRecords
from orbitlog.pipeline.export.delta_compaction import DeltaCompaction
from orbitlog.pipeline.export.export_plan import read_identity
from orbitlog.pipeline.export.iceberg_compaction import IcebergCompaction
from orbitlog.pipeline.export.iceberg_export import IcebergCatalog
from orbitlog.pipeline.export.parquet_compaction import ParquetCompaction
from orbitlog.pipeline.runtime.location_files import LocationFiles


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """The table to compact, and which of its files."""

    target: Path | str
    """The directory or URI of an export."""
    target_bytes: int = TARGET_BYTES_DEFAULT
    files_min: int = FILES_MIN_DEFAULT
    """Small files that a day must have."""
    days: frozenset[str] | None = None
    """Days to compact (`2026-01-31`); None for all."""
    catalog: IcebergCatalog | None = None


@dataclass(frozen=True, slots=True)
class CompactedDay:
    """A day whose small files were merged."""

    day: str
    files: int
    file_bytes: int
    new_files: int
    new_bytes: int
    messages: int
    seconds: float


class CompactedTable(Protocol):
    """A table whose compactions can be killed between any two steps."""

    def files(self, days: Collection[str] | None) -> list[TableFile]: ...
    def prepare(self) -> None: ...
    def begin(self, plan: DayPlan) -> tuple[int, list[str]]: ...
    def replace(self, number: int, old: Sequence[TableFile], new: Sequence[dict[str, Any]]) -> None: ...
    def delete_expired(self) -> int: ...


def plan_compaction(request: CompactionRequest) -> list[DayPlan]:
    """Return the files that a compaction would merge, by day; changes nothing."""
    return _plans(request, _open_table(request))


def count_small_files(request: CompactionRequest) -> dict[str, int]:
    """Return the number of small files of each day."""
    files = _open_table(request).files(request.days)
    return dict(Counter(file.day for file in files if is_small(file, request.target_bytes)))


def compact_table(
    run: Runner, request: CompactionRequest, *, progress: PhaseProgress | None = None, is_export: bool = False
) -> Iterator[CompactedDay]:
    """Merge small files, and yield each day after its commit.

    `is_export`: the caller is the export of this table, between two batches.
    """
    table = _open_table(request)
    with _locked(request, table, is_export=is_export):
        table.prepare()
        for plan in _plans(request, table):
            try:
                yield _compact_day(run, request, table, plan, progress)
            except (OSError, pa.ArrowException) as error:
                raise CompactionError(f"could not compact {plan.day} of {request.target}: {error}") from error


def delete_expired(request: CompactionRequest) -> int:
    """Delete the replaced files of a table whose retention has passed; return their number."""
    table = _open_table(request)
    with _locked(request, table, is_export=False):
        try:
            return table.delete_expired()
        except OSError as error:
            raise CompactionError(f"could not delete expired files of {request.target}: {error}") from error


@contextmanager
def _locked(request: CompactionRequest, table: CompactedTable, *, is_export: bool) -> Iterator[None]:
    with ExitStack() as locks:
        locks.enter_context(table_lock(request.target, COMPACTION_LOCK))
        if isinstance(table, _ParquetSteps) and not is_export:
            locks.enter_context(table_lock(request.target, WRITER_LOCK))
        yield


def _compact_day(
    run: Runner, request: CompactionRequest, table: CompactedTable, plan: DayPlan, progress: PhaseProgress | None
) -> CompactedDay:
    began = time.monotonic()
    number, outputs = table.begin(plan)
    tasks = [
        MergeTask(
            str(request.target),
            tuple(file.path for file in group),
            sum(file.size_bytes for file in group),
            output,
            plan.day,
        )
        for group, output in zip(plan.groups, outputs, strict=True)
    ]
    phase = phase_of(progress, f"compact {plan.day}", plan.size_bytes)
    reports = run(merge_files, tasks, progress=phase, name=f"compact {request.target}, {plan.day}")
    # The names must be durable before the commit refers to them.
    LocationFiles(request.target).sync(outputs[0].rpartition("/")[0])
    new = [report["file"] for report in reports]
    table.replace(number, plan.files, new)
    return CompactedDay(
        day=plan.day,
        files=len(plan.files),
        file_bytes=plan.size_bytes,
        new_files=len(new),
        new_bytes=sum(file["size_bytes"] for file in new),
        messages=sum(file["rows"] for file in new),
        seconds=time.monotonic() - began,
    )


def _plans(request: CompactionRequest, table: CompactedTable) -> list[DayPlan]:
    return plan_days(table.files(request.days), target_bytes=request.target_bytes, files_min=request.files_min)


def _open_table(request: CompactionRequest) -> CompactedTable:
    identity = read_identity(request.target)
    if identity is None:
        raise CompactionError(f"{request.target} contains no export; give the directory of a table that export wrote")
    named = identity.get("catalogTable")
    given = None if request.catalog is None else request.catalog.table
    if named != given:
        registered = f"is table {named} of a catalog" if named else "is not a table of a catalog"
        raise CompactionError(f"{request.target} {registered}; give --catalog-table and --catalog as for its export")
    if identity["format"] == "delta":
        return _CommittedSteps(request.target, DeltaCompaction(request.target))
    if identity["format"] == "iceberg":
        return _CommittedSteps(request.target, IcebergCompaction(request.target, request.catalog))
    return _ParquetSteps(ParquetCompaction(request.target))


class _CommittedSteps:
    """Steps for a format with commits: Delta and Iceberg."""

    def __init__(self, target: Path | str, table: DeltaCompaction | IcebergCompaction) -> None:
        self._table = table
        self._records = CompactionRecords(target)

    def files(self, days: Collection[str] | None) -> list[TableFile]:
        return self._table.files(days)

    def prepare(self) -> None:
        self._records.clean_up(self._table.committed())

    def begin(self, plan: DayPlan) -> tuple[int, list[str]]:
        """Save the names of the output files; return the number of the compaction, and them."""
        number = max([self._table.committed(), *self._records.numbers()]) + 1
        directory, token = self._table.directory(plan.day), secrets.token_hex(4)
        outputs = [f"{directory}/{output_name(number, token, plan.day, group)}" for group, _ in enumerate(plan.groups)]
        self._records.save(number, outputs)
        return number, outputs

    def replace(self, number: int, old: Sequence[TableFile], new: Sequence[dict[str, Any]]) -> None:
        self._records.check(number)
        self._table.replace(number, old, new)
        self._records.delete(number)

    def delete_expired(self) -> int:
        return self._table.delete_expired()


class _ParquetSteps:
    """Steps for plain Parquet files: the record is saved right before the exchange."""

    def __init__(self, table: ParquetCompaction) -> None:
        self._table = table

    def files(self, days: Collection[str] | None) -> list[TableFile]:
        return self._table.files(days)

    def prepare(self) -> None:
        self._table.begin()

    def begin(self, plan: DayPlan) -> tuple[int, list[str]]:
        number = self._table.begin()
        directory, token = self._table.directory(number), secrets.token_hex(4)
        return number, [
            f"{directory}/{output_name(number, token, plan.day, group)}" for group, _ in enumerate(plan.groups)
        ]

    def replace(self, number: int, old: Sequence[TableFile], new: Sequence[dict[str, Any]]) -> None:
        self._table.replace(number, old, new)

    def delete_expired(self) -> int:
        return self._table.delete_expired()
