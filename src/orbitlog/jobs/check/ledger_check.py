"""Ledger check: the files of a DLedger directory, whose entries one task a data file compares with the index files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from orbitlog.formats import store_tree as tree
from orbitlog.formats.records.dledger import INDEX_FILE_BYTES_DEFAULT
from orbitlog.jobs.check.check_entries import CheckEntriesTask
from orbitlog.jobs.store_use import StoreUse
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import written_until
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles, find_segments
from orbitlog.storefiles.store_log import committed_end, read_checkpoint, uncommitted_tail


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """The tasks that check the entries of a store, and what follows from their reports; none for an ordinary store."""

    store: StoreFiles
    index_files: tuple[OffsetFile, ...] = ()
    end: int | None = None
    tasks: tuple[CheckEntriesTask, ...] = ()

    @classmethod
    def of(cls, store: StoreFiles, segment_bytes: int, use: StoreUse) -> LedgerCheck:
        """Plan a task for each data file; none while another process uses the store."""
        if store.dledger_member is None or use.is_in_use(store):
            return cls(store)
        directory = store.root / store.dledger_member / tree.DLEDGER_INDEX
        index_files = find_segments(directory) if directory.is_dir() else ()
        named = tuple((str(file.path), file.base, file.size_bytes) for file in index_files)
        end = committed_end(store)
        tasks = [
            CheckEntriesTask(
                str(file.path),
                file.base,
                segment_bytes,
                file.size_bytes if end is None else min(end - file.base, file.size_bytes),
                named,
                str(directory),
            )
            for file in store.dledger_segments[store.dledger_member]
            if end is None or file.base < end
        ]
        return cls(store, index_files, end, tuple(tasks))

    def findings(self, reports: Sequence[dict[str, Any]]) -> Iterator[Finding]:
        """Yield what the tasks found, and what the files show together."""
        if self.store.dledger_member is None:
            return
        for report in reports:
            yield from (Finding.from_report(values) for values in report["findings"])
        yield from self._file_order(reports)
        yield from self._committed(self.store.root / self.store.dledger_member, reports)
        yield from self._index_sizes()

    def _file_order(self, reports: Sequence[dict[str, Any]]) -> Iterator[Finding]:
        """Yield data files whose first entry does not follow the last one of the file before."""
        known = [
            (task, report) for task, report in zip(self.tasks, reports, strict=True) if report["first"] is not None
        ]
        for (before, earlier), (task, report) in pairwise(known):
            is_next = before.base + before.segment_bytes == task.base and earlier["is_complete"]
            if is_next and report["first"] != earlier["last"] + 1:
                reason = f"the file begins with entry {report['first']}, the one before it ends with {earlier['last']}"
                yield Finding(FindingKind.ENTRY, task.path, reason, 0, physical_offset=task.base)

    def _committed(self, directory: Path, reports: Sequence[dict[str, Any]]) -> Iterator[Finding]:
        """Yield a committed entry that the log lacks, and entries after it."""
        committed = read_checkpoint(directory).committed_index
        last = max((report["last"] for report in reports if report["last"] is not None), default=-1)
        if committed is None and reports:
            reason = "states no committed index: all entries were read"
            yield Finding(FindingKind.UNCOMMITTED, str(directory / tree.CHECKPOINT), reason)
        elif committed is not None and last < committed and self.tasks:
            place = next(number for number in reversed(range(len(reports))) if reports[number]["last"] in (last, None))
            task, position = self.tasks[place], reports[place]["end"]
            reason = f"the log ends with entry {last}, but entry {committed} is committed"
            yield Finding(FindingKind.ENTRY, task.path, reason, position, physical_offset=task.base + position)
        tail = uncommitted_tail(self.store, self.end)
        if tail is not None:
            reason = str(tail).partition(": ")[2]
            position = tail.physical_offset - int(tail.path.name)
            yield Finding(
                FindingKind.UNCOMMITTED,
                str(tail.path),
                f"{reason}, are not read; the committed entry is {committed}",
                position,
                tail.entry_count,
                physical_offset=tail.physical_offset,
            )

    def _index_sizes(self) -> Iterator[Finding]:
        """Yield index files of another size than RocketMQ gives them, unless the names of several show their size."""
        steps = {later.base - earlier.base for earlier, later in pairwise(self.index_files)}
        expected = steps.pop() if len(steps) == 1 else INDEX_FILE_BYTES_DEFAULT
        for file in self.index_files:
            if file.size_bytes != expected:
                reason = f"the file has {file.size_bytes} bytes, an index file of DLedger has {expected}"
                position = min(file.size_bytes, written_until(file.path))
                yield Finding(FindingKind.ENTRY_INDEX, str(file.path), reason, position)
