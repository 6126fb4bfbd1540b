"""Rebuild plan: which files a rebuild has to build, from the reports of its splits; pure arithmetic on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.jobs.log_splits import LogSplit
from orbitlog.jobs.rebuild.index_tasks import IndexTask, KeyPart
from orbitlog.jobs.rebuild.rebuild_tasks import AssembleTask, DeriveTask, QueueFile, QueuePart
from orbitlog.jobs.split_derivation import SplitDerivation, UnitSlice
from orbitlog.storefiles.findings import Finding, FindingKind

_UNITS_IN_TASK = 2_000_000
_FILES_IN_TASK = 32

Queue = tuple[str, int]


@dataclass(slots=True)
class QueueEnds:
    """Bounds of a queue as the log has them, and the split that came last to it."""

    first: int
    next_offset: int


def queue_slices(derivation: SplitDerivation) -> Iterator[tuple[Queue, UnitSlice]]:
    for part in derivation.slices:
        yield derivation.queues[part.queue], part


def order_findings(derivations: Sequence[SplitDerivation]) -> tuple[dict[Queue, QueueEnds], list[Finding]]:
    """Follow every queue through the splits of one log: its offsets must continue where the previous split ended."""
    ends: dict[Queue, QueueEnds] = {}
    findings: list[Finding] = []
    for derivation in derivations:
        seen: set[Queue] = set()
        for queue, part in queue_slices(derivation):
            known = ends.get(queue)
            if known is None:
                known = ends[queue] = QueueEnds(part.first, part.first)
            elif queue not in seen and known.next_offset != part.first:
                findings.append(_order_finding(derivation.walk.split, queue, part.first, known.next_offset - 1))
            seen.add(queue)
            known.next_offset = part.first + part.unit_count
    return ends, findings


def _order_finding(split: LogSplit, queue: Queue, queue_offset: int, previous: int) -> Finding:
    return Finding(
        FindingKind.QUEUE_ORDER,
        split.path,
        f"queue offset {queue_offset} follows {previous}",
        count=max(queue_offset - previous - 1, 1),
        topic=queue[0],
        queue_id=queue[1],
        queue_offset=queue_offset,
        previous_queue_offset=previous,
    )


def queue_files(tasks: Sequence[DeriveTask], derivations: Sequence[SplitDerivation]) -> list[QueueFile]:
    """List the queue files of one store with their parts; the queues are known to be in order."""
    parts: dict[tuple[str, int, int], list[QueuePart]] = {}
    times: dict[tuple[str, int, int], int] = {}
    blanks: dict[tuple[str, int, int], int] = {}
    begun: set[Queue] = set()
    for task, derivation in zip(tasks, derivations, strict=True):
        path = str(task.target)
        for queue, part in queue_slices(derivation):
            key = (*queue, part.file_base)
            place = part.first - part.file_base // ENTRY_BYTES
            if queue not in begun:
                begun.add(queue)
                blanks[key] = place
            parts.setdefault(key, []).append(QueuePart(path, part.place, part.unit_count, place))
            times[key] = part.last_timestamp_ms
    return [QueueFile(*key, blanks.get(key, 0), times[key], tuple(found)) for key, found in parts.items()]


def assemble_tasks(files: Sequence[QueueFile], staging: str, queue_file_bytes: int) -> list[AssembleTask]:
    """Share queue files out among tasks that are worth starting."""
    tasks: list[AssembleTask] = []
    batch: list[QueueFile] = []
    units = 0
    for file in files:
        batch.append(file)
        units += sum(part.unit_count for part in file.parts)
        if units >= _UNITS_IN_TASK or len(batch) == _FILES_IN_TASK:
            tasks.append(AssembleTask(staging, queue_file_bytes, tuple(batch)))
            batch, units = [], 0
    if batch:
        tasks.append(AssembleTask(staging, queue_file_bytes, tuple(batch)))
    return tasks


def index_file_count(derivations: Sequence[SplitDerivation], layout: IndexLayout) -> int:
    """Count the files that the keys fill; a message begins one when the last is full, even without a key."""
    if not any(derivation.walk.message_count for derivation in derivations):
        return 0
    keys = sum(derivation.key_count for derivation in derivations)
    after_last_key = 0
    for derivation in derivations:
        after_last_key = derivation.messages_after_keys + (0 if derivation.key_count else after_last_key)
    full, rest = divmod(keys, layout.capacity)
    return full + 1 if rest or after_last_key or not keys else full


def index_tasks(
    tasks: Sequence[DeriveTask], derivations: Sequence[SplitDerivation], layout: IndexLayout, staging: str
) -> list[IndexTask]:
    """Return a task for each index file, with the splits of its keys and of the key before them."""
    pairs = zip(tasks, derivations, strict=True)
    with_messages = [(task, derivation) for task, derivation in pairs if derivation.walk.message_count]
    parts = [KeyPart(str(task.target), task.split.stop - task.split.start) for task, _ in with_messages]
    counts = [derivation.key_count for _, derivation in with_messages]
    key_ends = list(accumulate(counts))
    key_starts = [0, *key_ends[:-1]]
    found = []
    for number in range(index_file_count(derivations, layout)):
        first_key, end_key = number * layout.capacity, (number + 1) * layout.capacity
        wanted = [
            place
            for place in range(len(parts))
            if key_ends[place] >= first_key and key_starts[place] < end_key and key_ends[place] > key_starts[place]
        ]
        wanted = wanted or [0]
        chosen = tuple(parts[wanted[0] : wanted[-1] + 1])
        key_count = max(min(end_key, sum(counts)) - first_key, 0)
        found.append(IndexTask(staging, number, layout, chosen, key_starts[wanted[0]], key_count))
    return found
