"""Entry check task: compares the headers of DLedger entries in one data file with each other and with the index files.

`check_split` reads the records; a wrong number, term or unused field of a header does not keep it from that, but a
member of the group that reads the entry fails, and Java's broker may truncate the log there. Entries are numbered
without gaps, so of a header and its index unit the one that contradicts its neighbours is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orbitlog.formats.records.dledger import (
    ENTRY_HEADER,
    ENTRY_MAGIC,
    FILE_END_BYTES,
    INDEX_UNIT_BYTES,
)
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message_scan import SegmentEnd
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.record_walk import walk_messages
from orbitlog.kernels.row_dtypes import ENTRY_HEADER_DTYPE, ENTRY_UNIT_DTYPE, rows_at
from orbitlog.kernels.splits import find_record
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import first_written, mapped_view

_FINDINGS_MAX = 100
_NUMBER, _TERM = ENTRY_HEADER.position("index"), ENTRY_HEADER.position("term")
_UNUSED = {name: ENTRY_HEADER.position(name) for name in ("channel", "chain_crc", "body_crc")}

Longs = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class CheckEntriesTask:
    """Check the entries of a data file up to position `stop`; `index_files` have path, first byte and size."""

    path: str
    base: int
    segment_bytes: int
    stop: int
    index_files: tuple[tuple[str, int, int], ...]
    index_directory: str


@dataclass(slots=True)
class _Entries:
    """The headers of a data file that can be read, and the position after its last entry."""

    positions: Longs
    headers: Rows
    end: int
    is_complete: bool
    """Whether the file ends with the mark of its end, and nothing before it was passed over."""
    padding: int | None = None
    """The first byte after that mark that is not zero."""

    def column(self, name: str) -> Longs:
        return self.headers[name].astype(np.int64)


def check_entries(task: CheckEntriesTask) -> dict[str, Any]:
    """Report wrong headers and index units, and the numbers of the first and the last entry."""
    with mapped_view(Path(task.path)) as whole, whole[: task.segment_bytes] as view:
        entries = _read_entries(view, task)
    findings: list[Finding] = []
    report: dict[str, Any] = {"first": None, "last": None, "end": entries.end, "is_complete": entries.is_complete}
    if entries.padding is not None:
        reason = "the rest of the file after its last entry is not zero"
        findings.append(_header_finding(task, entries.padding, reason))
    if len(entries.positions):
        numbers = _numbers(entries)
        report |= {"first": int(numbers[0]), "last": int(numbers[-1])}
        findings += [*_wrong_numbers(task, entries, numbers), *_wrong_unused(task, entries)]
        findings += _compare_units(task, entries, numbers)
    return report | {"findings": [asdict(finding) for finding in findings[:_FINDINGS_MAX]], "count": len(findings)}


def _read_entries(view: memoryview, task: CheckEntriesTask) -> _Entries:
    found: list[Longs] = []
    stop, position, padding, is_complete = min(task.stop, len(view)), 0, None, False
    while position < stop:
        walk = walk_messages(
            view, position, stop, base_physical_offset=task.base, log_format=LogFormat.DLEDGER, check_crc=False
        )
        found.append(walk.positions)
        position = walk.next_position
        if isinstance(walk.stop, SegmentEnd):
            padding, is_complete = first_written(view, position + FILE_END_BYTES), len(found) == 1
            break
        following = find_record(
            view,
            min(position + 1, stop),
            stop,
            base_physical_offset=task.base,
            log_format=LogFormat.DLEDGER,
            check_crc=False,
        )
        if walk.stop is None or following is None:
            break
        position = following
    positions = np.concatenate([np.empty(0, np.int64), *found])
    headers = rows_at(view, positions, ENTRY_HEADER_DTYPE)
    return _Entries(positions, headers, position, is_complete, padding)


def _numbers(entries: _Entries) -> Longs:
    """Return the number that each entry must have: entries without a gap between them are consecutive."""
    stated, sizes = entries.column("index"), entries.column("size_bytes")
    follows = entries.positions[1:] == entries.positions[:-1] + sizes[:-1]
    starts = np.concatenate([[0], np.flatnonzero(~follows) + 1, [len(stated)]])
    numbers = stated.copy()
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        firsts, counts = np.unique(stated[start:stop] - np.arange(stop - start), return_counts=True)
        if 2 * counts.max() > stop - start:
            numbers[start:stop] = firsts[counts.argmax()] + np.arange(stop - start)
    return numbers


def _wrong_numbers(task: CheckEntriesTask, entries: _Entries, numbers: Longs) -> Iterator[Finding]:
    stated = entries.column("index")
    for row in np.flatnonzero(stated != numbers).tolist():
        reason = f"the entry has number {stated[row]}, by its neighbours it is entry {numbers[row]}"
        yield _header_finding(task, int(entries.positions[row]) + _NUMBER, reason)


def _wrong_unused(task: CheckEntriesTask, entries: _Entries) -> Iterator[Finding]:
    """Yield fields that DLedger does not use and that are not zero, unless most of them are not."""
    for name, position in _UNUSED.items():
        rows = np.flatnonzero(entries.headers[name])
        for row in rows.tolist() if 2 * len(rows) < max(len(entries.headers), 2) else ():
            reason = f"the entry has {name} {int(entries.headers[name][row])}, which is 0 in all other entries"
            yield _header_finding(task, int(entries.positions[row]) + position, reason)


def _header_finding(task: CheckEntriesTask, position: int, reason: str) -> Finding:
    return Finding(FindingKind.ENTRY, task.path, reason, position, physical_offset=task.base + position)


def _compare_units(task: CheckEntriesTask, entries: _Entries, numbers: Longs) -> Iterator[Finding]:
    """Compare every entry with its unit, index file by index file."""
    seen = np.zeros(len(numbers), np.bool_)
    for path, base, size_bytes in task.index_files:
        first, last = base // INDEX_UNIT_BYTES, (base + size_bytes) // INDEX_UNIT_BYTES
        rows = np.flatnonzero((numbers >= first) & (numbers < last))
        if not len(rows):
            continue
        seen[rows] = True
        with mapped_view(Path(path)) as view:
            all_units = np.frombuffer(view, ENTRY_UNIT_DTYPE, len(view) // INDEX_UNIT_BYTES)
            units = all_units[numbers[rows] - first]
            del all_units
        yield from _compare(task, entries, numbers, rows, units, (path, base))
    missing = np.flatnonzero(~seen)
    if len(missing):
        reason = f"no index file has the units of {len(missing)} entries, the first of which is {numbers[missing[0]]}"
        offset = task.base + int(entries.positions[missing[0]])
        yield Finding(FindingKind.ENTRY_INDEX, task.index_directory, reason, count=len(missing), physical_offset=offset)


def _compare(  # noqa: PLR0917
    task: CheckEntriesTask, entries: _Entries, numbers: Longs, rows: Longs, units: Rows, file: tuple[str, int]
) -> Iterator[Finding]:
    places = entries.positions[rows] + task.base
    is_right = units["magic"] == ENTRY_MAGIC
    is_right &= units["physical_offset"] == places
    is_right &= units["size_bytes"] == entries.headers["size_bytes"][rows]
    is_right &= units["index"] == numbers[rows]
    stated = entries.column("term")
    stated[rows] = units["term"]
    differs = units["term"] != entries.headers["term"][rows]
    in_entry = differs & (len(stated) > 1)
    if len(stated) > 1:
        in_entry &= _has_wrong_term(entries.column("term"), stated)[rows]
    for row in rows[is_right & in_entry].tolist():
        reason = f"the entry has term {entries.headers['term'][row]}, which does not fit its neighbours"
        yield _header_finding(task, int(entries.positions[row]) + _TERM, reason)
    path, base = file
    wrong = np.flatnonzero(~is_right | (differs & ~in_entry))
    for run in np.split(wrong, np.flatnonzero(np.diff(wrong) != 1) + 1) if len(wrong) else ():
        number, count = int(numbers[rows[run[0]]]), len(run)
        blank = not units[run[0] : run[0] + 1].tobytes().strip(b"\0")
        reason = f"the unit of entry {number} {'is blank' if blank else 'differs from the entry'}"
        yield Finding(
            FindingKind.ENTRY_INDEX,
            path,
            reason if count == 1 else f"{reason}, so do {count} units in all",
            number * INDEX_UNIT_BYTES - base,
            count,
            physical_offset=int(places[run[0]]),
        )


def _has_wrong_term(terms: Longs, stated: Longs) -> npt.NDArray[np.bool_]:
    """Return for each entry whether the term that its unit states is that of a neighbour, and its own is not."""
    before = np.concatenate([terms[1:2], terms[:-1]])
    after = np.concatenate([terms[1:], terms[-2:-1]])
    fits: npt.NDArray[np.bool_] = (terms == before) | (terms == after)
    stated_fits: npt.NDArray[np.bool_] = (stated == before) | (stated == after)
    return ~fits & stated_fits
