"""Topic re-creation: topics that were deleted, and perhaps created again, while their messages are in the log.

A topic that is created again counts its queue offsets from 0. Its queues have the messages since then; those of the
earlier topic are in the log, and in no queue: that is not damage. The rules are those of recovery
(`store.recovery.queue_lives`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import CHECKPOINT, Checkpoint, decode_checkpoint
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, decode_entry, first_after_fillers
from orbitlog.formats.tables.topic_config import TopicTable
from orbitlog.jobs.split_derivation import SplitDerivation, UnitSlice
from orbitlog.jobs.store_use import SHARED_USE, StoreUse
from orbitlog.store.recovery.deletion_evidence import first_stored_after, were_removed_by_broker
from orbitlog.store.recovery.queue_lives import (
    DeletionEvidence,
    QueueLife,
    UnitRun,
    current_life,
    deleted_queues,
    is_complete,
)
from orbitlog.storefiles.config_reading import known_topics
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import StoreFiles

Queue = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TopicRecreations:
    """Queues that were created again, with the physical offset of their first message since; and deleted queues."""

    begins: dict[Queue, int]
    deleted: set[Queue]

    @property
    def deleted_topics(self) -> set[str]:
        """Topics that were deleted and not created again."""
        return {topic for topic, _ in self.deleted} - {topic for topic, _ in self.begins}


def drop_earlier_topics(
    store: StoreFiles,
    derivations: Sequence[SplitDerivation],
    *,
    is_rebuild: bool = False,
    use: StoreUse = SHARED_USE,
) -> TopicRecreations:
    """Remove units of earlier and of deleted topics from the derivations; returns the topics concerned.

    A rebuild creates the queues of a crashed store that recovery would create: those of messages that may never have
    been dispatched.
    """
    log_start = store.segments[0].base if store.segments else 0
    table = known_topics(store.root)
    topics = set(table.topics) or None if table is not None else None
    lives = {}
    for queue, runs in _runs_of(derivations).items():
        unit_zero = _unit_zero(store, queue) if len(runs) > 1 else None
        first_unit = partial(_first_after_fillers, store, queue)
        lives[queue] = current_life(
            queue[0], runs, topics, unit_zero=unit_zero, log_start=log_start, first_unit=first_unit
        )
    begins = {queue: life.begins_at for queue, life in lives.items() if life.replaced_at is not None}
    deleted = _deleted(store, lives, derivations, table, is_rebuild=is_rebuild, use=use)
    for derivation in derivations if begins or deleted else ():
        derivation.slices = [
            _without_earlier(part, lives[derivation.queues[part.queue]])
            for part in derivation.slices
            if derivation.queues[part.queue] not in deleted and not _is_earlier(derivation, part, begins)
        ]
        kept = [finding for finding in derivation.findings if not _is_of_earlier_topic(finding, begins, deleted)]
        derivation.finding_count -= len(derivation.findings) - len(kept)
        derivation.findings = kept
    return TopicRecreations(begins, deleted)


def _runs_of(derivations: Sequence[SplitDerivation]) -> dict[Queue, list[UnitRun]]:
    found: dict[Queue, list[UnitRun]] = defaultdict(list)
    for derivation in derivations:
        for part in derivation.slices:
            runs = found[derivation.queues[part.queue]]
            if runs and runs[-1].next_offset == part.first:
                runs[-1].unit_count += part.unit_count
                runs[-1].ends_at = part.last_physical_offset
            else:
                runs.append(UnitRun(part.first, part.unit_count, part.physical_offset, part.last_physical_offset))
    return found


def _unit_zero(store: StoreFiles, queue: Queue) -> int | None:
    """Return the physical offset in the first unit of a queue's files, None without units."""
    for file in store.queues.get(queue, ()):
        if file.base == 0 and file.path.is_file():
            with file.path.open("rb") as opened:
                raw = opened.read(ENTRY_BYTES)
            entry = decode_entry(raw) if len(raw) == ENTRY_BYTES else None
            return None if entry is None or entry.is_pre_blank else entry.physical_offset
    return None


def _first_after_fillers(store: StoreFiles, queue: Queue, life: QueueLife) -> tuple[int, int] | None:
    """Return queue offset and physical offset of the first unit, if the files have fillers from the life's start on."""
    byte = life.first * ENTRY_BYTES
    for file in store.queues.get(queue, ()):
        if file.base <= byte < file.base + file.size_bytes and file.path.is_file():
            with mapped_view(file.path) as view:
                return first_after_fillers(bytes(view[byte - file.base :]), life.first)
    return None


