"""The tasks of a check: a split of the log with the queue units and index entries it asks for, a group of queue files.

The log is the truth. A split derives its units and keys as a rebuild does and compares them with those on disk; what
queue files hold beyond those is looked at apart, and so are the links of index files (`check_index`).
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.java import INT_MAX
from orbitlog.jobs.check.index_proof import IndexHead, match_keys
from orbitlog.jobs.check.zeroed_properties import zeroed_properties
from orbitlog.jobs.log_splits import LogSplit
from orbitlog.jobs.split_derivation import QUEUE_OFFSET_MAX, UNIT, Units, UnitSlice, derive_split
from orbitlog.kernels.arrays import np, npt
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import written_until

_RUNS_MAX = 1000
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CheckSplitTask:
    """Check the records of a split, and the units and index entries that they ask for."""

    split: LogSplit
    root: str
    rules: DeriveRules
    queue_file_bytes: int
    has_ext_queues: bool
    index: tuple[IndexHead, ...]
    index_layout: IndexLayout
    batch_topics: frozenset[str] = frozenset()
    """Topics whose units are in batch queues: ConsumeQueue has none of them."""


def check_split(task: CheckSplitTask) -> dict[str, Any]:
    """Report the derivation of a split, units that are wrong or not there, and where its keys are in the index."""
    derivation, units, keys = derive_split(
        task.split,
        task.rules,
        queue_file_bytes=task.queue_file_bytes,
        check_crc=True,
        batch_topics=task.batch_topics,
    )
    missing: list[tuple[str, int, int, int, int]] = []
    units_seen, last_present = 0, -1
    for part in derivation.slices:
        topic, queue_id = derivation.queues[part.queue]
        wanted = units[part.place : part.place + part.unit_count]
        if not 0 <= part.first <= QUEUE_OFFSET_MAX:
            continue  # the derivation has a finding for it
        try:
            path = Path(task.root, tree.queue_directory(topic, queue_id), tree.offset_file_name(part.file_base))
        except FormatError:
            continue  # the derivation has a finding for it
        found = _read_units(path, part)
        absent, wrong = _compare(wanted, found, ignores_tags=task.has_ext_queues)
        units_seen += len(wanted)
        places = wanted["physical_offset"]
        missing += [(topic, queue_id, part.first + at, count, int(places[at])) for at, count in _runs(absent)]
        present = places[~absent]
        last_present = max(last_present, int(present[-1])) if len(present) else last_present
        for first, count in _runs(wrong):
            derivation.note(_wrong_unit(path, part, topic, queue_id, first, count, found, wanted))
    for finding in zeroed_properties(derivation.walk):
        derivation.note(finding)
    report = derivation.as_report()
    report["matched_keys"] = list(map(tuple, match_keys(task.index, task.index_layout, keys)))
    return report | {"missing": missing[:_RUNS_MAX], "units_seen": units_seen, "last_present": last_present}


def _read_units(path: Path, part: UnitSlice) -> Units:
    """Read the units on disk; what the file does not have reads as never written."""
    position = part.first * ENTRY_BYTES - part.file_base
    size_bytes = part.unit_count * ENTRY_BYTES
    try:
        # An entry of that name may be a directory, or a pipe: opening that would wait for a writer.
        raw = _pread(path, size_bytes, position) if path.is_file() else b""
    except (FileNotFoundError, NotADirectoryError):
        raw = b""
    return np.frombuffer(raw.ljust(size_bytes, b"\0"), UNIT)


def _pread(path: Path, size_bytes: int, position: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), size_bytes, position)


def _compare(wanted: Units, found: Units, *, ignores_tags: bool) -> tuple[Bools, Bools]:
    """Return which units were never written, and which differ from the log."""
    if wanted.tobytes() == found.tobytes():
        nothing = np.zeros(len(wanted), np.bool_)
        return nothing, nothing
    absent = ~_is_written(found)
    differs = (wanted["physical_offset"] != found["physical_offset"]) | (wanted["size_bytes"] != found["size_bytes"])
    if not ignores_tags:
        differs = differs | (wanted["tags_code"] != found["tags_code"])
    return absent, differs & ~absent


def _is_written(units: Units) -> Bools:
    """Return which units are not zero; their three fields are all of their bytes."""
    return np.asarray((units["physical_offset"] != 0) | (units["size_bytes"] != 0) | (units["tags_code"] != 0))


def _runs(marked: Bools) -> list[tuple[int, int]]:
    """Return start and length of each run of true values."""
    if not marked.any():
        return []
    edges = np.flatnonzero(np.diff(np.concatenate(([False], marked, [False])).astype(np.int8)))
    return [(int(start), int(end - start)) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _wrong_unit(  # noqa: PLR0917
    path: Path, part: UnitSlice, topic: str, queue_id: int, first: int, count: int, found: Units, wanted: Units
) -> Finding:
    seen, right = (tuple(map(int, units[first].item())) for units in (found, wanted))
    return Finding(
        FindingKind.QUEUE_UNIT,
        str(path),
        f"is {seen}, the log gives {right} (physical offset, size, tags code)"
        + (f"; the {count - 1} units after it differ as well" if count > 1 else ""),
        position=(part.first + first) * ENTRY_BYTES - part.file_base,
        count=count,
        physical_offset=right[0],
        topic=topic,
        queue_id=queue_id,
        queue_offset=part.first + first,
    )


@dataclass(frozen=True, slots=True)
class CheckedQueue:
    """A queue's files on disk, and the bounds between which its units were compared with the log."""

    topic: str
    queue_id: int
    files: tuple[tuple[str, int, int], ...]
    first: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class CheckQueuesTask:
    """Look at the units of queues that no message of the log asks for."""

    queues: tuple[CheckedQueue, ...]
    queue_file_bytes: int
    log_start: int
    last_may_be_empty: bool = False
    """A broker of 5.x was killed, perhaps while it created a queue's last file: the next one deletes an empty one."""


