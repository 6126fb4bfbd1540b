"""Topics that were deleted while their messages are in the log, and perhaps made again: everyday life, no damage.

A topic that is made again counts its queue offsets from 0 again. Queues are those of its last life; the messages of
lives before are in the log, and in no queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from orbitlog.doctor.split_derivation import SplitDerivation, UnitSlice
from orbitlog.doctor.store_survey import known_topics
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.queue_entry import ENTRY_BYTES, decode_entry
from orbitlog.store.findings import Finding
from orbitlog.store.store_files import StoreFiles

# Of a life, unless the queue's own first unit confirms it: one message with offset 0 may be one with a wrong offset.
_MESSAGES_MIN = 2
Queue = tuple[str, int]


def leave_out_earlier_lives(derivations: Sequence[SplitDerivation], store: StoreFiles) -> dict[Queue, int]:
    """Take the units of lives before the last out of the derivations; returns where each queue begins again."""
    log_start = store.segments[0].base if store.segments else 0
    slices: dict[Queue, list[tuple[SplitDerivation, UnitSlice]]] = defaultdict(list)
    for derivation in derivations:
        for part in derivation.slices:
            slices[derivation.queues[part.queue]].append((derivation, part))
    begins = {
        queue: parts[place][1].physical_offset
        for queue, parts in slices.items()
        if (place := _last_beginning([part for _, part in parts], log_start, partial(_first_unit, store, queue)))
    }
    for derivation in derivations if begins else ():
        derivation.slices = [part for part in derivation.slices if not _is_earlier(derivation, part, begins)]
        told = [one for one in derivation.findings if not _is_of_earlier_life(one, begins)]
        derivation.finding_count -= len(derivation.findings) - len(told)
        derivation.findings = told
    return begins


def _first_unit(store: StoreFiles, queue: Queue) -> int:
    """Return the physical offset in the first unit of a queue; -1 if the file of that unit is missing or empty."""
    files = store.queues.get(queue, ())
    if not files or files[0].base or files[0].size_bytes < ENTRY_BYTES:
        return -1
    with files[0].path.open("rb") as file:
        unit = decode_entry(file.read(ENTRY_BYTES))
    return unit.physical_offset if unit is not None else -1


def _last_beginning(parts: Sequence[UnitSlice], log_start: int, first_unit: Callable[[], int]) -> int:
    """Return the number of the part that the last life begins with; 0 where there is one life, or disorder."""
    if len(parts) == 1:
        return 0
    lives: list[int] = [0]
    counts = [0]
    expected = parts[0].first
    for number, part in enumerate(parts):
        if part.first != expected:
            if part.first:
                return 0
            lives.append(number)
            counts.append(0)
        counts[-1] += part.unit_count
        expected = part.first + part.unit_count
    has_beginning = parts[0].first == 0 or log_start > 0
    if len(lives) == 1 or not has_beginning:
        return 0
    is_certain = min(counts) >= _MESSAGES_MIN or parts[lives[-1]].physical_offset == first_unit()
    return lives[-1] if is_certain else 0


def _is_earlier(derivation: SplitDerivation, part: UnitSlice, begins: dict[Queue, int]) -> bool:
    begin = begins.get(derivation.queues[part.queue])
    return begin is not None and part.physical_offset < begin


def _is_of_earlier_life(finding: Finding, begins: dict[Queue, int]) -> bool:
    """Tell whether a finding is about units that belong to a life before, or about where one begins."""
    if finding.topic is None or finding.queue_id is None or finding.physical_offset is None:
        return False
    begin = begins.get((finding.topic, finding.queue_id))
    if begin is None or finding.kind not in ("queue unit", "queue order"):
        return False
    return finding.physical_offset < begin or (finding.kind == "queue order" and finding.physical_offset == begin)


def deleted_topics(store: StoreFiles, topics: Collection[str]) -> set[str]:
    """Return those that a table which can be read does not know, and that have no queues any more.

    A broker that deletes its only topic leaves an empty consumequeue/; if that directory is missing, queues are.
    """
    table = known_topics(store.root)
    if table is None or not table.topics or not (store.root / tree.CONSUMEQUEUE).is_dir():
        return set()
    with_queues = {topic for (topic, _), files in store.queues.items() if files}
    return {
        topic
        for topic in topics
        if topic not in table.topics and topic not in with_queues and not names.is_system_topic(topic)
    }


def leave_out_deleted_topics(derivations: Sequence[SplitDerivation], store: StoreFiles) -> None:
    """Take the units of deleted topics out of the derivations, unless the store has no queue that tells them apart."""
    if not any(store.queues.values()):
        return
    deleted = deleted_topics(store, {topic for derivation in derivations for topic, _ in derivation.queues})
    for derivation in derivations if deleted else ():
        derivation.slices = [part for part in derivation.slices if derivation.queues[part.queue][0] not in deleted]


def life_findings(store: StoreFiles, begins: dict[Queue, int], deleted: Iterable[str]) -> list[Finding]:
    """Say of each topic what happened to it."""
    found: dict[str, Finding] = {}
    for (topic, _), begin in sorted(begins.items()):
        path = str(store.root / tree.CONSUMEQUEUE / topic)
        reason = "its offsets begin again at 0: it was deleted and made again, and its earlier messages are in no queue"
        found.setdefault(topic, Finding("topic life", path, reason, physical_offset=begin, topic=topic))
    for topic in sorted(deleted):
        path = str(store.root / tree.CONSUMEQUEUE / topic)
        found[topic] = Finding("topic life", path, "was deleted, and the log still has messages of it", topic=topic)
    return list(found.values())
