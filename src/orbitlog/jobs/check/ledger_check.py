"""Ledger check: the files of a DLedger directory, whose entries one task a data file compares with the index files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from orbitlog.formats import store_tree as tree
from orbitlog.formats.records.dledger import INDEX_FILE_BYTES_DEFAULT, INDEX_UNIT_BYTES
from orbitlog.jobs.check.check_entries import CheckEntriesTask
from orbitlog.jobs.store_use import StoreUse
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import first_written, mapped_view, written_until
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles, find_segments
from orbitlog.storefiles.store_log import UncommittedTail, committed_end, read_checkpoint, uncommitted_tail


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """The tasks that check the entries of a store, and what follows from their reports; none for an ordinary store."""

    store: StoreFiles
    segment_bytes: int = 0
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
        return cls(store, segment_bytes, index_files, end, tuple(tasks))

    def findings(self, reports: Sequence[dict[str, Any]]) -> Iterator[Finding]:
        """Yield what the tasks found, and what the files show together."""
        if self.store.dledger_member is None:
            return
        for report in reports:
            yield from (Finding.from_report(values) for values in report["findings"])
        yield from self._file_order(reports)
        tail = uncommitted_tail(self.store, self.end)
        last = max((report["last"] for report in reports if report["last"] is not None), default=-1)
        yield from self._committed(self.store.root / self.store.dledger_member, reports, last, tail)
        yield from self._data_sizes(reports)
        yield from self._index_sizes()
        yield from self._index_tail(last + 1 + (tail.entry_count if tail is not None else 0))

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

    def _committed(
        self, directory: Path, reports: Sequence[dict[str, Any]], last: int, tail: UncommittedTail | None
    ) -> Iterator[Finding]:
        """Yield a committed entry that the log lacks, and entries after it."""
        committed = read_checkpoint(directory).committed_index
        if committed is None and reports:
            reason = "states no committed index: all entries were read"
            yield Finding(FindingKind.UNCOMMITTED, str(directory / tree.CHECKPOINT), reason)
        elif committed is not None and last < committed and self.tasks:
            place = next(number for number in reversed(range(len(reports))) if reports[number]["last"] in (last, None))
            task, position = self.tasks[place], reports[place]["end"]
            reason = f"the log ends with entry {last}, but entry {committed} is committed"
            yield Finding(FindingKind.ENTRY, task.path, reason, position, physical_offset=task.base + position)
        if tail is not None:
            position = tail.physical_offset - int(tail.path.name)
            yield Finding(
                FindingKind.UNCOMMITTED,
                str(tail.path),
                f"{tail.described}, are not read; the committed entry is {committed}",
                position,
                tail.entry_count,
                physical_offset=tail.physical_offset,
            )

    def _data_sizes(self, reports: Sequence[dict[str, Any]]) -> Iterator[Finding]:
        """Yield data files that were cut after the last entry; the walk of the records finds any other cut."""
        if not self.tasks:
            return
        data_end = self.tasks[-1].base + reports[-1]["end"] if self.end is None else self.end
        for file in self.store.dledger_segments[self.store.dledger_member or ""]:
            offset = file.base + file.size_bytes
            if offset >= data_end and 0 < file.size_bytes < self.segment_bytes:
                reason = f"the file has only {file.size_bytes} of {self.segment_bytes} bytes; no entry is missing"
                yield Finding(FindingKind.SEGMENT, str(file.path), reason, file.size_bytes, physical_offset=offset)

    def _index_tail(self, count: int) -> Iterator[Finding]:
        """Yield bytes after the units of `count` entries, such as those of entries that another leader truncated."""
        for file in self.index_files if self.tasks else ():
            with mapped_view(file.path) as view:
                start = max(count * INDEX_UNIT_BYTES - file.base, 0)
                position = first_written(view, start, written_until(file.path))
            if position is not None:
                reason = f"bytes after the unit of entry {count - 1}, the last one, are not read"
                yield Finding(FindingKind.UNCOMMITTED, str(file.path), reason, position)
                return

    def _index_sizes(self) -> Iterator[Finding]:
        """Yield index files of another size than RocketMQ gives them, unless the names of several show their size."""
        steps = {later.base - earlier.base for earlier, later in pairwise(self.index_files)}
        expected = steps.pop() if len(steps) == 1 else INDEX_FILE_BYTES_DEFAULT
        for file in self.index_files:
            if file.size_bytes != expected:
                reason = f"the file has {file.size_bytes} bytes, an index file of DLedger has {expected}"
                position = min(file.size_bytes, written_until(file.path))
                yield Finding(FindingKind.ENTRY_INDEX, str(file.path), reason, position)
