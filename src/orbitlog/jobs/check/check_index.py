"""Index check task: verifies links, slots and header of one IndexFile whose entries the splits have compared.

If anything differs, the file is rebuilt in memory from the log and compared, which shows what is wrong. If its first
keys are older than the log it cannot be rebuilt; then its entries for messages in the log are compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orbitlog.errors import FormatError
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    IndexHeader,
    IndexLayout,
    decode_header,
    encode_header,
    header_after,
)
from orbitlog.jobs.check.index_proof import IndexProof, rest_is_right
from orbitlog.jobs.check.index_upgrade import without_tags
from orbitlog.jobs.check.repeated_keys import Held, with_repeats
from orbitlog.jobs.log_splits import LogSplit
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.dispatch import DispatchColumns, DispatchScan
from orbitlog.kernels.index_build import put_into
from orbitlog.kernels.row_dtypes import INDEX_ENTRY_DTYPE
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import mapped_view

_TIME = INDEX_ENTRY.position("time_diff_seconds")
FileBytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class CheckIndexTask:
    """Check an index file against the splits that contain its messages; `before` is the previous file."""

    path: str
    before: str | None
    layout: IndexLayout
    rules: DeriveRules
    splits: tuple[LogSplit, ...]
    keys_before: int
    log_start: int
    proof: IndexProof | None
    upgraded_at: int = 0
    may_be_empty: bool = False
    """The broker was killed, perhaps while it created this file: the next one gives it its size."""


def rules_of_split(split: LogSplit, rules: DeriveRules, upgraded_at: int) -> DeriveRules:
    """Return the rules that the index entries of a split were made by; an upgrade is at the end of a split."""
    return without_tags(rules) if split.base + split.stop <= upgraded_at else rules


def check_index(task: CheckIndexTask) -> dict[str, Any]:
    """Report what is wrong with the file, and which keys of the log (by their number) it holds."""
    with mapped_view(Path(task.path)) as view:
        data = np.frombuffer(view, np.uint8)
        report = _check(task, data)
        del data
    return report


def _check(task: CheckIndexTask, data: FileBytes) -> dict[str, Any]:
    layout = task.layout
    if not len(data) and task.may_be_empty:
        return _report([])
    try:
        header = decode_header(data.data)
    except FormatError as error:
        return _report([_finding(task, str(error), 0)])
    if len(data) != layout.file_bytes:
        if task.may_be_empty and not data.any():
            # Nothing was written to it yet: if it is the only file, nothing records the sizes it was created with.
            return _report([])
        reason = f"the file has {len(data)} bytes, one of {layout.slot_count} slots and {layout.entry_count} entries"
        return _report([_finding(task, f"{reason} has {layout.file_bytes}", 0)])
    if header.key_count > layout.capacity:
        reason = f"the header counts {header.key_count} keys, there is room for {layout.capacity}"
        return _report([_finding(task, reason, INDEX_HEADER.position("index_count"))])
    if header.key_count == 0:
        return _report([])
    if header.begin_physical_offset < 0:
        position = INDEX_HEADER.position("begin_physical_offset")
        return _report([_finding(task, f"the header has start offset {header.begin_physical_offset}", position)])
    if header.begin_physical_offset < task.log_start:
        return _check_newer_entries(task, data, header)
    if task.proof is not None and rest_is_right(data, layout, header, task.proof, _before(task)):
        return _report([], task.proof.first_key, header.key_count)
    return _check_whole(task, data, header)


def _check_whole(task: CheckIndexTask, data: FileBytes, header: IndexHeader) -> dict[str, Any]:
    """Compare the file with the log; if they differ, also with a log that has messages as often as the file."""
    report = _compare_whole(task, data, header, None)
    if report["findings"]:
        repeated = _compare_whole(task, data, header, Held.of(_entries(task, data, header)))
        if not repeated["findings"]:
            return repeated
    return report


def _entries(task: CheckIndexTask, data: FileBytes, header: IndexHeader) -> npt.NDArray[np.void]:
    start, end = task.layout.entry_position(1), task.layout.entry_position(header.index_count)
    return data[start:end].view(INDEX_ENTRY_DTYPE)


def _compare_whole(task: CheckIndexTask, data: FileBytes, header: IndexHeader, held: Held | None) -> dict[str, Any]:
    """Build the file from the log and compare it; with `held`, from messages as often as the file has them."""
    before, skipped = _header_before(task, header.begin_physical_offset)
    made = np.zeros(task.layout.entry_position(header.index_count), np.uint8)
    limit = IndexLayout(task.layout.slot_count, max(header.index_count, 2))
    built = header_after(before) if before is not None else IndexHeader()
    first_key: int | None = None
    repeated = extra = 0
    number = task.keys_before
    for chunk in _chunks(task):
        columns = chunk if held is None else with_repeats(chunk, held)
        extra += len(columns.key_hashes) - len(chunk.key_hashes)
        row, key = 0, 0
        if first_key is None:
            row = int(np.searchsorted(columns.physical_offset, header.begin_physical_offset))
            if row == len(columns.physical_offset):
                number += len(chunk.key_hashes)
                continue
            key = int(columns.key_ends[row - 1]) if row else 0
            repeated = _repeated_keys(task, data, columns, row, skipped)
            key += skipped - repeated
            first_key = number + key
        built, _, _ = put_into(made, built, limit, columns, row, key)
        number += len(chunk.key_hashes)
        if built.index_count >= header.index_count:
            break
    if first_key is None or built.index_count != header.index_count:
        reason = f"holds {header.key_count} keys, the log has {built.key_count} from its first message on"
        findings = [_finding(task, reason, INDEX_HEADER.position("index_count"))]
        return _report(findings, first_key, header.key_count, repeated)
    if before is None:
        # The previous file is missing, and the time of the first entry counts from its end: it is not compared.
        place = task.layout.entry_position(1) + _TIME
        made[place : place + 4] = data[place : place + 4]
    made[: INDEX_HEADER.size_bytes] = np.frombuffer(encode_header(built), np.uint8)
    return _report(_differences(task, data, made, header), first_key, header.key_count - extra, repeated)


def _repeated_keys(task: CheckIndexTask, data: FileBytes, columns: DispatchColumns, row: int, skipped: int) -> int:
    """Return how many keys of the first message the file before has as well.

    A Java broker that recovers puts the last message of the index files that it kept into the next one as well.
    """
    start, stop = (int(columns.key_ends[row - 1]) if row else 0), int(columns.key_ends[row])
    if start == stop:
        return 0  # the header names a message that has no key
    place = task.layout.entry_position(1)
    first_hash = int(data[place : place + 4].view(">i4")[0])
    if start + skipped < stop and first_hash == int(columns.key_hashes[start + skipped]):
        return 0
    return skipped if first_hash == int(columns.key_hashes[start]) else 0


def _before(task: CheckIndexTask) -> IndexHeader | None:
    """Return the header of the file before, if there is one that can be read."""
    if task.before is None:
        return None
    with Path(task.before).open("rb") as file:
        try:
            return decode_header(file.read(INDEX_HEADER.size_bytes))
        except FormatError:
            return None


def _header_before(task: CheckIndexTask, begin: int) -> tuple[IndexHeader | None, int]:
    """Return the header of the file before, and how many keys of the message at `begin` it took."""
    if task.before is None:
        return None, 0
    with mapped_view(Path(task.before)) as view:
        try:
            header = decode_header(view)
        except FormatError:
            return None, 0
        count = min(header.key_count, task.layout.capacity)
        raw = bytes(view[task.layout.entry_position(1) : task.layout.entry_position(count + 1)])
    entries = np.frombuffer(raw, INDEX_ENTRY_DTYPE, len(raw) // INDEX_ENTRY_DTYPE.itemsize)
    others = np.flatnonzero(entries["physical_offset"] != begin)
    return header, len(entries) - (int(others[-1]) + 1 if len(others) else 0)


def _chunks(task: CheckIndexTask) -> Iterator[DispatchColumns]:
    scans: dict[bool, DispatchScan] = {}
    for split in task.splits:
        rules = rules_of_split(split, task.rules, task.upgraded_at)
        scan = scans.setdefault(rules.compat.indexes_tags, DispatchScan(rules))
        with mapped_view(Path(split.path)) as whole, whole[: split.segment_bytes] as view:
            start, stop = split.first or 0, min(split.stop, len(view))
            yield from scan.scan(view, start, stop, base_physical_offset=split.base, log_format=split.log_format)


def _differences(task: CheckIndexTask, data: FileBytes, made: FileBytes, header: IndexHeader) -> list[Finding]:
    if _same_bytes(data[: len(made)], made):
        return []
    findings = []
    head, slots_end = INDEX_HEADER.size_bytes, task.layout.entries_position
    if not np.array_equal(data[:head], made[:head]):
        expected = replace(decode_header(made.data))
        findings.append(_finding(task, f"the header is {header}, the log gives {expected}", 0))
    wrong_slots = np.flatnonzero(data[head:slots_end].view(">i4") != made[head:slots_end].view(">i4"))
    if len(wrong_slots):
        place = head + 4 * int(wrong_slots[0])
        reason = f"slot {int(wrong_slots[0])} points to another entry than the log gives"
        findings.append(_finding(task, reason, place, len(wrong_slots)))
    seen, right = (part[slots_end : len(made)].view(INDEX_ENTRY_DTYPE) for part in (data, made))
    wrong = np.flatnonzero(seen != right)
    if len(wrong):
        number = int(wrong[0])
        reason = f"entry {number} is {seen[number].item()}, the log gives {right[number].item()}"
        place = task.layout.entry_position(number)
        findings.append(_finding(task, reason, place, len(wrong), int(right["physical_offset"][number])))
    return findings


def _same_bytes(left: FileBytes, right: FileBytes) -> bool:
    """Compare eight bytes at a time: one by one it takes longer than building the file."""
    whole = len(left) // 8 * 8
    is_same = np.array_equal(left[:whole].view(np.int64), right[:whole].view(np.int64))
    return is_same and left[whole:].tobytes() == right[whole:].tobytes()


def _check_newer_entries(task: CheckIndexTask, data: FileBytes, header: IndexHeader) -> dict[str, Any]:
    """Compare hashes and offsets of the entries whose messages the log still has."""
    entries = _entries(task, data, header)
    newer = np.flatnonzero(entries["physical_offset"] >= task.log_start)
    if len(newer) == 0:
        return _report([])
    report = _compare_newer(task, entries, int(newer[0]), None)
    if report["findings"]:
        repeated = _compare_newer(task, entries, int(newer[0]), Held.of(entries[int(newer[0]) :]))
        if not repeated["findings"]:
            return repeated
    return report


def _compare_newer(
    task: CheckIndexTask, entries: npt.NDArray[np.void], first: int, held: Held | None
) -> dict[str, Any]:
    wanted = entries[first:]
    hashes: list[npt.NDArray[np.int32]] = []
    offsets: list[npt.NDArray[np.int64]] = []
    extra = 0
    for chunk in _chunks(task):
        columns = chunk if held is None else with_repeats(chunk, held)
        extra += len(columns.key_hashes) - len(chunk.key_hashes)
        counts = np.diff(columns.key_ends, prepend=0)
        hashes.append(columns.key_hashes.copy())
        offsets.append(np.repeat(columns.physical_offset, counts))
        if sum(map(len, hashes)) >= len(wanted):
            break
    log_hashes = np.concatenate(hashes)[: len(wanted)] if hashes else np.empty(0, np.int32)
    log_offsets = np.concatenate(offsets)[: len(wanted)] if offsets else np.empty(0, np.int64)
    count = len(log_hashes)
    wrong = np.flatnonzero(
        (wanted["key_hash"][:count] != log_hashes) | (wanted["physical_offset"][:count] != log_offsets)
    )
    findings = []
    if len(wrong) or count < len(wanted):
        number = first + 1 + (int(wrong[0]) if len(wrong) else count)
        reason = f"entry {number} is not what the log has there"
        findings.append(_finding(task, reason, task.layout.entry_position(number), len(wrong) + len(wanted) - count))
    return _report(findings, task.keys_before, len(wanted) - extra)


def _finding(
    task: CheckIndexTask, reason: str, position: int, count: int = 1, physical_offset: int | None = None
) -> Finding:
    return Finding(
        FindingKind.INDEX, task.path, reason, position=position, count=count, physical_offset=physical_offset
    )


def _report(
    findings: list[Finding], first_key: int | None = None, key_count: int = 0, repeated: int = 0
) -> dict[str, Any]:
    return {
        "findings": [asdict(finding) for finding in findings],
        "first_key": first_key,
        "key_count": key_count,
        "repeated": repeated,
    }
