"""Derived swap: replaces derived files by rebuilt ones through a journal, the checkpoint last."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from orbitlog.doctor.examination import Examination
from orbitlog.doctor.finding_kinds import DerivedPart, damage_of
from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived import checkpoint
from orbitlog.formats.derived.dispatch_marks import MARKS_FILE
from orbitlog.formats.derived.index_layout import INDEX_HEADER
from orbitlog.formats.derived.store_state import STATE_FILE
from orbitlog.jobs.local_runner import PhaseProgress, Runner
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.jobs.rebuild.store_rebuild import StoreRebuild, rebuild_with, refuse_rebuilding
from orbitlog.jobs.staging import TEMPORARY, put_bytes
from orbitlog.jobs.store_use import SHARED_USE, StoreUse
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.store_files import StoreFiles, find_index_files, find_queues

QUEUES, INDEX, CHECKPOINT = DerivedPart.QUEUES, DerivedPart.INDEX, DerivedPart.CHECKPOINT
PARTS = tuple(DerivedPart)
Queue = tuple[str, int]
_TIME_BYTES = 8
_INDEX_END = INDEX_HEADER.position("end_timestamp_ms")


@dataclass(frozen=True, slots=True)
class DerivedSet:
    """Derived files of one store in a directory of their own, or those that a rebuild would put there."""

    directory: Path
    queues: frozenset[Queue]
    has_checkpoint: bool

    @classmethod
    def found_in(cls, directory: Path) -> DerivedSet:
        queues = frozenset(find_queues(directory / tree.CONSUMEQUEUE))
        return cls(directory, queues, (directory / tree.CHECKPOINT).exists())


Deriver = Callable[[Path], tuple[DerivedSet | None, list[str]]]
"""Rebuilds derived files into a directory, or predicts the result; returns the problems if it cannot."""


def predict_derived(store: StoreFiles, found: Examination, out: Path) -> tuple[DerivedSet | None, list[str]]:
    """Return what a rebuild into `out` would give, from the check of the log alone: a dry run writes nothing."""
    try:
        refuse_rebuilding(store)
    except StoreLayoutError as error:
        return None, [str(error)]
    if damage := damage_of(found.findings):
        return None, [f"nothing can be derived: {finding}" for finding in damage]
    return DerivedSet(out, frozenset(found.check.ends), found.check.messages > 0), []


def make_derived(
    run: Runner,
    root: Path,
    out: Path,
    settings: StoreSettings,
    *,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    accept_lost_segments: bool = False,
    progress: PhaseProgress | None = None,
    disk: Disk | None = None,
    use: StoreUse = SHARED_USE,
) -> StoreRebuild:
    """Derive everything from the log into a directory of its own."""
    (result,) = rebuild_with(
        run,
        [root],
        out=out,
        settings=settings,
        split_bytes=split_bytes,
        accept_lost_segments=accept_lost_segments,
        progress=progress,
        disk=disk,
        use=use,
    )
    return result


def plan_swap(
    journal: PlanJournal,
    store: StoreFiles,
    made: DerivedSet,
    *,
    parts: Collection[str],
    queues: Collection[Queue] | None = None,
    topic: str | None = None,
) -> None:
    """Plan to replace derived files by new ones: all queues, or those named, or those of a topic.

    A queue without a message in the log stays, unless it is named: its files record which offsets were used.
    """
    root = store.root
    for name in (STATE_FILE, MARKS_FILE):
        if (root / name).exists():
            journal.quarantine(root / name, "is about files that are replaced")
    if QUEUES in parts:
        new = made.queues
        for topic_path in sorted({(root / tree.queue_directory(*queue)).parent for queue in new}):
            if os.path.lexists(topic_path) and not topic_path.is_dir():
                journal.quarantine(topic_path, "has the name of a topic's directory")
        for queue in sorted(new):
            if (queues is None or queue in queues) and (topic is None or queue[0] == topic):
                directory = tree.queue_directory(*queue)
                journal.replace(made.directory / directory, root / directory, "rebuilt from the log")
        for queue in sorted(set(queues or ()) - new):
            directory = root / tree.queue_directory(*queue)
            if directory.exists():
                journal.quarantine(directory, "the log has no message of this queue")
    _plan_index_and_checkpoint(journal, store, made, parts)


def vouch_for_index(disk: Disk, made: Path, journal_place: Path) -> None:
    """Set the checkpoint's index time to the end of the last index file.

    A broker sets it to the end of the last but one. But Java's broker removes index files that end later than that
    after a kill, and reads only the last segments again; the rebuilt index is complete and durable.
    """
    path = made / tree.CHECKPOINT
    ends = [_index_end(file.path) for file in find_index_files(made / tree.INDEX)]
    if ends and path.exists():
        put_bytes(disk, path, _with_index_time(path.read_bytes(), max(ends)), journal_place / TEMPORARY)


def _index_end(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(INDEX_HEADER.size_bytes)[_INDEX_END : _INDEX_END + _TIME_BYTES]


def _with_index_time(raw: bytes, index_time: bytes) -> bytes:
    until = checkpoint.CHECKPOINT.position("index_msg_timestamp_ms")
    return raw[:until] + index_time + raw[until + _TIME_BYTES :]


def _plan_index_and_checkpoint(
    journal: PlanJournal, store: StoreFiles, made: DerivedSet, parts: Collection[str]
) -> None:
    root, directory = store.root, made.directory
    if INDEX in parts:
        journal.replace(directory / tree.INDEX, root / tree.INDEX, "rebuilt from the log")
        if CHECKPOINT not in parts:
            _plan_index_time(journal, store, directory)
    if CHECKPOINT in parts and made.has_checkpoint:
        journal.replace(directory / tree.CHECKPOINT, root / tree.CHECKPOINT, "rebuilt from the log")
    elif CHECKPOINT in parts and os.path.lexists(root / tree.CHECKPOINT):
        journal.quarantine(root / tree.CHECKPOINT, "refers to messages, and the log has none")


def _plan_index_time(journal: PlanJournal, store: StoreFiles, made: Path) -> None:
    """Plan to copy the index time alone into the checkpoint of the store: its queues may lag."""
    new, old = made / tree.CHECKPOINT, store.checkpoint
    if not new.exists() or old is None or old.size_bytes != checkpoint.CHECKPOINT_BYTES:
        return
    # A Java broker that was killed removes index files that end later than this time.
    until = checkpoint.CHECKPOINT.position("index_msg_timestamp_ms")
    raw = old.path.read_bytes()
    updated = _with_index_time(raw, new.read_bytes()[until : until + _TIME_BYTES])
    if updated != raw:
        journal.put_file(old.path, updated, "its index time is that of the rebuilt index")