def _deleted(
    store: StoreFiles,
    lives: dict[Queue, QueueLife],
    derivations: Sequence[SplitDerivation],
    table: TopicTable | None,
    *,
    is_rebuild: bool,
    use: StoreUse,
) -> set[Queue]:
    with_files = {queue for queue, files in store.queues.items() if files}
    if lives.keys() <= with_files:
        return set()
    topics = set(table.topics) or None if table is not None else None
    log_start = store.segments[0].base if store.segments else 0
    log_end = max((derivation.last_physical_offset + 1 for derivation in derivations), default=0)
    proven_to, recreated_before = log_end, 0
    if not (store.root / tree.CONSUMEQUEUE).is_dir() or not is_complete(lives, topics, with_files):
        proven_to = 0
    elif store.abort is None or use.is_in_use(store):
        missing = {topic for topic, _ in lives.keys() - with_files}
        if table is not None and were_removed_by_broker(RealDisk(), store.root, missing):
            recreated_before = _stored_after(store, table.data_version.timestamp_ms, log_end)
    elif is_rebuild:
        proven_to = _stored_after(store, _checkpoint_of(store).min_timestamp_ms, log_end)
    evidence = DeletionEvidence(topics, with_files, proven_to, recreated_before, log_start)
    return deleted_queues(lives, evidence)


def _checkpoint_of(store: StoreFiles) -> Checkpoint:
    if store.checkpoint is None or store.checkpoint.size_bytes < CHECKPOINT.size_bytes:
        return Checkpoint()
    return decode_checkpoint(Path(store.checkpoint.path).read_bytes())


def _stored_after(store: StoreFiles, timestamp_ms: int, limit: int) -> int:
    """Return the physical offset of the first record stored after a time."""
    for segment in reversed(store.segments):
        with mapped_view(segment.path) as view:
            position = first_stored_after(view, segment.base, timestamp_ms, limit, segment.log_format)
        if position > 0:
            return segment.base + position
    return store.segments[0].base if store.segments else 0


def _is_earlier(derivation: SplitDerivation, part: UnitSlice, begins: dict[Queue, int]) -> bool:
    begin = begins.get(derivation.queues[part.queue])
    return begin is not None and part.last_physical_offset < begin


def _without_earlier(part: UnitSlice, life: QueueLife) -> UnitSlice:
    """Return a slice without the units from before the re-creation, if that is inside it."""
    if life.replaced_at is None or part.physical_offset >= life.begins_at:
        return part
    count = life.first - part.first
    return part._replace(
        first=life.first,
        unit_count=part.unit_count - count,
        place=part.place + count,
        physical_offset=life.begins_at,
    )


def _is_of_earlier_topic(finding: Finding, begins: dict[Queue, int], deleted: set[Queue]) -> bool:
    """Return whether a finding is about an earlier topic, a deleted queue or the re-creation itself."""
    if (
        finding.topic is None
        or finding.queue_id is None
        or finding.kind not in (FindingKind.QUEUE_UNIT, FindingKind.QUEUE_ORDER)
    ):
        return False
    queue = finding.topic, finding.queue_id
    if queue in deleted:
        return True
    begin = begins.get(queue)
    if begin is None or finding.physical_offset is None:
        return False
    return finding.physical_offset < begin or (
        finding.kind == FindingKind.QUEUE_ORDER and finding.physical_offset == begin
    )


def recreation_findings(store: StoreFiles, begins: dict[Queue, int], deleted: Iterable[str]) -> list[Finding]:
    """Return a finding for each topic that was deleted or created again."""
    table = known_topics(store.root)
    found: dict[str, Finding] = {}
    for (topic, _), begin in sorted(begins.items()):
        path = str(store.root / tree.CONSUMEQUEUE / topic)
        reason = "its offsets restart at 0: it was deleted and created again, and its earlier messages are in no queue"
        if table is not None and table.topics and topic not in table.topics:
            reason = "was deleted, and its queue begins with the messages that were dispatched afterwards"
        found.setdefault(topic, Finding(FindingKind.TOPIC_LIFE, path, reason, physical_offset=begin, topic=topic))
    for topic in sorted(deleted):
        path = str(store.root / tree.CONSUMEQUEUE / topic)
        found[topic] = Finding(
            FindingKind.TOPIC_LIFE, path, "was deleted, and the log still has messages of it", topic=topic
        )
    return list(found.values())