def check_queues(task: CheckQueuesTask) -> dict[str, Any]:
    """Report units that point to messages which the log does not have, except those before the start of the log."""
    findings = []
    for queue in task.queues:
        for path, base, size_bytes in queue.files:
            if size_bytes or not task.last_may_be_empty or path != queue.files[-1][0]:
                findings += _check_queue_file(task, queue, Path(path), base, size_bytes)
    return {"findings": [asdict(finding) for finding in findings]}


def _check_queue_file(
    task: CheckQueuesTask, queue: CheckedQueue, path: Path, base: int, size_bytes: int
) -> list[Finding]:
    findings = []
    if size_bytes != task.queue_file_bytes:
        reason = f"a queue file has {task.queue_file_bytes} bytes, this one {size_bytes}"
        findings.append(
            Finding(
                FindingKind.QUEUE_FILE, str(path), reason, count=size_bytes, topic=queue.topic, queue_id=queue.queue_id
            )
        )
    written = min(written_until(path), task.queue_file_bytes)
    # Units between the bounds were compared with the log; those before and after are checked here.
    before_until, behind_from = (offset * ENTRY_BYTES - base for offset in (queue.first, queue.next_offset))
    for start, stop in ((0, min(before_until, written)), (max(behind_from, 0), written)):
        if start < stop:
            findings += _strays(task, queue, path, base, start, stop)
    return findings


def _strays(  # noqa: PLR0917
    task: CheckQueuesTask, queue: CheckedQueue, path: Path, base: int, start: int, stop: int
) -> list[Finding]:
    """Return findings for units of a part of a file that point to messages which the log does not have."""
    raw = _pread(path, stop - start, start)
    if not raw.strip(b"\0"):
        return []
    units = np.frombuffer(raw, UNIT, len(raw) // ENTRY_BYTES)
    is_written = _is_written(units)
    is_blank = (units["physical_offset"] == 0) & (units["size_bytes"] == INT_MAX)
    is_old = (units["physical_offset"] >= 0) & (units["physical_offset"] < task.log_start)
    findings = []
    for first, count in _runs(is_written & ~is_blank & ~is_old):
        target = int(units["physical_offset"][first])
        findings.append(
            Finding(
                FindingKind.QUEUE_UNIT,
                str(path),
                f"points to physical offset {target}, where the log has no message with this queue offset",
                position=start + first * ENTRY_BYTES,
                count=count,
                physical_offset=target,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=(base + start) // ENTRY_BYTES + first,
                is_stray_unit=True,
            )
        )
    return findings
